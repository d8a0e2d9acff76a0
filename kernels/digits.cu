// Six products of INT8
// Run:     worklog run digits
//          It isn't a rung: notebook 10 has its time, beside that of rung 26.
//
// Each number is an integer of 23 bits, in units of its line's largest one, and so three digits of
// 8 bits: 2^16 d0 + 2^8 d1 + d2. Of the nine products of digits, the six whose weight is 2^16 or
// more are summed, exactly, in three sums of INT32. Ootomo, Ozaki, Yokota, "DGEMM on Integer Matrix
// Multiplication Unit" (2024), do so for doubles.
// A first kernel writes the digits to a workspace in the order in which the product needs them. In
// the product, one warp group copies, and two multiply 64 rows each.
//
// Costs:   a number far below its line's largest one loses bits, and infinities and NaN are lost.
//          Rung 26 sums such elements of C again, and this kernel doesn't.
// Domain:  any M, N, K. Needs sm_90a.
// Tile:    BM=128 BN=128 STAGES=4 GROUP=8
// Launch:  grid SMS   block 384   shared 196672
//
// A line is a row of A or a column of B. Per stage of 64 k it has 64 bytes in each of three planes,
// one per digit. Its 16-byte parts are swizzled, so that 8 lines fill 512 bytes without bank
// conflicts.

#include "split_lines.cuh"
#include "wgmma.cuh"

constexpr int DIGITS = 3, DIGIT_K = 64;       // numbers of a line per stage
constexpr int AT_ONCE = 16, PER_LINE = 64;    // numbers of a thread; threads of the first pass
constexpr int FORMED = SPLITTERS / PER_LINE;  // lines per block
constexpr int PLANE = 128 * DIGIT_K;          // bytes of 128 lines
constexpr int MOST_STAGES = 512;              // of a sum in INT32
static_assert(3ll * 128 * 128 * DIGIT_K * MOST_STAGES < 1ll << 31, "three products of digits");

// Stages of all tiles of A, then of B; the exponents of A's lines, then of B's.
struct Digits {
  int stages, row_tiles, column_tiles;
  unsigned char *a, *b;
  int *rows, *columns;

  __device__ Digits(int M, int N, int K, void* start) {
    stages = (K + DIGIT_K - 1) / DIGIT_K;
    row_tiles = (M + 127) / 128;
    column_tiles = (N + 127) / 128;
    a = (unsigned char*)start;
    b = a + (size_t)row_tiles * stages * DIGITS * PLANE;
    rows = (int*)(b + (size_t)column_tiles * stages * DIGITS * PLANE);
    columns = rows + row_tiles * 128;
  }
};

// Pass 1: a block forms the digits of 8 lines, with 64 threads each.
template <int HELD>
__global__ void __launch_bounds__(SPLITTERS)
    form_digits(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                float* C, void* workspace) {
  const Digits work(M, N, K, workspace);
  const int row_blocks = work.row_tiles * 128 / FORMED;
  const bool of_a = blockIdx.x < row_blocks;
  // Neighbouring threads read neighbouring floats: along a row of A, across columns of B.
  const int place = of_a ? threadIdx.x / PER_LINE : threadIdx.x % FORMED;
  const int own = of_a ? threadIdx.x % PER_LINE : threadIdx.x / FORMED;
  const int line = (of_a ? blockIdx.x : blockIdx.x - row_blocks) * FORMED + place;
  const int length = line < (of_a ? M : N) ? K : 0;  // lines that fill up a tile are zero
  const float* from = of_a ? A + (size_t)line * K : B + line;
  const size_t step = of_a ? 1 : N;
  const bool quads = of_a && K % 4 == 0 && (size_t)A % 16 == 0;
  auto load = [&](int k, float(&x)[AT_ONCE]) {
    if (quads) {
      for (int i = 0; i < AT_ONCE; i += 4) {
        const float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        *(float4*)&x[i] = k + i < length ? *(const float4*)&from[k + i] : none;
      }
    } else {
      for (int i = 0; i < AT_ONCE; ++i) x[i] = k + i < length ? from[(k + i) * step] : 0.0f;
    }
  };

  __shared__ unsigned largest_of[FORMED];
  if (threadIdx.x < FORMED) largest_of[threadIdx.x] = 0;
  __syncthreads();  // wait: they must be zero before any thread raises them
  constexpr int STEP = AT_ONCE * PER_LINE;
  const int begin = AT_ONCE * own, end = work.stages * DIGIT_K;
  unsigned largest = 0;
  float held[HELD][AT_ONCE];
#pragma unroll
  for (int h = 0; h < HELD; ++h) {
    load(begin + h * STEP, held[h]);
    for (int i = 0; i < AT_ONCE; ++i) largest = max(largest, magnitude(held[h][i]));
  }
  for (int k = begin + HELD * STEP; k < end; k += STEP) {
    float x[AT_ONCE];
    load(k, x);
    for (int i = 0; i < AT_ONCE; ++i) largest = max(largest, magnitude(x[i]));
  }
  atomicMax(&largest_of[place], largest);
  __syncthreads();  // wait: the largest magnitudes must be complete
  // Brings the largest number to 2^21 to 2^22, so that the first digit is at most 64.
  const int exponent = exponent_of(largest_of[place]) + 7;

  unsigned char* to = (of_a ? work.a : work.b) +
                      (size_t)(line / 128) * work.stages * DIGITS * PLANE + line % 128 * DIGIT_K;
  auto store = [&](int k, const float(&numbers)[AT_ONCE]) {
    unsigned words[DIGITS][AT_ONCE / 4] = {};
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      int left = __float2int_rn(scaled(numbers[i], exponent));
#pragma unroll
      for (int digit = DIGITS - 1; digit >= 0; --digit) {
        const int low = (signed char)left;  // -128 to 127
        words[digit][i / 4] |= (unsigned)(low & 255) << i % 4 * 8;
        left = (left - low) >> 8;
      }
    }
    unsigned char* stage = to + (size_t)(k / DIGIT_K) * DIGITS * PLANE;
    const int unit = k % DIGIT_K / 16 ^ line / 2 % 4;
#pragma unroll
    for (int digit = 0; digit < DIGITS; ++digit) {
      const unsigned* four = words[digit];
      *(uint4*)&stage[digit * PLANE + unit * 16] = make_uint4(four[0], four[1], four[2], four[3]);
    }
  };
