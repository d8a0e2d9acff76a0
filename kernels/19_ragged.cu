// 19 · Ragged edges
// Run:     worklog run ragged
//          main.cu launches one kernel, and here up to three launches share a workspace.
//
// Before:  M, N and K had to be multiples of the tile's sizes, and rows of A and B had to begin at
//          multiples of 16 bytes.
// Now:     any M, N, K and any alignment. Copying threads read the last row of A instead of those
//          beyond it, copy the columns of B that exist, and store zeros for what is beyond K. If
//          rows don't begin at multiples of 16 bytes, then a first launch copies A or B to the
//          workspace, with rows of whole 16 bytes.
// Why:     the multiplying warps' loop over the steps has the same source. But this
//          rung is 4 % slower than rung 18 at 4096 and 8192. At 4096, FP32 cores: 81, not 85 %.
// Costs:   tiles at the edge take as long as whole ones. A copied matrix is read and written once
//          more, and that takes a launch. If rows of C don't begin at multiples of 16 bytes, then
//          its tiles are stored by way of shared memory, four bytes per thread at a time.
// Domain:  any M, N, K, A, B % 16 bytes. Needs sm_90a.
// Tile:    BM=128 BN=256 BK=8 WM=64 WN=64 STAGES=8 COPY_REGISTERS=104 MULTIPLY_REGISTERS=200
//          GROUP=8 MIN_BLOCKS=1
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
__device__ __forceinline__ void store(float* c, float sum, float alpha, float beta) {
  *c = alpha * sum + beta * (beta == 0.0f ? 0.0f : *c);
}
// Whether each four columns of C are an aligned float4.
__device__ __forceinline__ bool quads_of(const float* C, int N) {
  return N % 4 == 0 && (size_t)C % 16 == 0;
}

__device__ __forceinline__ int ceil_div(int x, int y) { return x / y + (x % y != 0); }
__device__ __forceinline__ size_t pitch_of(int columns) { return ((size_t)columns + 3) / 4 * 4; }

// The workspace: the number of shares in its first 16 bytes; copies of A and of B, NULL for one
// that needs none; then two parts per block.
struct Workspace {
  float *a = NULL, *b = NULL, *parts;

  __device__ Workspace(void* start, int M, int N, int K, const float* A, const float* B) {
    parts = (float*)start + 4;
    if (K % 4 != 0 || (size_t)A % 16 != 0) a = parts, parts += M * pitch_of(K);
    if (N % 4 != 0 || (size_t)B % 16 != 0) b = parts, parts += K * pitch_of(N);
  }
};

// The steps along K of all tiles, one tile after the other, and the share of each block. The last
// step of a tile may be a short one. BLAS: with alpha == 0, A and B are not read. Then there is one
// step of zeros.
struct Steps {
  int length, per_tile, columns, rows;
  long long all, per_share;
  int longer;  // shares at first that have one step more

