// 26 · Splitting passes
// Run:     worklog run split
//
// Before:  each block split its rows of A and columns of B, as all the other blocks in its row and
//          column of blocks did.
// Now:     a first kernel splits each number once. It writes the halves to a workspace in the
//          order in which the product needs them: a stage of an operand is contiguous, and one bulk
//          copy fetches it. The product's blocks stay on their SM and take one tile of C after the
//          other.
// Why:     with a thread that only issues two copies per stage, tensor cores are 75 % busy. A row's
//          scale is known before its product starts, so C is divided by it only once.
//          Where tiles are few, they share out K: each part of K is a product of its own, with its
//          own scales, and a third kernel adds these in the order of K.
// Costs:   a workspace as large as A and B, and the time to read both and to write it. What lies
//          beyond the first 4096 of a line is read twice. Parts of K are written and read once.
// Domain:  any M, N, K, any data. A number below 2^-17 of its line's largest loses bits as a
//          half. Pass 1 counts these, and pass 2 sums each element of C for which they might matter
//          again with FFMAs; so too each one that isn't finite. If most elements of C need this,
//          then the kernel is slower than the plain ones.
// Tile:    BM=128 BN=128 STAGES=6 GROUP=8 PARTS=1
// Launch:  grid 132   block 384   shared 196704
//
// A line is a row of A or a column of B. Per stage of 32 k it has 128 bytes: 32 hi, then 32 lo. Its
// 16-byte parts are swizzled, so that 8 lines fill 8 x 128 bytes without bank conflicts. One block
// computes BM x BN tiles of C: one warp group copies, and two multiply BM / 2 rows each.

constexpr int STAGE_K = 32, LINE_BYTES = 128, SPLITTERS = 512;  // threads per block of pass 1
constexpr unsigned ALL = 0xffffffff;  // lanes

// How to take a sum of its halves back: by two powers of two, whose product may be too large for a
// float. And how large the sum must be, so that the bits lost in the line don't matter.
struct __align__(16) Line {
  float unscale[2], least;
};

// The workspace: C of each part, unless there is only one; stages of all tiles of A, then of B; the
// lines of A's parts, then of B's. A part has `each` stages, or what is left of them.
template <int BM, int BN, int PARTS>
struct Workspace {
  int stages, each, row_tiles, column_tiles;
  float* sums;
  unsigned char *a, *b;
  Line *rows, *columns;

  __device__ Workspace(int M, int N, int K, void* start) {
    stages = (K + STAGE_K - 1) / STAGE_K;
    each = (stages + PARTS - 1) / PARTS;
    row_tiles = (M + BM - 1) / BM;
    column_tiles = (N + BN - 1) / BN;
    sums = (float*)start;
    a = (unsigned char*)start + (PARTS == 1 ? 0 : ((size_t)M * N * PARTS + 3) / 4 * 16);
    b = a + (size_t)row_tiles * stages * BM * LINE_BYTES;
    rows = (Line*)(b + (size_t)column_tiles * stages * BN * LINE_BYTES);
    columns = rows + (size_t)row_tiles * BM * PARTS;
  }
  __device__ int first(int part) const {
    return PARTS == 1 ? part * stages : min(part * each, stages);
  }
};

// Two floats as two halves each: hi + lo has 22 bits or more. x is in the low half of a register.
__device__ __forceinline__ void split(float x, float y, unsigned& hi, unsigned& lo) {
  float x_hi, y_hi;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(hi) : "f"(y), "f"(x));
  asm("{\n.reg .f16 x, y;\nmov.b32 {x, y}, %2;\ncvt.f32.f16 %0, x;\ncvt.f32.f16 %1, y;\n}"
      : "=f"(x_hi), "=f"(y_hi)
      : "r"(hi));
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(lo) : "f"(y - y_hi), "f"(x - x_hi));
}

__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float((unsigned)(exponent + 127) << 23);
}
// By 2^exponent, which a float need not hold: in two steps.
__device__ __forceinline__ float scaled(float x, int exponent) {
  return x * power_of_two(exponent / 2) * power_of_two(exponent - exponent / 2);
}
// Brings the largest number of a line, given as bits, to 2^14 to 2^15.
__device__ __forceinline__ int exponent_of(unsigned largest) { return 141 - (int)(largest >> 23); }

