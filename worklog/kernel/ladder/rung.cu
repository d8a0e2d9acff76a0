// NUMBER · TITLE
// Run:     worklog run NAME     or: nvcc -arch=native -DRUNG=NUMBER main.cu && ./a.out 4096
//
// Before:  what limits the rung before, and the number that shows it.
// Now:     the one idea that this rung adds.
// Why:     what the idea saves.
// Costs:   what it costs.
// Domain:  any M, N, K.
// Tile:    BM=32 BN=32
// Launch:  grid (N + BN - 1) / BN, (M + BM - 1) / BM   block BM * BN
//
// One block computes a BM x BN tile of C with BM * BN threads. BN is a multiple of 32, so that a
// warp stays in one row.

template <int BM, int BN>
__global__ void __launch_bounds__(BM * BN) sgemm_NAME(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const int row = blockIdx.y * BM + threadIdx.x / BN;
  const int col = blockIdx.x * BN + threadIdx.x % BN;
  if (row >= M || col >= N) return;

  float acc = 0.0f;
  for (int k = 0; k < K; ++k) {
    acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
  }

  // With beta == 0, C is not read: it may hold NaN.
  float* c = &C[(size_t)row * N + col];
  *c = beta == 0.0f ? alpha * acc : alpha * acc + beta * *c;
}
