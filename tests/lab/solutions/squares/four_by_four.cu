// judged: right
// 4 x 4 elements per thread, and fragments as float4
// grid: N / 64, M / 64
// block: 16, 16
// domain: M % 64 == 0, N % 64 == 0, K % 16 == 0
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  __shared__ __align__(16) float As[16][64 + 4], Bs[16][64];
  const int y = threadIdx.y, x = threadIdx.x, t = 16 * y + x;
  const int row = blockIdx.y * 64, col = blockIdx.x * 64;
  float acc[4][4] = {};
  for (int k0 = 0; k0 < K; k0 += 16) {
    for (int i = t; i < 1024; i += 256) {
      As[i % 16][i / 16] = A[(size_t)(row + i / 16) * K + k0 + i % 16];
      Bs[i / 64][i % 64] = B[(size_t)(k0 + i / 64) * N + col + i % 64];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      const float4 a4 = *(const float4*)&As[k][4 * y], b4 = *(const float4*)&Bs[k][4 * x];
      const float a[4] = {a4.x, a4.y, a4.z, a4.w}, b[4] = {b4.x, b4.y, b4.z, b4.w};
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) acc[i][j] += a[i] * b[j];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const size_t c = (size_t)(row + 4 * y + i) * N + col + 4 * x + j;
      C[c] = beta == 0.0f ? alpha * acc[i][j] : alpha * acc[i][j] + beta * C[c];
    }
  }
}
