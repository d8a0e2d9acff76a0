// 15 · Full and empty
// Run:     worklog run barriers     or: nvcc -arch=native -DRUNG=15 main.cu && ./a.out 4096
//
// Before:  all threads of a block waited for each other once per tile.
// Now:     each stage has two mbarriers. Its copies arrive at `full`, for which a warp waits before
//          it reads the stage; and warps that have left it arrive at `empty`, for which a warp
//          waits before it copies into the stage again.
// Why:     a warp that is early doesn't wait for one that is late, unless it is a tile ahead: then
//          the stage is in use. 1.02 times as fast at 2048 and 4096, 0.99 times at 8192.
// Costs:   to arrive, to wait and for addresses: about 85 instructions more per warp and tile.
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0, B, C % 16 bytes. Needs sm_90 or later.
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

__device__ __forceinline__ unsigned address(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void init(unsigned long long& bar, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address(&bar)), "r"(count) : "memory");
}
__device__ __forceinline__ void arrive(unsigned long long& bar) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(
                   address(&bar))
               : "memory");
}
// This thread arrives once its copies so far are complete.
__device__ __forceinline__ void arrive_after_copies(unsigned long long& bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address(&bar)) : "memory");
}
__device__ __forceinline__ void wait(unsigned long long& bar, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra AGAIN;\n}" ::"r"(address(&bar)),
      "r"(parity)
      : "memory");
}

template <int BM, int BN, int BK, int WM, int WN, int STAGES, int MIN_BLOCKS,
          class = cutlass::KeepOrder>
__global__ void __launch_bounds__(BM * BN / (WM * WN) * 32, MIN_BLOCKS) sgemm_barriers(
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
  __shared__ unsigned long long full[STAGES], empty[STAGES];

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = warp / (BN / WN) * WM + lane / COLS * 4;
  const int col = warp % (BN / WN) * WN + lane % COLS * 4;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(full[stage], THREADS);
      init(empty[stage], THREADS / 32);  // a lane of each warp
    }
  }
  __syncthreads();  // wait: the mbarriers must be initialised before any thread uses them

  // Move to this block's rows of A, columns of B and tile of C.
  A += (size_t)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (size_t)blockIdx.y * BM * N + blockIdx.x * BN;

  // A tile has more elements than the block has threads: each copy pass moves a few of its rows.
  const int a_row = threadIdx.x / BK, a_col = threadIdx.x % BK;
  const int b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;
  constexpr int A_ROWS = THREADS / BK, B_ROWS = 4 * THREADS / BN;

  auto fetch = [&](int tile) {  // global memory -> shared memory
    const int k0 = tile * BK, stage = tile % STAGES;
    wait(empty[stage], tile / STAGES % 2 ^ 1);  // the first round passes at once
    for (int r = 0; r < BM; r += A_ROWS) {
      copy<4>(&As[stage][a_col][a_row + r], &A[(size_t)(a_row + r) * K + k0 + a_col]);
    }
    for (int r = 0; r < BK; r += B_ROWS) {
      copy<16>(&Bs[stage][b_row + r][b_col], &B[(size_t)(k0 + b_row + r) * N + b_col]);
    }
    arrive_after_copies(full[stage]);
  };

  float a[2][TM] = {}, b[2][TN] = {}, acc[TM][TN] = {};
  auto read = [&](int stage, int k) {  // shared memory -> the fragments for k
    const float *a_k = &As[stage][k][row], *b_k = &Bs[stage][k][col];
    for (int i = 0; i < TM; i += 4) *(float4*)&a[k % 2][i] = *(const float4*)&a_k[i * ROWS];
    for (int j = 0; j < TN; j += 4) *(float4*)&b[k % 2][j] = *(const float4*)&b_k[j * COLS];
  };
  auto multiply = [&](int k) {
    for (int j = 0; j < TN; j += 2) {
      for (int step = 0; step < TM; step += 2) {
        const int i = j % 4 == 0 ? step : TM - 2 - step;
        acc[i][j] += a[k % 2][i] * b[k % 2][j];
        acc[i + 1][j] += a[k % 2][i + 1] * b[k % 2][j];
        acc[i + 1][j + 1] += a[k % 2][i + 1] * b[k % 2][j + 1];
        acc[i][j + 1] += a[k % 2][i] * b[k % 2][j + 1];
      }
    }
  };

  constexpr int AHEAD = STAGES - 2;  // tiles: of the other two stages, one is read, and one left
  const int tiles = K / BK;
  for (int tile = 0; tile < AHEAD && tile < tiles; ++tile) fetch(tile);
  for (int tile = 0; tile < tiles; ++tile) {
    wait(full[tile % STAGES], tile / STAGES % 2);
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      read(tile % STAGES, k);
      multiply(k + 1);  // the fragments before: at first zeros, then the last ones of a tile
      if (k == 0) {  // no lane needs the tile before any more
        __syncwarp();
        if (tile > 0 && lane == 0) arrive(empty[(tile - 1) % STAGES]);
        if (tile + AHEAD < tiles) fetch(tile + AHEAD);
      }
    }
  }
  multiply(BK - 1);

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
