// 30 · Every shape
// Run:     worklog run best
//          main.cu launches one kernel; here, the shape decides how many share a workspace.
//
// Before:  one tile for all shapes, which had to divide M, N and K. Small products have few tiles.
// Now:     any M, N and K; the tile follows the shape, and gridDim.z parts of K are summed in
//          the workspace and added by a second launch, always in the same order. STAGES - 1
//          tiles of K are under way, as in rung 14.
// Why:     with parts, more multiprocessors have work, and with stages, a block that is alone on
//          its multiprocessor has copies under way. The copies write zeros beyond the edges,
//          and the first tile of K is the short one: the main loop has no check left.
// Costs:   a second launch, which reads the parts again. A is transposed, so copied float by float.
// Domain:  N % WIDTH == 0.
// Tile:    BM=64 BN=64 BK=16 WM=32 WN=32 WIDTH=1 STAGES=3 MIN_BLOCKS=4 ORDER=8976
// Launch:  grid (N + BN - 1) / BN * (((M + BM - 1) / BM + 65534) / 65535),
//          min((M + BM - 1) / BM, 65535), 1   block BM * BN / (WM * WN) * 32
//
// One block computes a BM x BN tile of C, or of one part's sums, as rungs 12 and 13 do. WIDTH:
// floats per copy of B and per store of C, 4 or 1; with 4, both are aligned to 16 bytes.
// A_BY_COLUMNS, B_BY_COLUMNS: whether a factor is stored column by column. Copies that transpose
// move one float each, so WIDTH concerns A where it is stored by columns, and not B where that is.
// A warp has 8 x 4 lanes, or 4 x 8 where WM isn't a multiple of 32. BATCH: gridDim.z is the number
// of products, whose matrices follow each other. ORDER: of the four multiply-adds of a 2 x 2
// patch, a hexadecimal digit each, the last one first, for the fewest bank conflicts on sm_90.

namespace cutlass { struct KeepOrder; }  // in the symbol, it keeps the order written: rung 11

// From global to shared memory, past the registers; zeros where it is not valid. Before sm_80,
// which has no asynchronous copies, it waits for the memory.
template <int WIDTH>
__device__ __forceinline__ void copy(float* to, const float* from, bool valid = true) {
#if __CUDA_ARCH__ >= 800
  const unsigned address = (unsigned)__cvta_generic_to_shared(to), bytes = valid ? 4 * WIDTH : 0;
  if (WIDTH == 4) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from),
                 "r"(bytes) : "memory");
  }
#else
  for (int i = 0; i < WIDTH; ++i) to[i] = valid ? from[i] : 0.0f;
#endif
}

__device__ __forceinline__ void commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int PENDING>
__device__ __forceinline__ void wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

// Copies tiles of a factor. A tile has SIZE rows of A (columns of B) by BK; CROSSED: neighbours in
// memory are neighbours along K. Then the copy transposes, a float at a time: eight lanes along K
// by four rows read whole sectors, and write to 32 banks.
template <int SIZE, int BK, int THREADS, int WIDTH, bool CROSSED>
struct Copier {
  static constexpr int UNIT = CROSSED ? 1 : WIDTH;
  static constexpr int ALONG = CROSSED ? 8 : SIZE / UNIT < 32 ? SIZE / UNIT : 32;  // lanes
  static constexpr int STEP = THREADS / ALONG, LINES = CROSSED ? SIZE : BK;
  static_assert(THREADS % ALONG == 0 && LINES % STEP == 0 &&
                    (CROSSED ? BK : SIZE) % (ALONG * UNIT) == 0, "the passes cover the tile");

  const int across = threadIdx.x / ALONG, along = threadIdx.x % ALONG * UNIT;
  const float* from;
  const int pitch, count;

  // pitch: of the matrix; start: the tile's first row or column, of count; before: the first k.
  __device__ Copier(const float* matrix, int pitch, size_t start, size_t before, int count)
      : pitch(pitch), count(count) {
    const size_t line = across + (CROSSED ? start : before), first = CROSSED ? before : start;
    from = matrix + line * pitch + first + along;
  }
  // Copies a tile, then goes on to the next one. WHOLE: of BK; else zeros stand from length on.
  template <bool WHOLE, int PITCH>
  __device__ void fetch(float (*tile)[PITCH], int length = BK) {
    const float* source = from;
    for (int r = 0; r < LINES; r += STEP, source += (size_t)STEP * pitch) {
      for (int c = 0; c < (CROSSED ? BK : SIZE); c += ALONG * UNIT) {
        const int k = CROSSED ? along + c : across + r, side = CROSSED ? across + r : along + c;
        copy<UNIT>(&tile[k][side], source + c, side < count && (WHOLE || k < length));
      }
    }
    from += CROSSED ? length : (size_t)length * pitch;
  }
};

