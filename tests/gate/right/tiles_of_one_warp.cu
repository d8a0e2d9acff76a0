// Each warp has its own tiles and waits with __syncwarp
// grid: (N + 31) / 32, (M + 15) / 16
// block: 32, 4
// domain: any
struct WarpTile {
  float a[4][32];
  float b[32][32];
};

__global__ void gemm_warps(int M, int N, int K, float alpha, const float* A, const float* B,
                           float beta, float* C) {
  __shared__ WarpTile tiles[4];
  WarpTile& mine = tiles[threadIdx.y];
  const int lane = threadIdx.x, row = (blockIdx.y * 4 + threadIdx.y) * 4,
            col = blockIdx.x * 32 + lane;
  float acc[4] = {};
  for (int k0 = 0; k0 < K; k0 += 32) {
    for (int i = 0; i < 4; ++i)
      mine.a[i][lane] = row + i < M && k0 + lane < K ? A[(row + i) * K + k0 + lane] : 0.0f;
    for (int k = 0; k < 32; ++k)
      mine.b[k][lane] = k0 + k < K && col < N ? B[(k0 + k) * N + col] : 0.0f;
    __syncwarp();
    for (int k = 0; k < 32; ++k)
      for (int i = 0; i < 4; ++i) acc[i] += mine.a[i][k] * mine.b[k][lane];
    __syncwarp();
  }
  for (int i = 0; i < 4; ++i) {
    if (row + i < M && col < N) {
      float* c = &C[(row + i) * N + col];
      *c = beta == 0.0f ? alpha * acc[i] : alpha * acc[i] + beta * *c;
    }
  }
}
