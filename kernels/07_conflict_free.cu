// 07 · Conflict-free shared memory
// Run:     worklog run conflict_free     or: nvcc -arch=native -DRUNG=7 main.cu && ./a.out 4096
//
// Before:  neighbouring threads read Bs TN floats apart, and the transposing store wrote rows of As
//          that all begin in the same bank: 40 % of the wavefronts were bank conflicts.
// Now:     a thread tile is cut into quads of 4 x 4 that lie ROWS * 4 rows and COLS * 4 columns
//          apart, and each row of As is 4 floats longer.
// Why:     the quads of neighbouring threads are neighbours, so the threads of a warp that read
//          different addresses read different banks: 40 % fewer wavefronts. The time falls by 5 %
//          only: neither shared memory (56 % busy) nor the FP32 cores (58 %) are the limit now.
// Costs:   a thread's elements of C are in several places. The padding takes BK * 16 bytes.
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0, A, B, C % 16 bytes.
// Tile:    BM=128 BN=128 BK=8 TM=8 TN=8
// Launch:  grid N / BN, M / BM   block BM * BN / (TM * TN)
//
// One block computes a BM x BN tile of C. Thread (row, col) owns the quads whose corners are
// (row + 4 * i * ROWS, col + 4 * j * COLS).

template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__(BM * BN / (TM * TN)) sgemm_conflict_free(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  constexpr int THREADS = BM * BN / (TM * TN);
  static_assert(BM * BK % (4 * THREADS) == 0 && BK * BN % (4 * THREADS) == 0,
                "every thread copies the same number of float4");
  static_assert(4 * THREADS % BK == 0 && 4 * THREADS % BN == 0,
                "a copy pass covers whole rows of a tile");
  static_assert(TM % 4 == 0 && TN % 4 == 0, "a thread tile consists of quads of float4");
  // 4 floats of padding: the transposing store then hits 32 banks, and rows stay 16-byte aligned.
  __shared__ __align__(16) float As[BK][BM + 4];
  __shared__ __align__(16) float Bs[BK][BN];
  constexpr int ROWS = BM / TM, COLS = BN / TN;
  const int row = threadIdx.x / COLS * 4;
  const int col = threadIdx.x % COLS * 4;

  // Move to this block's rows of A, columns of B and tile of C.
  A += (size_t)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (size_t)blockIdx.y * BM * N + blockIdx.x * BN;

  // A tile has more elements than the block has threads: each copy pass moves a few of its rows.
  const int a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4) * 4;
  const int b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;
  constexpr int A_ROWS = 4 * THREADS / BK, B_ROWS = 4 * THREADS / BN;

  float acc[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    for (int r = 0; r < BM; r += A_ROWS) {
      const float4 a = *(const float4*)&A[(size_t)(a_row + r) * K + k0 + a_col];
      As[a_col + 0][a_row + r] = a.x;
      As[a_col + 1][a_row + r] = a.y;
      As[a_col + 2][a_row + r] = a.z;
      As[a_col + 3][a_row + r] = a.w;
    }
    for (int r = 0; r < BK; r += B_ROWS) {
      *(float4*)&Bs[b_row + r][b_col] = *(const float4*)&B[(size_t)(k0 + b_row + r) * N + b_col];
    }
    __syncthreads();  // wait: the tile must be complete before any thread reads it

    for (int k = 0; k < BK; ++k) {
      float a[TM], b[TN];
      for (int i = 0; i < TM; i += 4) *(float4*)&a[i] = *(const float4*)&As[k][row + i * ROWS];
      for (int j = 0; j < TN; j += 4) *(float4*)&b[j] = *(const float4*)&Bs[k][col + j * COLS];
      for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; ++j) acc[i][j] += a[i] * b[j];
      }
    }
    __syncthreads();  // wait: faster warps would overwrite the tile others still read
  }

  // With beta == 0, C is not read: it may hold NaN.
  for (int i = 0; i < TM; ++i) {
    for (int j = 0; j < TN; j += 4) {
      const int c_row = row + i / 4 * 4 * ROWS + i % 4;
      float4* c = (float4*)&C[(size_t)c_row * N + col + j * COLS];
      const float4 old = beta == 0.0f ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : *c;
      *c = make_float4(alpha * acc[i][j + 0] + beta * old.x, alpha * acc[i][j + 1] + beta * old.y,
                       alpha * acc[i][j + 2] + beta * old.z, alpha * acc[i][j + 3] + beta * old.w);
    }
  }
}
