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

#include "halves.cuh"
#include "wgmma.cuh"

constexpr int SPLITTERS = 3;  // warp groups
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
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");  // needs sm_90a, as wgmma does
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