// A number that loses bits is off by 2^-25 at most, and its partner is below 2^15. All these errors
// of a line together must be below 2^-24 of the sum, an FP32 rounding.
__device__ __forceinline__ Line line_of(int exponent, unsigned small) {
  const int half = -exponent / 2;
  return {{power_of_two(half), power_of_two(-exponent - half)}, 16384.0f * (float)small};
}

__device__ __forceinline__ unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffff; }
__device__ __forceinline__ bool loses_bits(float x, float x_scaled) {
  return x != 0.0f && fabsf(x_scaled) < 0.125f;
}

// Pass 1: a block splits a part of 8 rows of A or columns of B, with 64 threads each; or of 32,
// with 16 each. 8 columns of B fill the 32 bytes of a sector. A thread keeps HELD times eight
// numbers, so as to read them once.
template <int BM, int BN, int PARTS, int HELD, int THREADS>
__global__ void __launch_bounds__(SPLITTERS) split_lines(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C,
    void* workspace) {
  constexpr int LINES = SPLITTERS / THREADS;
  const Workspace<BM, BN, PARTS> work(M, N, K, workspace);
  const int part = blockIdx.y, row_blocks = work.row_tiles * BM / LINES;
  const bool of_a = blockIdx.x < row_blocks;
  // Neighbouring threads read neighbouring floats: along a row of A, across columns of B.
  const int place = of_a ? threadIdx.x / THREADS : threadIdx.x % LINES;
  const int own = of_a ? threadIdx.x % THREADS : threadIdx.x / LINES;
  const int line = (of_a ? blockIdx.x : blockIdx.x - row_blocks) * LINES + place;
  constexpr int STEP = 8 * THREADS;
  const int begin = work.first(part) * STAGE_K + 8 * own, end = work.first(part + 1) * STAGE_K;
  const int length = line < (of_a ? M : N) ? min(K, end) : 0;  // lines that fill up a tile are zero
  const float* from = of_a ? A + (size_t)line * K : B + line;
  const size_t step = of_a ? 1 : N;
  auto at = [&](int k) { return k < length ? from[k * step] : 0.0f; };

  __shared__ unsigned largest_of[LINES], small_of[LINES];
  if (threadIdx.x < LINES) largest_of[threadIdx.x] = small_of[threadIdx.x] = 0;
  __syncthreads();  // wait: they must be zero before any thread raises them
  const bool quads = of_a && K % 4 == 0 && (size_t)A % 16 == 0;
  auto load = [&](int k, float (&x)[8]) {
    if (quads) {
      const float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      *(float4*)&x[0] = k < length ? *(const float4*)&from[k] : none;
      *(float4*)&x[4] = k + 4 < length ? *(const float4*)&from[k + 4] : none;
    } else {
      for (int i = 0; i < 8; ++i) x[i] = at(k + i);
    }
  };
  unsigned largest = 0, small = 0;
  float held[HELD][8];
#pragma unroll
  for (int h = 0; h < HELD; ++h) {
    load(begin + h * STEP, held[h]);
    for (int i = 0; i < 8; ++i) largest = max(largest, magnitude(held[h][i]));
  }
  for (int k = begin + HELD * STEP; k < end; k += STEP) {
    float x[8];
    load(k, x);
    for (int i = 0; i < 8; ++i) largest = max(largest, magnitude(x[i]));
  }
  atomicMax(&largest_of[place], largest);
  __syncthreads();  // wait: the largest magnitudes must be complete
  const int exponent = exponent_of(largest_of[place]);

  const int tile = of_a ? BM : BN;  // lines
  unsigned char* to = (of_a ? work.a : work.b) +
                      ((size_t)(line / tile) * work.stages * tile + line % tile) * LINE_BYTES;
  auto store = [&](int k, const float (&numbers)[8]) {
    unsigned hi[4], lo[4];
    for (int i = 0; i < 4; ++i) {
      const float x = numbers[2 * i], y = numbers[2 * i + 1];
      const float x_scaled = scaled(x, exponent), y_scaled = scaled(y, exponent);
      small += loses_bits(x, x_scaled) + loses_bits(y, y_scaled);
      split(x_scaled, y_scaled, hi[i], lo[i]);
    }
    unsigned char* stage = to + (size_t)(k / STAGE_K) * tile * LINE_BYTES;
    const int unit = k % STAGE_K / 8;
    *(uint4*)&stage[(unit ^ line % 8) * 16] = make_uint4(hi[0], hi[1], hi[2], hi[3]);
    *(uint4*)&stage[((unit + 4) ^ line % 8) * 16] = make_uint4(lo[0], lo[1], lo[2], lo[3]);
  };
#pragma unroll
  for (int h = 0; h < HELD; ++h) {
    if (begin + h * STEP < end) store(begin + h * STEP, held[h]);
  }
  for (int k = begin + HELD * STEP; k < end; k += STEP) {
    float x[8];
    load(k, x);
    store(k, x);
  }
  atomicAdd(&small_of[place], small);
  __syncthreads();  // wait: the counts must be complete
  if (own == 0) {
    const size_t lines = of_a ? work.row_tiles * BM : work.column_tiles * BN;
    (of_a ? work.rows : work.columns)[part * lines + line] = line_of(exponent, small_of[place]);
  }
}

