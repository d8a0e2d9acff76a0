// 25 · Warp groups
// Run:     worklog run wgmma
//          or: nvcc -gencode arch=compute_90a,code=sm_90a -DRUNG=25 main.cu && ./a.out 4096
//
// Before:  each warp loaded its operands into registers, split them, and multiplied them with
//          mma.sync. The tensor cores were 18 % busy.
// Now:     two warp groups multiply with wgmma, which reads both operands from shared memory. Three
//          others split, with two threads for each row of A and column of B, which cp.async brings.
//          They hand stages of 32 k over with mbarriers.
// Why:     each number is split once per block instead of once per warp that needs it, and copying,
//          splitting and multiplying overlap: tensor cores 28 % busy, 2.3 times as fast at 4096.
// Costs:   a line's scale is that of a stage, since the rest isn't known yet. So the product of
//          each stage is unscaled when it is promoted: two FP32 operations per element and 32 k.
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0, A, B % 16 bytes, any data. A number below 2^-17
//          of its line's largest in the stage loses bits as a half. Splitters count these, and each
//          element of C for which they might matter is summed again with FFMAs; so too each one
//          that isn't finite. If most of them need it, the kernel is slower than the plain ones.
// Tile:    BM=128 BN=128 BK=32 STAGES=4 RAW=2
// Launch:  grid N / BN, M / BM   block 640   shared 193648
//
// A line is a row of A or a column of B. Per stage it has 128 bytes: 32 hi, then 32 lo. Its 16-byte
// parts are swizzled, so that 8 lines fill 8 x 128 bytes without bank conflicts. One block computes
// a BM x BN tile of C.

constexpr int LINE_BYTES = 128;
constexpr unsigned ALL = 0xffffffff;  // lanes
constexpr int SPLITTERS = 3;          // warp groups
// Floats between rows of A, and between the halves of B: the threads of a warp read from 32 banks.
constexpr int A_PITCH = 32 + 4, B_HALF = 16 * 64 + 16;

struct Line {
  unsigned largest;   // magnitude, as bits
  unsigned small;     // numbers that lose bits
  unsigned coarsest;  // unscale of those, as bits
};

// Bound of the sum of the bits lost in a line.
__device__ __forceinline__ float lost_in(const Line& line) {
  return (float)line.small * (__uint_as_float(line.coarsest) * 0x1p-25f);
}

template <int BM, int BN, int BK, int STAGES, int RAW>
struct Shared {
  unsigned char a[STAGES][BM * LINE_BYTES], b[STAGES][BN * LINE_BYTES];
  float raw[SPLITTERS][RAW][64 * A_PITCH];  // 64 rows of A or columns of B
  float unscale_a[STAGES][BM], unscale_b[STAGES][BN];
  Line lines[BM + BN];  // rows, then columns
  unsigned long long full[STAGES], empty[STAGES], filled[SPLITTERS][RAW];
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
// This thread arrives once its copies so far are complete.
__device__ __forceinline__ void arrive_after_copies(unsigned long long& bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address(&bar)) : "memory");
}
__device__ __forceinline__ void wait(unsigned long long& bar, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra AGAIN;\n}" ::"r"(address(&bar)),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void copy(float* to, const float* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address(to)), "l"(from)
               : "memory");
}

