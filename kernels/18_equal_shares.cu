// 18 · Equal shares
// Run:     worklog run equal_shares
//          main.cu launches one kernel, and here two launches share a workspace.
//
// Before:  each block computed one tile. At 4096, 512 tiles take 3.9 rounds on the 132 SMs of an
//          H200: in the last one, some SMs have nothing to do.
// Now:     one block per SM, and each takes an equal share of the steps along K of all tiles: whole
//          tiles, and parts of the first and the last one. Sums of parts go to a workspace, and a
//          second launch adds the parts of a tile in the order of K. Tiles are walked in bands of
//          GROUP rows (rasterisation), so that the blocks at work share A and B in L2.
// Why:     every SM is busy to the end, for 1.03 times the speed at most at 2048, 4096 and 8192.
//          What came: 0.89, 0.99 and 1.00 times.
// Costs:   up to two parts per block, written and read once: 35 MB at most, and a launch.
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0, A, B, C % 16 bytes. Needs sm_90a.
// Tile:    BM=128 BN=256 BK=8 WM=64 WN=64 STAGES=8 COPY_REGISTERS=104 MULTIPLY_REGISTERS=200
//          GROUP=8
// Launch:  grid SMS   block BM * BN / (WM * WN) * 32 + 128   shared 99328
//
// One block computes BM x BN tiles of C with one warp per WM x WN tile. Lane (row, col) owns the
// quads whose corners are (row + 4 * i * ROWS, col + 4 * j * COLS).

namespace cutlass { struct KeepOrder; }  // in the symbol, it keeps the order written: rung 11

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
// One arrival, and so many bytes of copies before the phase ends.
__device__ __forceinline__ void expect(unsigned long long& bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&bar)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void wait(unsigned long long& bar, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra AGAIN;\n}" ::"r"(address(&bar)),
      "r"(parity)
      : "memory");
}

// With beta == 0, C is not read: it may hold NaN.
__device__ __forceinline__ void store(float4* c, float4 sum, float alpha, float beta) {
  const float4 old = beta == 0.0f ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : *c;
  *c = make_float4(alpha * sum.x + beta * old.x, alpha * sum.y + beta * old.y,
                   alpha * sum.z + beta * old.z, alpha * sum.w + beta * old.w);
}

// The steps along K of all tiles, one tile after the other, and the share of a block.
struct Steps {
  int per_tile, columns, rows;
  long long all;

  __device__ Steps(int M, int N, int K, int BM, int BN, int BK) {
    per_tile = K / BK;
    columns = N / BN;
    rows = M / BM;
    all = (long long)rows * columns * per_tile;
  }
  __device__ long long first(int block, int blocks) const { return all * block / blocks; }
};

// GROUP rows of tiles are walked column by column, so that the blocks at work share them in L2.
template <int GROUP>
__device__ __forceinline__ void row_and_column(const Steps& steps, int tile, int& row,
                                               int& column) {
  const int first = tile / (GROUP * steps.columns) * GROUP;
  const int rows = min(GROUP, steps.rows - first);
  const int rest = tile - first * steps.columns;
  row = first + rest % rows;
  column = rest / rows;
}

// Whether this is the lane that the warp chose. The compiler knows that it is one.
__device__ __forceinline__ bool elected() {
  int chosen;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.b32 %0, 1, 0, p;\n}"
               : "=r"(chosen));
  return chosen != 0;
}
// One instruction copies a row of a tile.
__device__ __forceinline__ void copy(float* to, const float* from, int bytes,
                                     unsigned long long& bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(address(to)),
      "l"(from), "r"(bytes), "r"(address(&bar))
      : "memory");
}

constexpr int COPIERS = 128;  // a warp group, since setmaxnreg (sm_90a) counts per warp group

template <int BM, int BN, int BK, int WM, int WN, int STAGES, int COPY_REGISTERS,
          int MULTIPLY_REGISTERS, int GROUP, class = cutlass::KeepOrder>
