// 05 · 2D thread tiles
// Run:     worklog run tiles_2d     or: nvcc -arch=native -DRUNG=5 main.cu && ./a.out 4096
//
// Before:  each thread computed a column of TM elements: TM + 1 shared-memory loads per TM
//          multiply-adds.
// Now:     each thread computes a TM x TN tile: TM + TN loads per TM * TN multiply-adds.
// Why:     shared-memory loads per multiply-add fall from (TM + 1) / TM to
//          (TM + TN) / (TM * TN), from 1.13 to 0.25. But bank conflicts come with them. In the
//          block of tiles_1d, 64 x 64, wavefronts rise from 0.66 to 0.78, and nothing is gained.
//          In 128 x 128 they fall to 0.52, 48 % of them conflicts: 1.35 times as fast.
// Costs:   TM * TN accumulators in registers: 16 warps per SM instead of 48. Rung 8 hides latency.
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0.
// Tile:    BM=128 BN=128 BK=8 TM=8 TN=8
// Launch:  grid N / BN, M / BM   block BM * BN / (TM * TN)
//
// One block computes a BM x BN tile of C. Thread (row, col) owns the TM x TN tile whose corner is
// (row * TM, col * TN).

template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__(BM * BN / (TM * TN)) sgemm_tiles_2d(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  constexpr int THREADS = BM * BN / (TM * TN);
  static_assert(BM * BK % THREADS == 0 && BK * BN % THREADS == 0,
                "every thread copies the same number of elements");
  static_assert(THREADS % BK == 0 && THREADS % BN == 0, "a copy pass covers whole rows of a tile");
  __shared__ float As[BM][BK];
  __shared__ float Bs[BK][BN];
  const int row = threadIdx.x / (BN / TN);
  const int col = threadIdx.x % (BN / TN);

  // Move to this block's rows of A, columns of B and tile of C.
  A += (size_t)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (size_t)blockIdx.y * BM * N + blockIdx.x * BN;

  // A tile has more elements than the block has threads: each copy pass moves a few of its rows.
  const int a_row = threadIdx.x / BK, a_col = threadIdx.x % BK;
  const int b_row = threadIdx.x / BN, b_col = threadIdx.x % BN;
  constexpr int A_ROWS = THREADS / BK, B_ROWS = THREADS / BN;

  float acc[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    for (int r = 0; r < BM; r += A_ROWS) {
      As[a_row + r][a_col] = A[(size_t)(a_row + r) * K + k0 + a_col];
    }
    for (int r = 0; r < BK; r += B_ROWS) {
      Bs[b_row + r][b_col] = B[(size_t)(k0 + b_row + r) * N + b_col];
    }
    __syncthreads();  // wait: the tile must be complete before any thread reads it

    for (int k = 0; k < BK; ++k) {
      float a[TM], b[TN];
      for (int i = 0; i < TM; ++i) a[i] = As[row * TM + i][k];
      for (int j = 0; j < TN; ++j) b[j] = Bs[k][col * TN + j];
      for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; ++j) acc[i][j] += a[i] * b[j];
      }
    }
    __syncthreads();  // wait: faster warps would overwrite the tile others still read
  }

  // With beta == 0, C is not read: it may hold NaN.
  for (int i = 0; i < TM; ++i) {
    for (int j = 0; j < TN; ++j) {
      float* c = &C[(size_t)(row * TM + i) * N + col * TN + j];
      *c = beta == 0.0f ? alpha * acc[i][j] : alpha * acc[i][j] + beta * *c;
    }
  }
}
