// 02 · Coalesced
// Run:     worklog run coalesced     or: nvcc -arch=native -DRUNG=2 main.cu && ./a.out 4096
//
// Before:  the 32 threads of a warp worked on 32 rows of one column: each read of A and each write
//          of C touched 32 sectors.
// Now:     they work on 32 columns of one row. Only the two lines that compute row and col differ.
// Why:     a warp's read of B and its write of C cover one 128-byte line (4 sectors), and its read
//          of A is one address, which the hardware broadcasts.
// Costs:   nothing. Each thread still loads 2K floats through L1 and L2 for K multiply-adds.
// Domain:  any M, N, K.
// Tile:    BM=32 BN=32
// Launch:  grid (N + BN - 1) / BN, (M + BM - 1) / BM   block BM * BN
//
// One block computes a BM x BN tile of C with BM * BN threads. BN is a multiple of 32, so that a
// warp stays in one row.

template <int BM, int BN>
__global__ void __launch_bounds__(BM * BN) sgemm_coalesced(
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
