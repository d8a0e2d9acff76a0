// 10 · Pipelined fragments
// Run:     worklog run pipelined     or: nvcc -arch=native -DRUNG=10 main.cu && ./a.out 4096
//
// Before:  the multiply-adds of step k needed the fragments a and b of step k: they waited for
//          shared memory, most of all for the first fragments of a tile, right after the barrier.
// Now:     the fragments of step k + 1 are read before the multiply-adds of step k. The last step
//          of a tile reads the first fragments of the next tile.
// Why:     the latency of shared memory is hidden by TM * TN multiply-adds, also at the barrier: at
//          4096, 7 to 8 % faster than autotuned with this tile, 128 x 128. But at 128 x 256, the
//          tile of autotuned, it takes 11 % longer. Multiply-adds that read two operands from one
//          register bank go with it on sm_90: from 16.7 to 14.5 %, and from 14.7 to 18.8 %.
// Costs:   registers for a second pair of fragments, up to TM + TN per thread. None spills.
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0, A, B, C % 16 bytes.
// Tile:    BM=128 BN=128 BK=8 TM=8 TN=16 MIN_BLOCKS=2
// Launch:  grid N / BN, M / BM   block BM * BN / (TM * TN)
//
// One block computes a BM x BN tile of C. Thread (row, col) owns the quads whose corners are
// (row + 4 * i * ROWS, col + 4 * j * COLS).

template <int BM, int BN, int BK, int TM, int TN, int MIN_BLOCKS>
__global__ void __launch_bounds__(BM * BN / (TM * TN), MIN_BLOCKS) sgemm_pipelined(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  constexpr int THREADS = BM * BN / (TM * TN);
  static_assert(BM * BK % (4 * THREADS) == 0 && BK * BN % (4 * THREADS) == 0,
                "every thread copies the same number of float4");
  static_assert(4 * THREADS % BK == 0 && 4 * THREADS % BN == 0,
                "a copy pass covers whole rows of a tile");
  static_assert(TM % 4 == 0 && TN % 4 == 0, "a thread tile consists of quads of float4");
  static_assert(BK % 2 == 0, "the two fragments alternate");
  // 4 floats of padding: the transposing store then hits 32 banks, and rows stay 16-byte aligned.
  __shared__ __align__(16) float As[2][BK][BM + 4];
  __shared__ __align__(16) float Bs[2][BK][BN];
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

  float4 a_next[BM / A_ROWS], b_next[BK / B_ROWS];
  auto fetch = [&](int k0) {  // global memory -> registers
    for (int r = 0; r < BM; r += A_ROWS) {
      a_next[r / A_ROWS] = *(const float4*)&A[(size_t)(a_row + r) * K + k0 + a_col];
    }
    for (int r = 0; r < BK; r += B_ROWS) {
      b_next[r / B_ROWS] = *(const float4*)&B[(size_t)(k0 + b_row + r) * N + b_col];
    }
  };
  auto store = [&](int buffer) {  // registers -> shared memory
    for (int r = 0; r < BM; r += A_ROWS) {
      const float4 a = a_next[r / A_ROWS];
      As[buffer][a_col + 0][a_row + r] = a.x;
      As[buffer][a_col + 1][a_row + r] = a.y;
      As[buffer][a_col + 2][a_row + r] = a.z;
      As[buffer][a_col + 3][a_row + r] = a.w;
    }
    for (int r = 0; r < BK; r += B_ROWS) {
      *(float4*)&Bs[buffer][b_row + r][b_col] = b_next[r / B_ROWS];
    }
  };

  float a[2][TM], b[2][TN];
  auto read = [&](int buffer, int k) {  // shared memory -> the fragments for k
    const float *a_k = &As[buffer][k][row], *b_k = &Bs[buffer][k][col];
    for (int i = 0; i < TM; i += 4) *(float4*)&a[k % 2][i] = *(const float4*)&a_k[i * ROWS];
    for (int j = 0; j < TN; j += 4) *(float4*)&b[k % 2][j] = *(const float4*)&b_k[j * COLS];
  };

  float acc[TM][TN] = {};
  fetch(0);
  store(0);
  __syncthreads();  // wait: the first tile must be complete before any thread reads it
  read(0, 0);
  for (int k0 = 0, buffer = 0; k0 < K; k0 += BK) {
    if (k0 + BK < K) fetch(k0 + BK);

#pragma unroll  // with two buffers, ptxas unrolls this loop only in part by itself
    for (int k = 0; k < BK; ++k) {
      if (k == BK - 1) {
        buffer ^= 1;
        if (k0 + BK < K) store(buffer);
        __syncthreads();  // wait: the next tile must be complete, and this one no longer in use
      }
      read(buffer, (k + 1) % BK);
      for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; ++j) acc[i][j] += a[k % 2][i] * b[k % 2][j];
      }
    }
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
