// Right: a helper on a line of its own gives the place in a tile, and a loop of two trips calls it.
// grid: (N + 31) / 32, (M + 31) / 32
// block: 256
__device__ __forceinline__ float& at(float (&tile)[32][33], int r, int c) {
  return tile[r][c];
}
extern "C" __global__ void i2_helper_in_a_short_loop(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  __shared__ float as[32][33], bs[32][33];
  const int t = threadIdx.x, r = t / 32, c = t % 32, row0 = blockIdx.y * 32, col = blockIdx.x * 32 + c;
  float acc[4] = {};
  for (int k0 = 0; k0 < K; k0 += 16) {
    for (int i = t; i < 512; i += 256)
      at(as, i / 16, i % 16) = row0 + i / 16 < M && k0 + i % 16 < K ? A[(size_t)(row0 + i / 16) * K + k0 + i % 16] : 0.0f;
    for (int i = t; i < 512; i += 256)
      at(bs, i / 32, i % 32) = k0 + i / 32 < K && blockIdx.x * 32 + i % 32 < N ? B[(size_t)(k0 + i / 32) * N + blockIdx.x * 32 + i % 32] : 0.0f;
    __syncthreads();
    for (int k = 0; k < 16; ++k)
      for (int j = 0; j < 4; ++j) acc[j] += as[r + 8 * j][k] * bs[k][c];
    __syncthreads();
  }
  for (int j = 0; j < 4; ++j) {
    const int row = row0 + r + 8 * j;
    if (row < M && col < N) { float* p = &C[(size_t)row * N + col]; *p = beta == 0.0f ? alpha * acc[j] : alpha * acc[j] + beta * *p; }
  }
}
