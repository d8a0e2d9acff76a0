// 11 · Register banks
// Run:     worklog run register_banks     or: nvcc -arch=native -DRUNG=11 main.cu && ./a.out 4096
//
// Before:  the assembler chose the order of the multiply-adds.
// Now:     they are written in 2 x 2 zigzags, in which each one shares an operand with the one
//          before. The word "cutlass" in the kernel's symbol makes the assembler keep this order.
// Why:     a multiply-add has three register operands, the register file two banks (sm_70: arXiv
//          1804.06826; sm_75, sm_86: 2503.20481; an H200's times fit). An operand still in a reuse
//          cache isn't read: 1.5 reads per multiply-add instead of 2.1, 1.13 times as fast at 4096.
//          (The assembler also fetches a tile 243 multiply-adds before its store, rung 10 one.)
// Costs:   255 registers per thread, the maximum. The rule about "cutlass" is undocumented
//          (github.com/triton-lang/triton/pull/7298 describes it): a later assembler may drop it.
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0, A, B, C % 16 bytes.
// Tile:    BM=128 BN=128 BK=8 TM=8 TN=16 MIN_BLOCKS=2
// Launch:  grid N / BN, M / BM   block BM * BN / (TM * TN)
//
// One block computes a BM x BN tile of C. Thread (row, col) owns the quads whose corners are
// (row + 4 * i * ROWS, col + 4 * j * COLS).

namespace cutlass { struct KeepOrder; }

template <int BM, int BN, int BK, int TM, int TN, int MIN_BLOCKS, class = cutlass::KeepOrder>
__global__ void __launch_bounds__(BM * BN / (TM * TN), MIN_BLOCKS) sgemm_register_banks(
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
      for (int j = 0; j < TN; j += 2) {
        for (int step = 0; step < TM; step += 2) {
          const int i = j % 4 == 0 ? step : TM - 2 - step;
          acc[i][j] += a[k % 2][i] * b[k % 2][j];
          acc[i + 1][j] += a[k % 2][i + 1] * b[k % 2][j];
          acc[i + 1][j + 1] += a[k % 2][i + 1] * b[k % 2][j + 1];
          acc[i][j + 1] += a[k % 2][i] * b[k % 2][j + 1];
        }
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