__device__ __forceinline__ unsigned address(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void init(unsigned long long& bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(&bar)), "r"(count)
               : "memory");
}
__device__ __forceinline__ void arrive(unsigned long long& bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(&bar)) : "memory");
}
__device__ __forceinline__ void expect(unsigned long long& bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&bar)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void wait(unsigned long long& bar, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra AGAIN;\n}" ::"r"(address(&bar)),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void copy(void* to, const void* from, int bytes,
                                     unsigned long long& bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(address(to)),
      "l"(from), "r"(bytes), "r"(address(&bar))
      : "memory");
}

// A matrix of lines of 128 bytes along K, swizzled: PTX ISA, "Matrix Descriptor Format".
__device__ __forceinline__ unsigned long long descriptor(const void* lines) {
  return (address(lines) & 0x3FFFF) >> 4 | 1ull << 16 | 1024ull >> 4 << 32 | 1ull << 62;
}

__device__ __forceinline__ void multiply(float (&d)[32], unsigned long long a, unsigned long long b,
                                         bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, add, 1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
        "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
        "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"((int)add));
}
__device__ __forceinline__ void multiply(float (&d)[64], unsigned long long a, unsigned long long b,
                                         bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, add, 1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
        "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
        "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
        "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
        "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"((int)add));
}
__device__ __forceinline__ void multiply(float (&d)[96], unsigned long long a, unsigned long long b,
                                         bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %98, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
      "%96, %97, add, 1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
        "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
        "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
        "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
        "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]),
        "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]),
        "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]),
        "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]),
        "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
      : "l"(a), "l"(b), "r"((int)add));
}

// A row of A times a column of B in FP32, by a warp.
__device__ __forceinline__ float dot(const float* a, const float* b, int K, int N, int lane) {
  float x = 0.0f;
#pragma unroll 8
  for (int k = lane; k < K; k += 32) x += a[k] * b[(size_t)k * N];
  for (int other = 16; other > 0; other /= 2) x += __shfl_xor_sync(ALL, x, other);
  return x;
}

