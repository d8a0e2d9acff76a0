// 01 · Naive
// Run:     worklog run naive     or: nvcc -arch=native -DRUNG=1 main.cu && ./a.out 4096
//
// Now:     each thread computes one element of C: the dot product of a row of A and a column of B,
//          read from global memory.
// Why:     this is the definition. Every later rung computes the same.
// Costs:   threadIdx.x walks down the rows, so the 32 threads of a warp read 32 rows of A, K floats
//          apart, and write 32 rows of C: 32 sectors of 32 bytes, of which 4 bytes each are used.
//          (All read one float of B.) L1 has 99 % of the sectors at 4096: their lookups take time.
// Domain:  any M, N, K.
// Tile:    BM=32 BN=32
// Launch:  grid (N + BN - 1) / BN, (M + BM - 1) / BM   block BM * BN
//
// One block computes a BM x BN tile of C with BM * BN threads. In every rung, blockIdx.x walks the
// columns of C and blockIdx.y the rows. What the headers say was measured, was on an H200 (sm_90).

template <int BM, int BN>
__global__ void __launch_bounds__(BM * BN) sgemm_naive(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const int row = blockIdx.y * BM + threadIdx.x % BM;
  const int col = blockIdx.x * BN + threadIdx.x / BM;
  if (row >= M || col >= N) return;

  float acc = 0.0f;
  for (int k = 0; k < K; ++k) {
    acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
  }

  // With beta == 0, C is not read: it may hold NaN.
  float* c = &C[(size_t)row * N + col];
  *c = beta == 0.0f ? alpha * acc : alpha * acc + beta * *c;
}