#pragma unroll
  for (int h = 0; h < HELD; ++h) {
    if (begin + h * STEP < end) store(begin + h * STEP, held[h]);
  }
  for (int k = begin + HELD * STEP; k < end; k += STEP) {
    float x[AT_ONCE];
    load(k, x);
    store(k, x);
  }
  if (own == 0) (of_a ? work.rows : work.columns)[line] = exponent;
}

// A matrix of lines of 64 bytes along K, swizzled.
__device__ __forceinline__ unsigned long long narrow_descriptor(const void* lines) {
  return (address(lines) & 0x3FFFF) >> 4 | 1ull << 16 | 512ull >> 4 << 32 | 2ull << 62;
}

__device__ __forceinline__ void multiply(int (&d)[64], unsigned long long a, unsigned long long b,
                                         bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
      "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
      "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
      "%62, %63}, "
      "%64, %65, add;\n}"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]),
        "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]),
        "+r"(d[14]), "+r"(d[15]), "+r"(d[16]), "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]),
        "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]),
        "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31]), "+r"(d[32]), "+r"(d[33]), "+r"(d[34]),
        "+r"(d[35]), "+r"(d[36]), "+r"(d[37]), "+r"(d[38]), "+r"(d[39]), "+r"(d[40]), "+r"(d[41]),
        "+r"(d[42]), "+r"(d[43]), "+r"(d[44]), "+r"(d[45]), "+r"(d[46]), "+r"(d[47]), "+r"(d[48]),
        "+r"(d[49]), "+r"(d[50]), "+r"(d[51]), "+r"(d[52]), "+r"(d[53]), "+r"(d[54]), "+r"(d[55]),
        "+r"(d[56]), "+r"(d[57]), "+r"(d[58]), "+r"(d[59]), "+r"(d[60]), "+r"(d[61]), "+r"(d[62]),
        "+r"(d[63])
      : "l"(a), "l"(b), "r"((int)add));
}

