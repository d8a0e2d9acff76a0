// 30 · Every shape
// Run:     worklog run best
//
// Before:  the tile was the one that is fastest at 4096, and it had to divide M, N and K. A small
//          product has too few tiles for the GPU, and one with a long K and few tiles takes long.
// Now:     any M, N and K; the tile follows the shape, and gridDim.z parts of K are summed in
//          the workspace and added by a second launch, always in the same order.
// Why:     with parts, every multiprocessor has work. Rows and columns beyond the edge are read
//          from the edge and not stored, and the first tile of K is the short one: it is read
//          before the main loop, which has no check left but one minimum per load of A.
// Costs:   the parts are written and read once more, and there is a second launch.
// Domain:  N % WIDTH == 0, K % WIDTH == 0.
//
// One block computes a BM x BN tile of C, or of one part's sums, as rungs 12 and 13 do. WIDTH:
// floats per access to A, B and C, 4 or 1; with 4, all three are aligned to 16 bytes. A_BY_COLUMNS,
// B_BY_COLUMNS: whether a factor is stored column by column; then WIDTH divides its rows instead.
// ORDER: of the four multiply-adds of a 2 x 2 patch, a hexadecimal digit each, the last one first.
// It decides which registers ptxas allocates, and so how many multiply-adds read two operands from
// one register bank. Each tile has the order with the fewest.

namespace cutlass { struct KeepOrder; }

template <int WIDTH>
__device__ __forceinline__ void copy(float* to, const float* from) {
  if (WIDTH == 4) {
    *(float4*)to = *(const float4*)from;
  } else {
    *to = *from;
  }
}

// Moves tiles of an operand from global memory through registers to shared memory. A tile has SIZE
// rows of A (columns of B) by BK; CROSSED: neighbours in memory are neighbours along K.
template <int SIZE, int BK, int THREADS, int WIDTH, bool CROSSED>
struct Copier {
  static constexpr int ALONG = (CROSSED ? BK : SIZE) / WIDTH, STEP = THREADS / ALONG;
  static constexpr int PASSES = (CROSSED ? SIZE : BK) / STEP;
  static_assert(THREADS % ALONG == 0 && (CROSSED ? SIZE : BK) % STEP == 0,
                "the passes of a copy cover the tile");

  const int across = threadIdx.x / ALONG, along = threadIdx.x % ALONG * WIDTH;
  const float* from;
  const int pitch, last;
  float next[PASSES][WIDTH];

  // pitch: of the matrix; start: the tile's first row or column; count: how many there are.
  __device__ Copier(const float* matrix, int pitch, size_t start, size_t before, int count)
      : pitch(pitch), last(count - 1) {
    from = CROSSED ? matrix + start * pitch + before + along
                   : matrix + before * pitch + start + min(along, count - WIDTH);
  }
  __device__ void fetch(int length) {  // global memory -> registers, and on to the next tile
    for (int r = 0; r < PASSES; ++r) {
      for (int i = 0; i < WIDTH; ++i) next[r][i] = 0.0f;
      const int line = across + r * STEP;
      if ((CROSSED ? along : line) < length) {
        copy<WIDTH>(next[r], from + (size_t)(CROSSED ? min(line, last) : line) * pitch);
      }
    }
    from += CROSSED ? length : (size_t)length * pitch;
  }
  template <int PITCH>
  __device__ void store(float (*tile)[PITCH]) {  // registers -> shared memory
    for (int r = 0; r < PASSES; ++r) {
      const int line = across + r * STEP;
      if (!CROSSED) copy<WIDTH>(&tile[line][along], next[r]);
      for (int i = 0; CROSSED && i < WIDTH; ++i) tile[along + i][line] = next[r][i];
    }
  }
};

template <int BM, int BN, int BK, int WM, int WN, int WIDTH, int MIN_BLOCKS, int ORDER,
          int A_BY_COLUMNS = 0, int B_BY_COLUMNS = 0, class = cutlass::KeepOrder>