// Pass 2: the product, by any number of blocks; one per SM is best.
template <int BM, int BN, int STAGES, int GROUP, int PARTS>
__global__ void __launch_bounds__(384, 1) sgemm_split(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C,
    void* workspace) {
  static_assert(BM == 128, "two warp groups multiply 64 rows each");
  constexpr int A_BYTES = BM * LINE_BYTES, B_BYTES = BN * LINE_BYTES;
  constexpr int PROMOTE = 4;  // stages
  constexpr unsigned INFINITE = 0x7f800000;
  extern __shared__ __align__(1024) unsigned char buffers[];
  unsigned char(*a_stage)[A_BYTES] = (unsigned char(*)[A_BYTES])buffers;
  unsigned char(*b_stage)[B_BYTES] = (unsigned char(*)[B_BYTES])(buffers + STAGES * A_BYTES);
  unsigned long long* full = (unsigned long long*)(buffers + STAGES * (A_BYTES + B_BYTES));
  unsigned long long* empty = full + STAGES;
  const Workspace<BM, BN, PARTS> work(M, N, K, workspace);
  const int tiles = work.row_tiles * work.column_tiles;

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
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x != 0) return;
    for (int item = blockIdx.x, step = 0; item < tiles * PARTS; item += gridDim.x) {
      const int part = PARTS == 1 ? 0 : item / tiles;
      const int first = work.first(part), stages = work.first(part + 1) - first;
      int row, column;
      row_and_column(item - part * tiles, row, column);
      const unsigned char* a = work.a + ((size_t)row * work.stages + first) * A_BYTES;
      const unsigned char* b = work.b + ((size_t)column * work.stages + first) * B_BYTES;
      for (int end = step + stages; step < end; ++step) {
        const int slot = step % STAGES;
        wait(empty[slot], step / STAGES % 2 ^ 1);
        expect(full[slot], A_BYTES + B_BYTES);
        copy(a_stage[slot], a, A_BYTES, full[slot]);
        copy(b_stage[slot], b, B_BYTES, full[slot]);
        a += A_BYTES, b += B_BYTES;
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  // Of a lane of the warp: the compiler needs to know that a warp doesn't diverge at its wgmmas.
  const int warp = __shfl_sync(ALL, threadIdx.x / 32, 0) - 4, group = warp / 4;
  const int lane = threadIdx.x % 32;
  for (int item = blockIdx.x, step = 0; item < tiles * PARTS; item += gridDim.x) {
    const int part = PARTS == 1 ? 0 : item / tiles;
    const int stages = work.first(part + 1) - work.first(part);
    float acc[BN / 2], sum[BN / 2] = {};
    bool add = false, held = false;  // held: the slot of the step before is still in use
    auto release = [&](int done) {
      __syncwarp();
      if (lane == 0) arrive(empty[done % STAGES]);
    };
    for (int s = 0; s < stages; ++s, ++step) {
      const int slot = step % STAGES;
      wait(full[slot], step / STAGES % 2);
      const unsigned long long a = descriptor(a_stage[slot] + group * 64 * LINE_BYTES);
      const unsigned long long b = descriptor(b_stage[slot]);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      // 2 units of 16 bytes are 16 k; lo is 4 units behind hi. The small products first.
      multiply(acc, a + 4, b, add);
      multiply(acc, a + 6, b + 2, true);
      multiply(acc, a, b + 4, true);
      multiply(acc, a + 2, b + 6, true);
      multiply(acc, a, b, true);
      multiply(acc, a + 2, b + 2, true);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      add = true;
      // The two groups promote at different times: one multiplies while the other adds.
      if ((s + group * PROMOTE / 2) % PROMOTE == PROMOTE - 1 || s + 1 == stages) {
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (held) release(step - 1);
        release(step);
        held = add = false;
#pragma unroll
        for (int i = 0; i < BN / 2; ++i) {
          asm volatile("" : "+f"(acc[i])::"memory");  // not before the wait
          sum[i] += acc[i];
        }
      } else {
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (held) release(step - 1);
        held = true;
      }
    }

    int row, column;
    row_and_column(item - part * tiles, row, column);
    float* into = PARTS == 1 ? C : work.sums + (size_t)part * M * N;
    const float factor = PARTS == 1 ? alpha : 1.0f, keep = PARTS == 1 ? beta : 0.0f;
    const bool whole = (row + 1) * BM <= M && (column + 1) * BN <= N;
    const bool pairs = whole && keep == 0.0f && N % 2 == 0 && (size_t)into % 8 == 0;
    row = row * BM + warp * 16 + lane / 4;
    column = column * BN + lane % 4 * 2;
    const Line* rows = work.rows + (size_t)part * work.row_tiles * BM + row;
    const Line* columns = work.columns + (size_t)part * work.column_tiles * BN;
    const Line of_rows[2] = {rows[0], rows[8]};
    auto row_of = [&](int i) { return row + i % 4 / 2 * 8; };
    auto column_of = [&](int i) { return column + i / 4 * 8 + i % 2; };
    auto inside = [&](int i) { return row_of(i) < M && column_of(i) < N; };
    auto store = [&](int i, float x) {  // with beta == 0, C is not read: it may hold NaN
      float* to = &into[(size_t)row_of(i) * N + column_of(i)];
      *to = factor * x + (keep == 0.0f ? 0.0f : keep * *to);
    };
    unsigned again[BN / 64] = {};  // elements to be summed again
    auto unscaled = [&](int i) {
      const Line a = of_rows[i % 4 / 2];
      const float4 b = __ldg((const float4*)&columns[column_of(i)]);  // a Line
      const float x = sum[i] * a.unscale[0] * b.x * a.unscale[1] * b.y;
      const bool precise = fabsf(sum[i]) >= a.least + b.z && magnitude(x) < INFINITE;
      again[i / 32] |= (unsigned)!precise << i % 32;
      return x;
    };
    if (pairs) {  // without a branch
#pragma unroll
      for (int i = 0; i < BN / 2; i += 2) {
        float2* to = (float2*)&into[(size_t)row_of(i) * N + column_of(i)];
        *to = make_float2(factor * unscaled(i), factor * unscaled(i + 1));
      }
    } else {
#pragma unroll
      for (int from = 0; from < BN / 2; from += 8) {
#pragma unroll
        for (int i = from; i < from + 8; ++i) sum[i] = unscaled(i);
#pragma unroll
        for (int i = from; i < from + 8; ++i) {
          if (inside(i) && (again[i / 32] >> i % 32 & 1) == 0) store(i, sum[i]);
        }
      }
    }
#pragma unroll
    for (int word = 0; word < BN / 64; ++word) {
      // The warp sums one element after the other, of one lane after the other.
      for (unsigned lanes = __ballot_sync(ALL, again[word] != 0); lanes != 0; lanes &= lanes - 1) {
        const int whose = __ffs(lanes) - 1;
        const bool mine = lane == whose;
        for (unsigned left = __shfl_sync(ALL, again[word], whose); left != 0; left &= left - 1) {
          const int i = 32 * word + __ffs(left) - 1;
          const int r = __shfl_sync(ALL, row_of(i), whose);
          const int c = __shfl_sync(ALL, column_of(i), whose);
          if (r >= M || c >= N) continue;
          const int k = work.first(part) * STAGE_K, length = min(K - k, stages * STAGE_K);
          const float x = dot(&A[(size_t)r * K + k], &B[(size_t)k * N + c], length, N, lane);
          if (mine) store(i, x);
        }
      }
    }
  }
}

// Pass 3, of several parts: C = alpha * (their sums, in order) + beta * C.
template <int BM, int BN, int PARTS>
__global__ void __launch_bounds__(128) add_parts(int M, int N, int K, float alpha, const float* A,
                                                 const float* B, float beta, float* C,
                                                 void* workspace) {
  const Workspace<BM, BN, PARTS> work(M, N, K, workspace);
  constexpr int AT_ONCE = PARTS <= 32 ? PARTS : 32;  // loads on their way
  static_assert(PARTS % AT_ONCE == 0, "each round adds the same number of parts");
  const size_t size = (size_t)M * N;
  for (size_t i = (size_t)blockIdx.x * 128 + threadIdx.x; i < size; i += (size_t)gridDim.x * 128) {
    const float* from = work.sums + i;
    float sum = 0.0f, part[AT_ONCE];
    const float old = beta == 0.0f ? 0.0f : C[i];
    for (int p = 0; p < PARTS; p += AT_ONCE) {
      for (int q = 0; q < AT_ONCE; ++q) part[q] = from[(p + q) * size];
      for (int q = 0; q < AT_ONCE; ++q) sum += part[q];
    }
    C[i] = alpha * sum + beta * old;
  }
}