template <int WIDTH>
__device__ __forceinline__ void move(float* to, const float* from) {
  if (WIDTH == 4) {
    *(float4*)to = *(const float4*)from;
  } else {
    *to = *from;
  }
}

template <int BM, int BN, int BK, int WM, int WN, int WIDTH, int STAGES, int MIN_BLOCKS, int ORDER,
          int A_BY_COLUMNS = 0, int B_BY_COLUMNS = 0, int BATCH = 0, class = cutlass::KeepOrder>
__global__ void __launch_bounds__(BM * BN / (WM * WN) * 32, MIN_BLOCKS)
    sgemm_best(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
               float* C, void* workspace) {
  constexpr int THREADS = BM * BN / (WM * WN) * 32;
  constexpr int ROWS = WM % 32 == 0 ? 8 : 4, COLS = 32 / ROWS, TM = WM / ROWS, TN = WN / COLS;
  static_assert(TM % 4 == 0 && TN % 4 == 0, "a thread tile consists of quads of float4");
  static_assert(BK % 4 == 0, "the two fragments alternate, and tiles of K stay aligned");
  // 4 floats of padding: a transposing copy then hits 32 banks, and rows stay 16-byte aligned.
  __shared__ __align__(16) float As[STAGES][BK][BM + 4];
  __shared__ __align__(16) float Bs[STAGES][BK][BN + 4 * B_BY_COLUMNS];

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // Rung 13's lanes where multiply-adds are many per load; else rung 12's, with fewer wavefronts.
  constexpr bool MANY = TM >= 8;
  const int lane_row = MANY ? lane / COLS : ROWS == 8 ? lane / 8 * 2 + lane % 2 : lane / 2 % 4;
  const int lane_col = MANY ? lane % COLS : ROWS == 8 ? lane / 2 % 4 : lane / 8 * 2 + lane % 2;
  const int row = warp / (BN / WN) * WM + lane_row * 4;
  const int col = warp % (BN / WN) * WN + lane_col * 4;

  // This part's tiles of K. BLAS: with alpha == 0, A and B are not read.
  const int tiles = alpha == 0.0f ? 0 : K / BK + (K % BK != 0), rest = K - (tiles - 1) * BK;
  const int first = BATCH ? 0 : (int)((long long)tiles * blockIdx.z / gridDim.z);
  const int end = BATCH ? tiles : (int)((long long)tiles * (blockIdx.z + 1) / gridDim.z);
  const size_t before = first == 0 ? 0 : rest + (size_t)(first - 1) * BK;

  // Blocks along y are at most 65535: those beyond stand behind the others along x.
  size_t i0 = blockIdx.y, j0 = blockIdx.x, product = BATCH ? blockIdx.z : 0;
  A += product * M * K, B += product * K * N, C += product * M * N;
  for (const size_t columns = (N + BN - 1u) / BN; j0 >= columns; j0 -= columns) i0 += gridDim.y;
  i0 *= BM, j0 *= BN;
  if (i0 >= M) return;
  const int rows = (int)(M - i0 < BM ? M - i0 : BM), cols = (int)(N - j0 < BN ? N - j0 : BN);
  Copier<BM, BK, THREADS, WIDTH, !A_BY_COLUMNS> a_copy(A, A_BY_COLUMNS ? M : K, i0, before, rows);
  Copier<BN, BK, THREADS, WIDTH, B_BY_COLUMNS> b_copy(B, B_BY_COLUMNS ? K : N, j0, before, cols);

  float a[2][TM], b[2][TN];
  auto read = [&](int stage, int k) {  // shared memory -> the fragments for k
    const float *a_k = &As[stage][k][row], *b_k = &Bs[stage][k][col];
    for (int i = 0; i < TM; i += 4) *(float4*)&a[k % 2][i] = *(const float4*)&a_k[i * ROWS];
    for (int j = 0; j < TN; j += 4) *(float4*)&b[k % 2][j] = *(const float4*)&b_k[j * COLS];
  };

  float acc[TM][TN] = {};
  const int length = first >= end ? 0 : first == 0 ? rest : BK;  // a part without tiles: zeros
  a_copy.template fetch<false>(As[0], length), b_copy.template fetch<false>(Bs[0], length);
  commit();
  auto fetch = [&](int tile, int stage) {
    if (tile < end) a_copy.template fetch<true>(As[stage]), b_copy.template fetch<true>(Bs[stage]);
    commit();  // of nothing, too: then the newest STAGES - 2 groups are those behind the next tile
  };
  for (int next = 1; next < STAGES - 1; ++next) fetch(first + next, next);
  wait<STAGES - 2>();
  __syncthreads();  // wait: the first tile must be complete before any thread reads it
  read(0, 0);
  int tile = first, stage = 0;
  do {
    // Into the stage of the tile before, which every thread has left at the last barrier.
    fetch(tile + STAGES - 1, (stage + STAGES - 1) % STAGES);

#pragma unroll  // else ptxas unrolls this loop only in part
    for (int k = 0; k < BK; ++k) {
      if (k == BK - 1) {
        stage = (stage + 1) % STAGES;
        wait<STAGES - 2>();
        __syncthreads();  // wait: the next tile must be complete, and this one no longer in use
      }
      read(stage, (k + 1) % BK);
      for (int j = 0; j < TN; j += 2) {
        for (int step = 0; step < TM; step += 2) {
          const int i = j % 4 == 0 ? step : TM - 2 - step;
          for (int n = 0; n < 4; ++n) {
            const int y = i + (ORDER >> (4 * n + 1)) % 2, x = j + (ORDER >> 4 * n) % 2;
            acc[y][x] += a[k % 2][y] * b[k % 2][x];
          }
        }
      }
    }
  } while (++tile < end);

  // With beta == 0, C is not read: it may hold NaN.
  if (!BATCH && gridDim.z > 1) {
    alpha = 1.0f, beta = 0.0f, C = (float*)workspace + (size_t)blockIdx.z * M * N;  // sums alone
  }
  C += i0 * N + j0;
  if (WIDTH == 1) __syncthreads();  // wait: the tiles are no longer in use
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    if (WIDTH == 1) {
      // A lane holds four neighbours of every 16 columns. By way of shared memory, neighbouring
      // lanes store neighbours. The padding keeps two rows of 16 floats in different banks.
      constexpr int PITCH = WN % 32 == 0 ? WN + 16 : WN;
      static_assert(BM * BN / (WM * WN) * ROWS * PITCH <= sizeof(As) / 4, "the sums fit into As");
      float* sums = &As[0][0][0] + warp * ROWS * PITCH;
      for (int j = 0; j < TN; j += 4) {
        *(float4*)&sums[lane_row * PITCH + lane_col * 4 + j * COLS] =
            make_float4(alpha * acc[i][j], alpha * acc[i][j + 1], alpha * acc[i][j + 2],
                        alpha * acc[i][j + 3]);
      }
      __syncwarp();
      for (int n = lane; n < ROWS * WN; n += 32) {
        const int c_row = warp / (BN / WN) * WM + i / 4 * 4 * ROWS + n / WN * 4 + i % 4;
        const int c_col = warp % (BN / WN) * WN + n % WN;
        if (c_row >= rows || c_col >= cols) continue;
        float* c = &C[(size_t)c_row * N + c_col];
        const float sum = sums[n / WN * PITCH + n % WN];
        *c = beta == 0.0f ? sum : sum + beta * *c;
      }
      __syncwarp();
      continue;
    }
#pragma unroll
    for (int j = 0; j < TN; j += WIDTH) {
      // With the column in a variable, ptxas allocates registers with many bank conflicts.
      const int c_row = row + i / 4 * 4 * ROWS + i % 4;
      if (c_row >= rows || col + j / 4 * 4 * COLS + j % 4 >= cols) continue;
      float* c = &C[(size_t)c_row * N + col + j / 4 * 4 * COLS + j % 4];
      float result[WIDTH] = {};
      if (beta != 0.0f) move<WIDTH>(result, c);
      for (int x = 0; x < WIDTH; ++x) result[x] = alpha * acc[i][j + x] + beta * result[x];
      move<WIDTH>(c, result);
    }
  }
}

