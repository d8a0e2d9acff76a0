// 07 · Autotuned
//
// Before:  the tile was the A6000's: 128 x 128 x 8 with 8 x 8 a thread. A block copied, waited, computed, waited, and a thread's patch was one piece.
// Now:     the body takes any tile, so that a search can choose it: the patch is cut into quads of 4 columns (or rows) that lie BN / TN * 4 apart, the
//          next tile travels to registers while this one is computed, and two buffers in shared memory leave one barrier a tile.
// Why:     quads of neighbouring threads lie side by side, so a warp reads shared memory without bank conflicts, whatever TN is. The flight from
//          global memory hides behind BK * TM * TN multiply-adds. With 8 x 16 a thread, 24 floats read serve 128 multiply-adds, not 16 for 64.
// Costs:   over 200 registers a thread: one block of 256 threads fills an SM. Sizes below about 2048 have too few such tiles for 132 SMs.
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0.
//
// One block computes a BM x BN tile of C; MIN_BLOCKS of them must fit an SM. Thread (row, col) owns quads (row + i * BM / TM, col + j * BN / TN).

template <int BM, int BN, int BK, int TM, int TN, int MIN_BLOCKS>
__global__ void __launch_bounds__(BM * BN / (TM * TN), MIN_BLOCKS) sgemm_autotuned(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  constexpr int THREADS = BM * BN / (TM * TN);
  static_assert(BM * BK % (4 * THREADS) == 0 && BK * BN % (4 * THREADS) == 0, "every thread copies the same number of float4");
  static_assert(4 * THREADS % BK == 0 && 4 * THREADS % BN == 0, "a pass of the copy covers whole rows of a tile");
  static_assert(TM % 4 == 0 && TN % 4 == 0, "a patch is made of quads of float4");
  __shared__ __align__(16) float As[2][BK][BM + 4];  // padded: the transposing store hits different banks, and rows stay 16-byte aligned
  __shared__ __align__(16) float Bs[2][BK][BN];
  constexpr int ROWS = BM / TM, COLS = BN / TN;
  const int row = threadIdx.x / COLS;
  const int col = threadIdx.x % COLS;

  // Move to this block's rows of A, columns of B and tile of C.
  A += (size_t)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (size_t)blockIdx.y * BM * N + blockIdx.x * BN;

  // The tiles hold more elements than the block has threads: copying takes several passes of a few rows each.
  const int a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4) * 4;
  const int b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;
  constexpr int A_ROWS = 4 * THREADS / BK, B_ROWS = 4 * THREADS / BN;

  float4 a_next[BM / A_ROWS], b_next[BK / B_ROWS];
  auto fetch = [&](int k0) {  // global memory -> registers
    for (int r = 0; r < BM; r += A_ROWS) a_next[r / A_ROWS] = *(const float4*)&A[(size_t)(a_row + r) * K + k0 + a_col];
    for (int r = 0; r < BK; r += B_ROWS) b_next[r / B_ROWS] = *(const float4*)&B[(size_t)(k0 + b_row + r) * N + b_col];
  };
  auto store = [&](int buffer) {  // registers -> shared memory
    for (int r = 0; r < BM; r += A_ROWS) {
      const float4 a = a_next[r / A_ROWS];
      As[buffer][a_col + 0][a_row + r] = a.x;
      As[buffer][a_col + 1][a_row + r] = a.y;
      As[buffer][a_col + 2][a_row + r] = a.z;
      As[buffer][a_col + 3][a_row + r] = a.w;
    }
    for (int r = 0; r < BK; r += B_ROWS) *(float4*)&Bs[buffer][b_row + r][b_col] = b_next[r / B_ROWS];
  };

  float acc[TM][TN] = {};
  fetch(0);
  store(0);
  __syncthreads();
  for (int k0 = 0, buffer = 0; k0 < K; k0 += BK, buffer ^= 1) {
    if (k0 + BK < K) fetch(k0 + BK);

#pragma unroll
    for (int k = 0; k < BK; ++k) {
      float a[TM], b[TN];
      for (int i = 0; i < TM; i += 4) *(float4*)&a[i] = *(const float4*)&As[buffer][k][row * 4 + i * ROWS];
      for (int j = 0; j < TN; j += 4) *(float4*)&b[j] = *(const float4*)&Bs[buffer][k][col * 4 + j * COLS];
      for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; ++j) acc[i][j] += a[i] * b[j];
      }
    }

    if (k0 + BK < K) store(buffer ^ 1);
    __syncthreads();  // the next tile is complete, and nobody reads this one any more
  }

  // With beta == 0, C is not read: it may hold anything, NaN included.
  for (int i = 0; i < TM; ++i) {
    for (int j = 0; j < TN; j += 4) {
      float4* c = (float4*)&C[(size_t)(row * 4 + i / 4 * 4 * ROWS + i % 4) * N + col * 4 + j * COLS];
      const float4 old = beta == 0.0f ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : *c;
      *c = make_float4(alpha * acc[i][j + 0] + beta * old.x, alpha * acc[i][j + 1] + beta * old.y,
                       alpha * acc[i][j + 2] + beta * old.z, alpha * acc[i][j + 3] + beta * old.w);
    }
  }
}
