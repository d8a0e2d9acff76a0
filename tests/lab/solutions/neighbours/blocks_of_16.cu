// judged: right
// a warp has two rows of 16 columns: 4 sectors per multiply-add instead of 5
// grid: N / 16, M / 16
// block: 16, 16
// domain: M % 16 == 0, N % 16 == 0
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const int row = blockIdx.y * 16 + threadIdx.y;
  const int col = blockIdx.x * 16 + threadIdx.x;
  float acc = 0.0f;
  for (int k = 0; k < K; ++k) acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
  const size_t c = (size_t)row * N + col;
  C[c] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[c];
}