// C = alpha * (the parts' sums, in order) + beta * C.
template <int PARTS, int WIDTH>
__global__ void __launch_bounds__(256)
    sgemm_best_sum(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                   float* C, void* workspace) {
  constexpr int AT_ONCE = PARTS < 32 ? PARTS : 32;  // loads on their way
  static_assert(PARTS % AT_ONCE == 0, "each round adds the same number of parts");
  const size_t size = (size_t)M * N, step = (size_t)gridDim.x * 256 * WIDTH;
  for (size_t i = ((size_t)blockIdx.x * 256 + threadIdx.x) * WIDTH; i < size; i += step) {
    float sum[4] = {}, part[AT_ONCE][4], old[4] = {};
    if (beta != 0.0f) move<WIDTH>(old, C + i);
    for (int from = 0; from < PARTS; from += AT_ONCE) {
      for (int p = 0; p < AT_ONCE; ++p) {
        move<WIDTH>(part[p], (const float*)workspace + (from + p) * size + i);
      }
      for (int p = 0; p < AT_ONCE; ++p) {
        for (int x = 0; x < WIDTH; ++x) sum[x] += part[p][x];
      }
    }
    for (int x = 0; x < WIDTH; ++x) old[x] = alpha * sum[x] + beta * old[x];
    move<WIDTH>(C + i, old);
  }
}