// Pass 2: the product, by any number of blocks; one per SM is best.
template <int BM, int BN, int STAGES, int GROUP>
__global__ void __launch_bounds__(384, 1)
    sgemm_digits(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                 float* C, void* workspace) {
  static_assert(BM == 128 && BN == 128, "two warp groups hold three sums of 64 x 128 each");
  constexpr int BYTES = DIGITS * PLANE;  // of an operand per stage
  extern __shared__ __align__(1024) unsigned char buffers[];
  unsigned char(*a_stage)[BYTES] = (unsigned char(*)[BYTES])buffers;
  unsigned char(*b_stage)[BYTES] = (unsigned char(*)[BYTES])(buffers + STAGES * BYTES);
  unsigned long long* full = (unsigned long long*)(buffers + 2 * STAGES * BYTES);
  unsigned long long* empty = full + STAGES;
  const Digits work(M, N, K, workspace);
  const int tiles = work.row_tiles * work.column_tiles, stages = work.stages;

  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      init(full[s], 1);
      init(empty[s], 8);  // a lane of each multiplying warp
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();  // wait: the mbarriers must be initialised before any thread uses them

  // GROUP rows of tiles are walked column by column, so that the blocks at work share them in L2.
  auto row_and_column = [&](int tile, int& row, int& column) {
    const int first = tile / (GROUP * work.column_tiles) * GROUP;
    const int rows = min(GROUP, work.row_tiles - first);
    const int rest = tile - first * work.column_tiles;
    row = first + rest % rows;
    column = rest / rows;
  };

  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");  // needs sm_90a, as wgmma does
    if (threadIdx.x != 0) return;
    for (int tile = blockIdx.x, step = 0; tile < tiles; tile += gridDim.x) {
      int row, column;
      row_and_column(tile, row, column);
      const unsigned char* a = work.a + (size_t)row * stages * BYTES;
      const unsigned char* b = work.b + (size_t)column * stages * BYTES;
      for (int end = step + stages; step < end; ++step) {
        const int slot = step % STAGES;
        wait(empty[slot], step / STAGES % 2 ^ 1);
        expect(full[slot], 2 * BYTES);
        copy(a_stage[slot], a, BYTES, full[slot]);
        copy(b_stage[slot], b, BYTES, full[slot]);
        a += BYTES, b += BYTES;
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  // Of a lane of the warp: the compiler needs to know that a warp doesn't diverge at its wgmmas.
  const int warp = __shfl_sync(ALL, threadIdx.x / 32, 0) - 4, group = warp / 4;
  const int lane = threadIdx.x % 32;
  for (int tile = blockIdx.x, step = 0; tile < tiles; tile += gridDim.x) {
    int row, column;
    row_and_column(tile, row, column);
    row = row * BM + warp * 16 + lane / 4;
    column = column * BN + lane % 4 * 2;
    // Half of the weight 2^32 of the high digits goes to a row, and half to a column.
    const int of_rows[2] = {16 - work.rows[row], 16 - work.rows[row + 8]};
    for (int first = 0; first < stages; first += MOST_STAGES) {
      int high[BN / 2], middle[BN / 2], low[BN / 2];  // sums of weight 2^32, 2^24 and 2^16
      bool add = false;
      for (int s = first; s < min(stages, first + MOST_STAGES); ++s, ++step) {
        const int slot = step % STAGES;
        wait(full[slot], step / STAGES % 2);
        const unsigned long long a = narrow_descriptor(a_stage[slot] + group * 64 * DIGIT_K);
        const unsigned long long b = narrow_descriptor(b_stage[slot]);
        constexpr int NEXT = PLANE / 16;  // digit, in units of a descriptor
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < DIGIT_K / 16; k += 2) {  // 2 units of 16 bytes are 32 k
          multiply(low, a + k, b + 2 * NEXT + k, add);
          multiply(low, a + NEXT + k, b + NEXT + k, true);
          multiply(low, a + 2 * NEXT + k, b + k, true);
          multiply(middle, a + k, b + NEXT + k, add);
          multiply(middle, a + NEXT + k, b + k, true);
          multiply(high, a + k, b + k, add);
          add = true;
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        // The step before is complete, and this one goes on.
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (s > first) {
          __syncwarp();
          if (lane == 0) arrive(empty[(step - 1) % STAGES]);
        }
      }
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      __syncwarp();
      if (lane == 0) arrive(empty[(step - 1) % STAGES]);
#pragma unroll
      for (int i = 0; i < BN / 2; ++i) {
        asm volatile(""
                     : "+r"(high[i]), "+r"(middle[i]), "+r"(low[i])::"memory");  // after the wait
      }

#pragma unroll
      for (int i = 0; i < BN / 2; ++i) {
        const int r = row + i % 4 / 2 * 8, c = column + i / 4 * 8 + i % 2;
        if (r >= M || c >= N) continue;
        const float sum = (float)high[i] + ((float)middle[i] + (float)low[i] / 256) / 256;
        const float x = scaled(scaled(sum, of_rows[i % 4 / 2]), 16 - work.columns[c]);
        float* to = &C[(size_t)r * N + c];
        const float keep = first == 0 ? beta : 1.0f;
        *to = alpha * x + (keep == 0.0f ? 0.0f : keep * *to);  // C may hold NaN
      }
    }
  }
}
