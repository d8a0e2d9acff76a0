// judged: shared-race
// the barrier between the copies and the reads is missing
// grid: N / 32, M / 32
// block: 1024
// domain: M % 32 == 0, N % 32 == 0, K % 32 == 0
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  __shared__ float As[32][32], Bs[32][32];
  const int y = threadIdx.x / 32, x = threadIdx.x % 32;
  const int row = blockIdx.y * 32 + y, col = blockIdx.x * 32 + x;
  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += 32) {
    As[y][x] = A[(size_t)row * K + k0 + x];
    Bs[y][x] = B[(size_t)(k0 + y) * N + col];
    for (int k = 0; k < 32; ++k) acc += As[y][k] * Bs[k][x];
    __syncthreads();
  }
  const size_t c = (size_t)row * N + col;
  C[c] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[c];
}