__global__ void __launch_bounds__(BM * BN / (WM * WN) * 32, MIN_BLOCKS)
    sgemm_best(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
               float* C, void* workspace) {
  constexpr int THREADS = BM * BN / (WM * WN) * 32;
  constexpr int ROWS = 8, COLS = 4, TM = WM / ROWS, TN = WN / COLS;
  static_assert(TM % 4 == 0 && TN % 4 == 0, "a thread tile consists of quads of float4");
  static_assert(BK % 4 == 0, "the two fragments alternate, and tiles of K stay aligned");
  // 4 floats of padding: a transposing store then hits 32 banks, and rows stay 16-byte aligned.
  __shared__ __align__(16) float As[2][BK][BM + 4];
  __shared__ __align__(16) float Bs[2][BK][BN + 4 * B_BY_COLUMNS];

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // Rung 13's lanes where there are many multiply-adds per load. Else loads are the limit, and rung
  // 12's lanes need fewer wavefronts.
  constexpr bool MANY = TM >= 8;
  const int lane_row = MANY ? lane / COLS : lane / 8 * 2 + lane % 2;
  const int lane_col = MANY ? lane % COLS : lane / 2 % 4;
  const int row = warp / (BN / WN) * WM + lane_row * 4;
  const int col = warp % (BN / WN) * WN + lane_col * 4;

  // This part's tiles of K. BLAS: with alpha == 0, A and B are not read.
  const int tiles = alpha == 0.0f ? 0 : K / BK + (K % BK != 0), rest = K - (tiles - 1) * BK;
  const int first = (int)((long long)tiles * blockIdx.z / gridDim.z);
  const int end = (int)((long long)tiles * (blockIdx.z + 1) / gridDim.z);
  const size_t before = first == 0 ? 0 : rest + (size_t)(first - 1) * BK;

  // Blocks along y are at most 65535: those beyond stand behind the others along x.
  size_t i0 = blockIdx.y, j0 = blockIdx.x;
  for (const size_t columns = (N + BN - 1u) / BN; j0 >= columns; j0 -= columns) i0 += gridDim.y;
  i0 *= BM, j0 *= BN;
  if (i0 >= M) return;
  const int rows = (int)(M - i0 < BM ? M - i0 : BM), cols = (int)(N - j0 < BN ? N - j0 : BN);
  Copier<BM, BK, THREADS, WIDTH, !A_BY_COLUMNS> a_copy(A, A_BY_COLUMNS ? M : K, i0, before, rows);
  Copier<BN, BK, THREADS, WIDTH, B_BY_COLUMNS> b_copy(B, B_BY_COLUMNS ? K : N, j0, before, cols);
  auto fetch = [&](int length) { a_copy.fetch(length), b_copy.fetch(length); };
  auto store = [&](int buffer) { a_copy.store(As[buffer]), b_copy.store(Bs[buffer]); };

  float a[2][TM], b[2][TN];
  auto read = [&](int buffer, int k) {  // shared memory -> the fragments for k
    const float *a_k = &As[buffer][k][row], *b_k = &Bs[buffer][k][col];
    for (int i = 0; i < TM; i += 4) *(float4*)&a[k % 2][i] = *(const float4*)&a_k[i * ROWS];
    for (int j = 0; j < TN; j += 4) *(float4*)&b[k % 2][j] = *(const float4*)&b_k[j * COLS];
  };

  float acc[TM][TN] = {};
  fetch(first >= end ? 0 : first == 0 ? rest : BK);  // a part without tiles: zeros
  store(0);
  __syncthreads();  // wait: the first tile must be complete before any thread reads it
  read(0, 0);
  int tile = first, buffer = 0;
  do {
    if (tile + 1 < end) fetch(BK);

#pragma unroll  // with two buffers, ptxas unrolls this loop only in part by itself
    for (int k = 0; k < BK; ++k) {
      if (k == BK - 1) {
        buffer ^= 1;
        if (tile + 1 < end) store(buffer);
        __syncthreads();  // wait: the next tile must be complete, and this one no longer in use
      }
      read(buffer, (k + 1) % BK);
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
  if (gridDim.z > 1) {
    alpha = 1.0f, beta = 0.0f, C = (float*)workspace + (size_t)blockIdx.z * M * N;  // sums alone
  }
  C += i0 * N + j0;
#pragma unroll
  for (int i = 0; i < TM; ++i) {
#pragma unroll
    for (int j = 0; j < TN; j += WIDTH) {
      // With the column in a variable, ptxas allocates registers with many bank conflicts.
      const int c_row = row + i / 4 * 4 * ROWS + i % 4;
      if (c_row >= rows || col + j / 4 * 4 * COLS + j % 4 >= cols) continue;
      float* c = &C[(size_t)c_row * N + col + j / 4 * 4 * COLS + j % 4];
      float result[WIDTH] = {};
      if (beta != 0.0f) copy<WIDTH>(result, c);
      for (int x = 0; x < WIDTH; ++x) result[x] = alpha * acc[i][j + x] + beta * result[x];
      copy<WIDTH>(c, result);
    }
  }
}

// C = alpha * (the parts' sums, in order) + beta * C.
template <int PARTS, int WIDTH>
__global__ void __launch_bounds__(256)
    sgemm_best_sum(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                   float* C, void* workspace) {
  constexpr int AT_ONCE = PARTS <= 32 ? PARTS : 32;  // loads on their way
  static_assert(PARTS % AT_ONCE == 0, "each round adds the same number of parts");
  const size_t size = (size_t)M * N, step = (size_t)gridDim.x * 256 * WIDTH;
  for (size_t i = ((size_t)blockIdx.x * 256 + threadIdx.x) * WIDTH; i < size; i += step) {
    float sum[4] = {}, part[AT_ONCE][4], old[4] = {};
    if (beta != 0.0f) copy<WIDTH>(old, C + i);
    for (int from = 0; from < PARTS; from += AT_ONCE) {
      for (int p = 0; p < AT_ONCE; ++p) {
        copy<WIDTH>(part[p], (const float*)workspace + (from + p) * size + i);
      }
      for (int p = 0; p < AT_ONCE; ++p) {
        for (int x = 0; x < WIDTH; ++x) sum[x] += part[p][x];
      }
    }
    for (int x = 0; x < WIDTH; ++x) old[x] = alpha * sum[x] + beta * old[x];
    copy<WIDTH>(C + i, old);
  }
}
