// judged: barriers
// two buffers of 16 deep tiles: one barrier per tile, and as many as before
// grid: N / 16, M / 16
// block: 16, 16
// domain: M % 16 == 0, N % 16 == 0, K % 16 == 0
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  __shared__ float As[2][16][16], Bs[2][16][16];
  const int y = threadIdx.y, x = threadIdx.x;
  const int row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += 16) {
    const int b = k0 / 16 & 1;
    As[b][y][x] = A[(size_t)row * K + k0 + x];
    Bs[b][y][x] = B[(size_t)(k0 + y) * N + col];
    __syncthreads();
    for (int k = 0; k < 16; ++k) acc += As[b][y][k] * Bs[b][k][x];
  }
  const size_t c = (size_t)row * N + col;
  C[c] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[c];
}