// A matrix of lines of 128 bytes along K, swizzled: PTX ISA, "Matrix Descriptor Format".
__device__ __forceinline__ unsigned long long descriptor(const void* lines) {
  return (address(lines) & 0x3FFFF) >> 4 | 1ull << 16 | 1024ull >> 4 << 32 | 1ull << 62;
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

// Splits half of the 32 numbers of a line; the lane 16 further has the other half. Returns the
// power of two that takes the parts back.
__device__ __forceinline__ float split_line(const float (&x)[16], int half, int number,
                                            unsigned char* parts, Line& line) {
  // Four chains, since each step of one waits for the step before. Zeros less 1 are the largest.
  float high[4] = {};
  unsigned low[4] = {ALL, ALL, ALL, ALL};
  for (int i = 0; i < 16; ++i) {
    high[i % 4] = fmaxf(high[i % 4], fabsf(x[i]));
    low[i % 4] = min(low[i % 4], 2 * __float_as_uint(x[i]) - 1);  // without the sign
  }
  float largest = fmaxf(fmaxf(high[0], high[1]), fmaxf(high[2], high[3]));
  largest = fmaxf(largest, __shfl_xor_sync(ALL, largest, 16));
  if (half == 0) atomicMax(&line.largest, __float_as_uint(largest));
  // The scale brings the largest number to 2^14 to 2^15, if a float can hold it.
  const unsigned exponent = max(__float_as_uint(largest) >> 23, 15u);
  const float scale = __uint_as_float((268 - exponent) << 23);
  const float unscale = __uint_as_float((exponent - 14) << 23);
  const unsigned least = __float_as_uint(0.125f * unscale);  // of a number that keeps 22 bits
  if (min(min(low[0], low[1]), min(low[2], low[3])) < 2 * least - 1) {
    unsigned small = 0;
    for (int i = 0; i < 16; ++i) small += __float_as_uint(fabsf(x[i])) - 1 < least - 1;
    atomicAdd(&line.small, small);
    atomicMax(&line.coarsest, __float_as_uint(unscale));
  }
  for (int p = 0; p < 2; ++p) {
    unsigned hi[4], lo[4];
    for (int i = 0; i < 4; ++i) {
      split(scale * x[8 * p + 2 * i], scale * x[8 * p + 2 * i + 1], hi[i], lo[i]);
    }
    unsigned char* to = parts + number * LINE_BYTES;
    const int part = 2 * half + p;
    *(uint4*)&to[(part ^ number % 8) * 16] = make_uint4(hi[0], hi[1], hi[2], hi[3]);
    *(uint4*)&to[((part + 4) ^ number % 8) * 16] = make_uint4(lo[0], lo[1], lo[2], lo[3]);
  }
  return unscale;
}

// A row of A times a column of B in FP32, by a warp.
__device__ __forceinline__ float dot(const float* a, const float* b, int K, int N, int lane) {
  float x = 0.0f;
#pragma unroll 8
  for (int k = lane; k < K; k += 32) x += a[k] * b[(size_t)k * N];
  for (int other = 16; other > 0; other /= 2) x += __shfl_xor_sync(ALL, x, other);
  return x;
}

template <int BM, int BN, int BK, int STAGES, int RAW>
__global__ void __launch_bounds__(640, 1) sgemm_wgmma(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  static_assert(BM == 128 && BN == 128 && BK == 32, "two threads split each line, of 128 bytes");
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *(Shared<BM, BN, BK, STAGES, RAW>*)memory;
  // Of a lane of the warp: the compiler needs to know that a warp doesn't diverge at its wgmmas.
  const int warp = __shfl_sync(ALL, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int stages = K / BK;
  A += (size_t)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (size_t)blockIdx.y * BM * N + blockIdx.x * BN;

  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      init(shared.full[s], 16);  // a lane of each splitting warp
      init(shared.empty[s], 8);  // a lane of each multiplying warp
    }
    for (int s = 0; s < SPLITTERS * RAW; ++s) init(shared.filled[s / RAW][s % RAW], 128);
  }
  if (threadIdx.x < BM + BN) shared.lines[threadIdx.x] = {};
  __syncthreads();  // wait: the mbarriers must be initialised before any thread uses them

  auto hand_over = [&](unsigned long long& bar) {  // a warp to those that wait for it
    __syncwarp();
    if (lane == 0) arrive(bar);
  };

  if (warp < 4 * SPLITTERS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    const int group = warp / 4, thread = threadIdx.x % 128, half = lane / 16;
    const int line = warp % 4 * 16 + lane % 16;
    // A stage has four items: twice 64 rows of A, twice 64 columns of B. The groups take turns.
    const int items = 4 * stages;
    auto fetch = [&](int item, int raw) {
      const int s = item / 4, first = item % 2 * 64;
      float* to = shared.raw[group][raw];
      if (item % 4 < 2) {  // eight threads copy a row
        const int row = thread / 8, part = thread % 8 * 4;
        const float* from = &A[(size_t)(first + row) * K + s * BK + part];
        for (int r = 0; r < 64; r += 16) {
          copy(&to[(row + r) * A_PITCH + part], from + (size_t)r * K);
        }
      } else {  // 16 threads copy a row
        const int row = thread / 16, part = thread % 16 * 4;
        const float* from = &B[(size_t)(s * BK + row) * N + first + part];
        for (int r = 0; r < BK; r += 8) {
          copy(&to[r / 16 * B_HALF + (row + r % 16) * 64 + part], from + (size_t)r * N);
        }
      }
      arrive_after_copies(shared.filled[group][raw]);
    };
    for (int i = 0; i < RAW && group + i * SPLITTERS < items; ++i) fetch(group + i * SPLITTERS, i);
    for (int item = group, turn = 0; item < items; item += SPLITTERS, ++turn) {
      const int s = item / 4, slot = s % STAGES, raw = turn % RAW;
      const bool of_a = item % 4 < 2;
      wait(shared.filled[group][raw], turn / RAW % 2);
      const float* from = shared.raw[group][raw];
      float x[16];
      if (of_a) {
        for (int i = 0; i < 16; i += 4) {
          *(float4*)&x[i] = *(const float4*)&from[line * A_PITCH + 16 * half + i];
        }
      } else {
        for (int i = 0; i < 16; ++i) x[i] = from[half * B_HALF + i * 64 + line];
      }
      // Wait: the group's next copy overwrites what its threads read.
      asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
      if (item + RAW * SPLITTERS < items) fetch(item + RAW * SPLITTERS, raw);
      wait(shared.empty[slot], s / STAGES % 2 ^ 1);
      const int number = item % 2 * 64 + line;
      const float back = split_line(x, half, number, (of_a ? shared.a : shared.b)[slot],
                                    shared.lines[of_a ? number : BM + number]);
      if (half == 0) (of_a ? shared.unscale_a : shared.unscale_b)[slot][number] = back;
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // wgmma must see the parts
      hand_over(shared.full[slot]);
    }
    asm volatile("bar.arrive 5, 640;" ::: "memory");
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 152;");
  const int group = warp / 4 - SPLITTERS;
  const int row = (warp - 4 * SPLITTERS) * 16 + lane / 4, col = lane % 4 * 2;
  float acc[BN / 2], sum[BN / 2] = {};
  for (int s = 0; s < stages; ++s) {
    const int slot = s % STAGES;
    wait(shared.full[slot], s / STAGES % 2);
    const unsigned long long a = descriptor(shared.a[slot] + group * 64 * LINE_BYTES);
    const unsigned long long b = descriptor(shared.b[slot]);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    // 2 units of 16 bytes are 16 k; lo is 4 units behind hi. The small products first.
    multiply(acc, a + 4, b, false);
    multiply(acc, a + 6, b + 2, true);
    multiply(acc, a, b + 4, true);
    multiply(acc, a + 2, b + 6, true);
    multiply(acc, a, b, true);
    multiply(acc, a + 2, b + 2, true);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    const float by_row[2] = {shared.unscale_a[slot][row], shared.unscale_a[slot][row + 8]};
#pragma unroll
    for (int i = 0; i < BN / 2; ++i) {
      asm volatile("" : "+f"(acc[i])::"memory");  // not before the wait
      const float by_column = shared.unscale_b[slot][col + i / 4 * 8 + i % 2];
      sum[i] += acc[i] * by_column * by_row[i % 4 / 2];
    }
    hand_over(shared.empty[slot]);
  }

  asm volatile("bar.sync 5, 640;" ::: "memory");  // wait: what all lines have lost must be known
  auto row_of = [&](int i) { return row + i % 4 / 2 * 8; };
  auto column_of = [&](int i) { return col + i / 4 * 8 + i % 2; };
  auto store = [&](int i, float x) {  // with beta == 0, C is not read: it may hold NaN
    float* to = &C[(size_t)row_of(i) * N + column_of(i)];
    *to = alpha * x + (beta == 0.0f ? 0.0f : beta * *to);
  };
  unsigned again[BN / 64] = {};  // elements to be summed again
#pragma unroll
  for (int i = 0; i < BN / 2; ++i) {
    const Line a = shared.lines[row_of(i)], b = shared.lines[BM + column_of(i)];
    const float lost = lost_in(a) * __uint_as_float(b.largest) +
                       __uint_as_float(a.largest) * lost_in(b);
    const bool precise = fabsf(sum[i]) >= 0x1p24f * lost && fabsf(sum[i]) <= 0x1.fffffep127f;
    again[i / 32] |= (unsigned)!precise << i % 32;
  }
  if (beta == 0.0f && (size_t)C % 8 == 0) {  // without a branch
#pragma unroll
    for (int i = 0; i < BN / 2; i += 2) {
      float2* to = (float2*)&C[(size_t)row_of(i) * N + column_of(i)];
      *to = make_float2(alpha * sum[i], alpha * sum[i + 1]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < BN / 2; ++i) {
      if ((again[i / 32] >> i % 32 & 1) == 0) store(i, sum[i]);
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
        const float x = dot(&A[(size_t)r * K], &B[c], K, N, lane);
        if (mine) store(i, x);
      }
    }
  }
}