  __device__ Steps(int M, int N, int K, float alpha, int BM, int BN, int BK, int shares) {
    length = alpha == 0.0f ? 0 : K;
    per_tile = max(1, ceil_div(length, BK));
    columns = ceil_div(N, BN);
    rows = ceil_div(M, BM);
    all = (long long)rows * columns * per_tile;
    per_share = all / shares;
    longer = (int)(all - per_share * shares);
  }
  // Of a share; of the one behind the last share, the number of all steps.
  __device__ long long first(int share) const { return per_share * share + min(share, longer); }
  // With this step.
  __device__ int share(long long step) const {
    const long long by_longer = (per_share + 1) * longer;
    return (int)(step < by_longer ? step / (per_share + 1)
                                  : longer + (step - by_longer) / per_share);
  }
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
          int MULTIPLY_REGISTERS, int GROUP, int MIN_BLOCKS, class = cutlass::KeepOrder>
__global__ void __launch_bounds__(BM * BN / (WM * WN) * 32 + COPIERS, MIN_BLOCKS) sgemm_ragged(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C,
    void* workspace) {
  constexpr int ROWS = 8, COLS = 4, TM = WM / ROWS, TN = WN / COLS;
  // Each copying thread moves 4 x 4 elements of A per tile. That takes a part of the warps, and the
  // others copy the next tiles meanwhile.
  constexpr int WARPS = BM * BK / 16 / 32, TEAMS = COPIERS / 32 / WARPS;
  static_assert(BM * BK % 512 == 0 && COPIERS / 32 % WARPS == 0, "whole warps copy a tile of A");
  static_assert(BK % WARPS == 0, "its warps copy the same number of rows of B");
  static_assert(TM % 4 == 0 && TN % 4 == 0, "a thread tile consists of quads of float4");
  static_assert(BK % 2 == 0, "the two fragments alternate");
  // 4 floats of padding: eight neighbouring threads then store to 32 banks.
  extern __shared__ __align__(16) float memory[];
  auto As = (float(*)[BK][BM + 4])memory;
  auto Bs = (float(*)[BK][BN])(memory + STAGES * BK * (BM + 4));
  __shared__ unsigned long long full[STAGES], empty[STAGES];
  __shared__ __align__(16) float lines[BM * BN / (WM * WN)][ROWS][WN + 4];  // of C

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(full[stage], WARPS);  // a lane of each of its copying warps
      init(empty[stage], BM * BN / (WM * WN));  // a lane of each multiplying warp
    }
    if (blockIdx.x == 0 && workspace != NULL) *(int*)workspace = gridDim.x;
  }
  // Columns beyond N are not copied. They reach only sums that are not stored.
  for (int i = 4 * threadIdx.x; i < STAGES * BK * BN && N % BN != 0; i += 4 * blockDim.x) {
    *(float4*)&Bs[0][0][i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // bulk copies use both, too
  __syncthreads();  // wait: the mbarriers must be initialised before any thread uses them

  const Workspace work(workspace, M, N, K, A, B);
  const Steps steps(M, N, K, alpha, BM, BN, BK, gridDim.x);
  const long long first = steps.first(blockIdx.x), last = steps.first(blockIdx.x + 1);
  if (threadIdx.x < COPIERS) {  // global memory -> shared memory
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COPY_REGISTERS));
    const int team = threadIdx.x / (32 * WARPS), thread = threadIdx.x % (32 * WARPS);
    const int a_row = thread / (BK / 4) * 4, a_col = thread % (BK / 4) * 4;
    constexpr int B_ROWS = BK / WARPS;
    const int b_row = thread / 32 * B_ROWS;
    long long at = first + team;
    int tile = at / steps.per_tile, skipped = at % steps.per_tile;
    const size_t a_pitch = pitch_of(K), b_pitch = pitch_of(N);  // K and N, where nothing is copied
    const float *a_from, *b_from;
    size_t a_rows[4];
    int b_bytes;
    auto find = [&] {
      int row, column;
      row_and_column<GROUP>(steps, tile, row, column);
      a_from = (work.a ? work.a : A) + (size_t)row * BM * a_pitch + a_col;
      a_from += (size_t)skipped * BK;
      for (int i = 0; i < 4; ++i) a_rows[i] = min(a_row + i, M - 1 - row * BM) * a_pitch;
      b_from = (work.b ? work.b : B) + ((size_t)skipped * BK + b_row) * b_pitch +
               (size_t)column * BN;
      b_bytes = 4 * (int)min((size_t)BN, b_pitch - (size_t)column * BN);
    };
    float a[4][4];
    auto load = [&] {  // a step ahead: its data has time to arrive
      if (at >= last) return;
      if (a_col < steps.length - skipped * BK) {
        for (int i = 0; i < 4; ++i) *(float4*)a[i] = *(const float4*)&a_from[a_rows[i]];
      } else {
        for (int i = 0; i < 4; ++i) *(float4*)a[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      }
    };
    if (at < last) find();
    load();
    for (int step = team; at < last; step += TEAMS) {
      const int stage = step % STAGES;
      wait(empty[stage], step / STAGES % 2 ^ 1);  // the first round passes at once
      for (int k = 0; k < 4; ++k) {
        *(float4*)&As[stage][a_col + k][a_row] = make_float4(a[0][k], a[1][k], a[2][k], a[3][k]);
      }
      const float* b = b_from;
      const int bytes = b_bytes, b_rows = min(B_ROWS, steps.length - skipped * BK - b_row);
      if (b_rows < B_ROWS) {
        for (int i = max(0, b_rows) * BN + thread % 32; i < B_ROWS * BN; i += 32) {
          Bs[stage][b_row][i] = 0.0f;
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // before the next bulk copy
      }
      at += TEAMS;
      skipped += TEAMS;
      a_from += TEAMS * BK;
      b_from += TEAMS * BK * b_pitch;
      if (skipped >= steps.per_tile && at < last) {
        tile += skipped / steps.per_tile;
        skipped %= steps.per_tile;
        find();
      }
      load();
      __syncwarp();
      if (elected()) {
        expect(full[stage], max(0, b_rows) * bytes);
        for (int r = 0; r < B_ROWS; ++r) {
          if (r < b_rows) copy(Bs[stage][b_row + r], &b[r * b_pitch], bytes, full[stage]);
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
      float* c = C + ((size_t)tile_row * BM + row) * N + (size_t)tile_column * BN + col;
      const int rows = M - tile_row * BM - row, cols = N - tile_column * BN - col;  // to the edge
      if (quads_of(C, N)) {
        for (int i = 0; i < TM; ++i) {
          for (int j = 0; j < TN; j += 4) {
            const int c_row = i / 4 * 4 * ROWS + i % 4;
            if (c_row >= rows || j * COLS >= cols) continue;
            store((float4*)&c[(size_t)c_row * N + j * COLS],
                  make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]), alpha, beta);
          }
        }
      } else {
        // By way of shared memory, so that a warp stores 32 neighbours at a time.
        for (int i = 0; i < TM; ++i) {
          for (int j = 0; j < TN; j += 4) {
            *(float4*)&lines[warp][lane / COLS][lane % COLS * 4 + j * COLS] =
                make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
          }
          __syncwarp();
#pragma unroll 1  // longer code takes time to load, and spills registers
          for (int n = lane; n < ROWS * WN; n += 32) {
            const int r = n / WN - lane / COLS, x = n % WN - lane % COLS * 4;
            const int c_row = 4 * r + i / 4 * 4 * ROWS + i % 4;
            if (c_row >= rows || x >= cols) continue;
            store(&c[(long long)c_row * N + x], lines[warp][n / WN][n % WN], alpha, beta);
          }
          __syncwarp();
        }
      }
    } else {  // a block has two parts at most: of its first tile, and of its last one
      float* part = work.parts + (size_t)(2 * blockIdx.x + (at != first)) * BM * BN;
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

// Adds the parts of the tiles that no block computed alone. blockIdx.x: a tile; or where there are
// more tiles than blocks, a share, for the tile that is its last one and the first one of the next
// share. blockIdx.y: a slice of the tile.
template <int BM, int BN, int BK, int GROUP>
__global__ void __launch_bounds__(256) add_parts(int M, int N, int K, float alpha, const float* A,
                                                 const float* B, float beta, float* C,
                                                 void* workspace) {
  const Steps steps(M, N, K, alpha, BM, BN, BK, *(const int*)workspace);
  const long long tiles = (long long)steps.rows * steps.columns;
  const int tile = tiles <= gridDim.x ? blockIdx.x
                                      : (int)((steps.first(blockIdx.x + 1) - 1) / steps.per_tile);
  const long long begin = (long long)tile * steps.per_tile, end = begin + steps.per_tile;
  const int share = steps.share(begin), count = steps.share(end - 1) - share;
  if (count == 0 || (tiles > gridDim.x && share != blockIdx.x)) return;

  int row, column;
  row_and_column<GROUP>(steps, tile, row, column);
  const int rows = min(BM, M - row * BM), cols = min(BN, N - column * BN);
  float* c = C + (size_t)row * BM * N + (size_t)column * BN;
  const bool quads = quads_of(C, N);
  const float* parts = Workspace(workspace, M, N, K, A, B).parts;
  // The first share has the tile as its first one or as its last one, and all others as the first.
  const float* before = parts + (size_t)(2 * share + (steps.first(share) < begin)) * BM * BN;
  const float* others = parts + (size_t)2 * (share + 1) * BM * BN;
  constexpr int AT_ONCE = 16;  // loads on their way

  for (int i = 4 * (blockIdx.y * 256 + threadIdx.x); i < BM * BN; i += 4 * 256 * gridDim.y) {
    const int c_row = i / BN, c_col = i % BN;
    if (c_row >= rows || c_col >= cols) continue;
    float4 sum = *(const float4*)&before[i];
    for (int p = 0; p < count; p += AT_ONCE) {
      float4 next[AT_ONCE];
      for (int q = 0; q < AT_ONCE; ++q) {
        if (p + q < count) next[q] = *(const float4*)&others[(size_t)2 * (p + q) * BM * BN + i];
      }
      for (int q = 0; q < AT_ONCE; ++q) {
        if (p + q >= count) continue;
        sum.x += next[q].x, sum.y += next[q].y, sum.z += next[q].z, sum.w += next[q].w;
      }
    }
    float* to = &c[(size_t)c_row * N + c_col];
    if (quads) {
      store((float4*)to, sum, alpha, beta);
    } else {
      const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
      for (int x = 0; x < 4; ++x) {
        if (c_col + x < cols) store(to + x, sums[x], alpha, beta);
      }
    }
  }
}

// Copies A or B or both to the workspace, with rows of whole 16 bytes; zeros fill them up. A block
// copies 8 rows of 256 columns.
__global__ void __launch_bounds__(256) copy_rows(int M, int N, int K, float alpha, const float* A,
                                                 const float* B, float beta, float* C,
                                                 void* workspace) {
  if (alpha == 0.0f) return;
  constexpr int ROWS = 8, COLUMNS = 256;
  const Workspace work(workspace, M, N, K, A, B);
  const int of_a = work.a ? ceil_div(M, ROWS) * ceil_div(K, COLUMNS) : 0;  // blocks
  const bool is_a = blockIdx.x < of_a;
  const int rows = is_a ? M : K, columns = is_a ? K : N, across = ceil_div(columns, COLUMNS);
  const int block = is_a ? blockIdx.x : blockIdx.x - of_a;
  const int row = block / across * ROWS, column = block % across * COLUMNS + threadIdx.x;
  const size_t pitch = pitch_of(columns);
  if (column >= pitch || (!is_a && !work.b)) return;
  const float* from = (is_a ? A : B) + (size_t)row * columns + column;
  float* to = (is_a ? work.a : work.b) + row * pitch + column;
  float x[ROWS];
  for (int r = 0; r < ROWS; ++r) {
    x[r] = row + r < rows && column < columns ? from[(size_t)r * columns] : 0.0f;
  }
  for (int r = 0; r < ROWS; ++r) {
    if (row + r < rows) to[r * pitch] = x[r];
  }
}
