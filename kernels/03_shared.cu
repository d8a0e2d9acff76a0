// 03 · Shared-memory tiles
// Run:     worklog run shared     or: nvcc -arch=native -DRUNG=3 main.cu && ./a.out 4096
//
// Before:  each thread loaded its own row of A and column of B from global memory: 2K floats for K
//          multiply-adds.
// Now:     the block copies a BM x BK tile of A and a BK x BN tile of B into shared memory, and all
//          its threads read the tiles.
// Why:     a loaded float serves BN (or BM) threads: per multiply-add of a warp, the lookups
//          of lines in L1 fall from 2 to 0.06. At 4096, L2 sends no less: L1 had caught it.
// Costs:   two shared-memory loads per multiply-add and two barriers per tile. There are no bounds
//          checks any more: M, N and K must be whole tiles.
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0.
// Tile:    BM=32 BN=32 BK=32
// Launch:  grid N / BN, M / BM   block BM * BN
//
// One block computes a BM x BN tile of C with BM * BN threads, one element each.

template <int BM, int BN, int BK>
__global__ void __launch_bounds__(BM * BN) sgemm_shared(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  static_assert(BK == BN && BK == BM, "each thread copies one element of A and one of B");
  __shared__ float As[BM][BK];
  __shared__ float Bs[BK][BN];
  const int row = threadIdx.x / BN;
  const int col = threadIdx.x % BN;

  // Move to this block's rows of A, columns of B and tile of C.
  A += (size_t)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (size_t)blockIdx.y * BM * N + blockIdx.x * BN;

  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += BK) {
    As[row][col] = A[(size_t)row * K + k0 + col];
    Bs[row][col] = B[(size_t)(k0 + row) * N + col];
    __syncthreads();  // wait: the tile must be complete before any thread reads it

    for (int k = 0; k < BK; ++k) {
      acc += As[row][k] * Bs[k][col];
    }
    __syncthreads();  // wait: faster warps would overwrite the tile others still read
  }

  // With beta == 0, C is not read: it may hold NaN.
  float* c = &C[(size_t)row * N + col];
  *c = beta == 0.0f ? alpha * acc : alpha * acc + beta * *c;
}