__global__ void __launch_bounds__(BM * BN / (WM * WN) * 32 + COPIERS, 1) sgemm_equal_shares(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C,
    void* workspace) {
  constexpr int ROWS = 8, COLS = 4, TM = WM / ROWS, TN = WN / COLS;
  // Each copying thread moves 4 x 4 elements of A per tile. That takes a part of the warps, and the
  // others copy the next tiles meanwhile.
  constexpr int WARPS = BM * BK / 16 / 32, TEAMS = COPIERS / 32 / WARPS;
  static_assert(BM * BK % 512 == 0 && COPIERS / 32 % WARPS == 0, "whole warps copy a tile of A");
  static_assert(BK % (4 * WARPS) == 0, "its warps copy the same number of rows of B");
  static_assert(TM % 4 == 0 && TN % 4 == 0, "a thread tile consists of quads of float4");
  static_assert(BK % 2 == 0, "the two fragments alternate");
  // 4 floats of padding: eight neighbouring threads then store to 32 banks.
  extern __shared__ __align__(16) float memory[];
  auto As = (float(*)[BK][BM + 4])memory;
  auto Bs = (float(*)[BK][BN])(memory + STAGES * BK * (BM + 4));
  __shared__ unsigned long long full[STAGES], empty[STAGES];

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(full[stage], WARPS);  // a lane of each of its copying warps
      init(empty[stage], BM * BN / (WM * WN));  // a lane of each multiplying warp
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // bulk copies use them, too
  }
  __syncthreads();  // wait: the mbarriers must be initialised before any thread uses them

  const Steps steps(M, N, K, BM, BN, BK);
  const long long first = steps.first(blockIdx.x, gridDim.x);
  const long long last = steps.first(blockIdx.x + 1, gridDim.x);
  if (threadIdx.x < COPIERS) {  // global memory -> shared memory
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COPY_REGISTERS));
    const int team = threadIdx.x / (32 * WARPS), thread = threadIdx.x % (32 * WARPS);
    const int a_row = thread / (BK / 4) * 4, a_col = thread % (BK / 4) * 4;
    constexpr int B_ROWS = BK / WARPS;
    const int b_row = thread / 32 * B_ROWS;
    long long at = first + team;
    int tile = at / steps.per_tile, skipped = at % steps.per_tile;
    const float *a_from, *b_from;
    auto find = [&] {
      int row, column;
      row_and_column<GROUP>(steps, tile, row, column);
      a_from = &A[((size_t)row * BM + a_row) * K + skipped * BK + a_col];
      b_from = &B[((size_t)skipped * BK + b_row) * N + column * BN];
    };
    float a[4][4];
    auto load = [&] {  // a step ahead: its data has time to arrive
      if (at >= last) return;
      for (int i = 0; i < 4; ++i) *(float4*)a[i] = *(const float4*)&a_from[(size_t)i * K];
    };
    find();
    load();
    for (int step = team; at < last; step += TEAMS) {
      const int stage = step % STAGES;
      wait(empty[stage], step / STAGES % 2 ^ 1);  // the first round passes at once
      for (int k = 0; k < 4; ++k) {
        *(float4*)&As[stage][a_col + k][a_row] = make_float4(a[0][k], a[1][k], a[2][k], a[3][k]);
      }
      const float* b = b_from;
      at += TEAMS;
      skipped += TEAMS;
      a_from += TEAMS * BK;
      b_from += (size_t)TEAMS * BK * N;
      if (skipped >= steps.per_tile && at < last) {
        tile += skipped / steps.per_tile;
        skipped %= steps.per_tile;
        find();
      }
      load();
      __syncwarp();
      if (elected()) {
        expect(full[stage], B_ROWS * BN * 4);
        for (int r = 0; r < B_ROWS; ++r) {
          copy(Bs[stage][b_row + r], &b[(size_t)r * N], BN * 4, full[stage]);
        }
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MULTIPLY_REGISTERS));
  const int warp = (threadIdx.x - COPIERS) / 32, lane = threadIdx.x % 32;
  const int row = warp / (BN / WN) * WM + lane / COLS * 4;
  const int col = warp % (BN / WN) * WN + lane % COLS * 4;

  float a[2][TM], b[2][TN], acc[TM][TN];
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

  int step = 0;
  auto release = [&] {  // no lane needs the stage of the step before any more
    __syncwarp();
    if (lane == 0) arrive(empty[(step - 1) % STAGES]);
  };
  for (long long at = first; at < last;) {
    const int tile = at / steps.per_tile, skipped = at % steps.per_tile;
    const int count = min((long long)(steps.per_tile - skipped), last - at);
    for (int i = 0; i < TM; ++i) {
      a[1][i] = 0.0f;
      for (int j = 0; j < TN; ++j) acc[i][j] = b[1][j] = 0.0f;
    }
    for (int s = 0; s < count; ++s, ++step) {
      wait(full[step % STAGES], step / STAGES % 2);
#pragma unroll
      for (int k = 0; k < BK; ++k) {
        read(step % STAGES, k);
        multiply(k + 1);  // the fragments before: at first zeros, then the last ones of a step
        if (k == 1 && s > 0) release();
      }
    }
    multiply(BK - 1);
    release();

    if (count == steps.per_tile) {
      int tile_row, tile_column;
      row_and_column<GROUP>(steps, tile, tile_row, tile_column);
      float* c = C + ((size_t)tile_row * BM + row) * N + tile_column * BN + col;
      for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; j += 4) {
          store((float4*)&c[(size_t)(i / 4 * 4 * ROWS + i % 4) * N + j * COLS],
                make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]), alpha, beta);
        }
      }
    } else {  // a block has two parts at most: of its first tile, and of its last one
      float* part = (float*)workspace + (size_t)(2 * blockIdx.x + (at != first)) * BM * BN;
      for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; j += 4) {
          *(float4*)&part[(row + i / 4 * 4 * ROWS + i % 4) * BN + col + j * COLS] =
              make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
        }
      }
    }
    at += count;
  }
}

// A block adds the parts of a tile that no block computed alone.
template <int BM, int BN, int BK, int SHARES, int GROUP>
__global__ void __launch_bounds__(256) add_parts(int M, int N, int K, float alpha, const float* A,
                                                 const float* B, float beta, float* C,
                                                 void* workspace) {
  const Steps steps(M, N, K, BM, BN, BK);
  const int tile = blockIdx.x;
  const long long begin = (long long)tile * steps.per_tile, end = begin + steps.per_tile;
  int share = begin * SHARES / steps.all;  // or the next one: the share with the tile's first step
  while (steps.first(share + 1, SHARES) <= begin) ++share;
  if (steps.first(share + 1, SHARES) >= end) return;

  int row, column;
  row_and_column<GROUP>(steps, tile, row, column);
  float* c = C + (size_t)row * BM * N + column * BN;
  for (int i = 4 * threadIdx.x; i < BM * BN; i += 4 * 256) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int from = share; from < SHARES && steps.first(from, SHARES) < end; ++from) {
      if (steps.first(from, SHARES) == steps.first(from + 1, SHARES)) continue;
      const int number = 2 * from + (steps.first(from, SHARES) < begin);
      const float4 part = *(const float4*)&((float*)workspace)[(size_t)number * BM * BN + i];
      sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
    }
    store((float4*)&c[(size_t)(i / BN) * N + i % BN], sum, alpha, beta);
  }
}
