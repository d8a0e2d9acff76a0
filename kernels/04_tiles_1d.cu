// 04 · 1D thread tiles
// Run:     worklog run tiles_1d     or: nvcc -arch=native -DRUNG=4 main.cu && ./a.out 4096
//
// Before:  each thread computed one element of C: two shared-memory loads per multiply-add.
// Now:     each thread computes a column of TM elements. One float of B, kept in a register, serves
//          TM multiply-adds.
// Why:     shared-memory loads per multiply-add fall from 2 to (TM + 1) / TM.
// Costs:   TM accumulators in registers: an H200's SM holds 1536 threads instead of 2048.
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0.
// Tile:    BM=64 BN=64 BK=8 TM=8
// Launch:  grid N / BN, M / BM   block BM * BN / TM
//
// One block computes a BM x BN tile of C with BM * BN / TM threads. Thread (row, col) owns rows
// row * TM ... row * TM + TM - 1 of column col.

template <int BM, int BN, int BK, int TM>
__global__ void __launch_bounds__(BM * BN / TM) sgemm_tiles_1d(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  constexpr int THREADS = BM * BN / TM;
  static_assert(BM * BK == THREADS && BK * BN == THREADS,
                "each thread copies one element of A and one of B");
  __shared__ float As[BM][BK];
  __shared__ float Bs[BK][BN];
  const int row = threadIdx.x / BN;
  const int col = threadIdx.x % BN;

  // Move to this block's rows of A, columns of B and tile of C.
  A += (size_t)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (size_t)blockIdx.y * BM * N + blockIdx.x * BN;

  // The tiles of A and B are narrower than the block, so the copy maps threads in its own way.
  const int a_row = threadIdx.x / BK, a_col = threadIdx.x % BK;
  const int b_row = threadIdx.x / BN, b_col = threadIdx.x % BN;

  float acc[TM] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    As[a_row][a_col] = A[(size_t)a_row * K + k0 + a_col];
    Bs[b_row][b_col] = B[(size_t)(k0 + b_row) * N + b_col];
    __syncthreads();  // wait: the tile must be complete before any thread reads it

    for (int k = 0; k < BK; ++k) {
      const float b = Bs[k][col];
      for (int i = 0; i < TM; ++i) {
        acc[i] += As[row * TM + i][k] * b;
      }
    }
    __syncthreads();  // wait: faster warps would overwrite the tile others still read
  }

  // With beta == 0, C is not read: it may hold NaN.
  for (int i = 0; i < TM; ++i) {
    float* c = &C[(size_t)(row * TM + i) * N + col];
    *c = beta == 0.0f ? alpha * acc[i] : alpha * acc[i] + beta * *c;
  }
}
