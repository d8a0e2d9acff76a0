// 14 · Asynchronous copies
// Run:     worklog run async_copies     or: nvcc -arch=native -DRUNG=14 main.cu && ./a.out 4096
//
// Before:  each thread fetched its part of the next tile into registers, and stored it to shared
//          memory at the end of this tile.
// Now:     cp.async copies from global to shared memory, past the registers. A is transposed on the
//          way, in copies of 4 bytes. STAGES - 1 tiles are under way at once.
// Why:     no register holds a tile that is under way, no thread waits to store it, and a tile has
//          STAGES - 2 tiles' time to arrive. By itself it is 6 to 7 % slower than rung 13.
// Costs:   shared memory for STAGES tiles. Four times the copies for A. Tiles are 8 deep, not 16.
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0, B, C % 16 bytes. Needs sm_80 or later.
// Tile:    BM=128 BN=128 BK=8 WM=64 WN=64 STAGES=5 MIN_BLOCKS=1
// Launch:  grid N / BN, M / BM   block BM * BN / (WM * WN) * 32
//
// One block computes a BM x BN tile of C with one warp per WM x WN tile. Lane (row, col) owns the
// quads whose corners are (row + 4 * i * ROWS, col + 4 * j * COLS).

namespace cutlass { struct KeepOrder; }  // in the symbol, it keeps the order written: rung 11

template <int BYTES>
__device__ __forceinline__ void copy(float* to, const float* from) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(to);
  if (BYTES == 16) {  // past L1
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(from) : "memory");
  }
}

template <int BM, int BN, int BK, int WM, int WN, int STAGES, int MIN_BLOCKS,
          class = cutlass::KeepOrder>
__global__ void __launch_bounds__(BM * BN / (WM * WN) * 32, MIN_BLOCKS) sgemm_async_copies(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  constexpr int THREADS = BM * BN / (WM * WN) * 32;
  constexpr int ROWS = 8, COLS = 4, TM = WM / ROWS, TN = WN / COLS;
  static_assert(BM * BK % THREADS == 0 && BK * BN % (4 * THREADS) == 0,
                "every thread copies the same number of elements");
  static_assert(THREADS % BK == 0 && 4 * THREADS % BN == 0,
                "a copy pass covers whole rows of a tile");
  static_assert(TM % 4 == 0 && TN % 4 == 0, "a thread tile consists of quads of float4");
  static_assert(BK % 2 == 0, "the two fragments alternate");
  // 4 floats of padding: the transposing copies then hit 32 banks, and rows stay 16-byte aligned.
  __shared__ __align__(16) float As[STAGES][BK][BM + 4];
  __shared__ __align__(16) float Bs[STAGES][BK][BN];

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = warp / (BN / WN) * WM + lane / COLS * 4;
  const int col = warp % (BN / WN) * WN + lane % COLS * 4;

  // Move to this block's rows of A, columns of B and tile of C.
  A += (size_t)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (size_t)blockIdx.y * BM * N + blockIdx.x * BN;

  // A tile has more elements than the block has threads: each copy pass moves a few of its rows.
  const int a_row = threadIdx.x / BK, a_col = threadIdx.x % BK;
  const int b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;
  constexpr int A_ROWS = THREADS / BK, B_ROWS = 4 * THREADS / BN;

  auto fetch = [&](int k0, int stage) {  // global memory -> shared memory
    for (int r = 0; r < BM; r += A_ROWS) {
      copy<4>(&As[stage][a_col][a_row + r], &A[(size_t)(a_row + r) * K + k0 + a_col]);
    }
    for (int r = 0; r < BK; r += B_ROWS) {
      copy<16>(&Bs[stage][b_row + r][b_col], &B[(size_t)(k0 + b_row + r) * N + b_col]);
    }
  };
  auto commit = [] { asm volatile("cp.async.commit_group;" ::: "memory"); };
  auto wait = [] { asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory"); };

  float a[2][TM], b[2][TN];
  auto read = [&](int stage, int k) {  // shared memory -> the fragments for k
    const float *a_k = &As[stage][k][row], *b_k = &Bs[stage][k][col];
    for (int i = 0; i < TM; i += 4) *(float4*)&a[k % 2][i] = *(const float4*)&a_k[i * ROWS];
    for (int j = 0; j < TN; j += 4) *(float4*)&b[k % 2][j] = *(const float4*)&b_k[j * COLS];
  };

  float acc[TM][TN] = {};
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    if (stage * BK < K) fetch(stage * BK, stage);
    commit();  // of nothing, too: then the newest STAGES - 2 groups are those behind the next tile
  }
  wait();
  __syncthreads();  // wait: the first tile must be complete before any thread reads it
  read(0, 0);
  for (int k0 = 0, stage = 0; k0 < K; k0 += BK) {
    // Into the stage of the tile before, which every thread has left at the last barrier.
    if (k0 + (STAGES - 1) * BK < K) fetch(k0 + (STAGES - 1) * BK, (stage + STAGES - 1) % STAGES);
    commit();

#pragma unroll
    for (int k = 0; k < BK; ++k) {
      if (k == BK - 1) {
        stage = (stage + 1) % STAGES;
        wait();
        __syncthreads();  // wait: the next tile must be complete, and this one no longer in use
      }
      read(stage, (k + 1) % BK);
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
