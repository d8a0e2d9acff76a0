// judged: sectors of A
// a thread has eight rows, and reads global memory
// grid: N / 64, M / 64
// block: 64, 8
// domain: M % 64 == 0, N % 64 == 0
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const int row = blockIdx.y * 64 + threadIdx.y * 8, col = blockIdx.x * 64 + threadIdx.x;
  float acc[8] = {};
  for (int k = 0; k < K; ++k) {
    const float b = B[(size_t)k * N + col];
    for (int i = 0; i < 8; ++i) acc[i] += A[(size_t)(row + i) * K + k] * b;
  }
  for (int i = 0; i < 8; ++i) {
    const size_t c = (size_t)(row + i) * N + col;
    C[c] = beta == 0.0f ? alpha * acc[i] : alpha * acc[i] + beta * C[c];
  }
}
