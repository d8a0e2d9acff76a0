// No shared memory: the lanes of a warp hold a row of A, and shuffles broadcast each element
// grid: (N + 31) / 32, (M + 3) / 4
// block: 32, 4
// domain: any
#define FULL_MASK 0xffffffff

__global__ void gemm_shfl(int M, int N, int K, float alpha, const float* A, const float* B,
                          float beta, float* C) {
  const int lane = threadIdx.x;
  const int row = blockIdx.y * 4 + threadIdx.y;
  const int col = blockIdx.x * 32 + lane;
  if (row >= M) return;  // a whole warp
  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += 32) {
    const float mine = k0 + lane < K ? A[row * K + k0 + lane] : 0.0f;
    for (int k = 0; k < 32; ++k) {
      const float a = __shfl_sync(FULL_MASK, mine, k);
      if (k0 + k < K && col < N) acc += a * B[(k0 + k) * N + col];
    }
  }
  if (col < N)
    C[row * N + col] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col];
}
