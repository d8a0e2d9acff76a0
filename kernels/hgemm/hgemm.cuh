// What the kernels of this folder share: the copy of 16 bytes, and the store of a tile of C.
#pragma once
#include <cuda_fp16.h>

constexpr unsigned ALL = 0xffffffff;  // lanes

// From global to shared memory, past L1 and the registers.
__device__ __forceinline__ void copy_16_bytes(unsigned to, const half* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// Two sums as halves, x in the low half of a register.
__device__ __forceinline__ unsigned rounded(float x, float y) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
  return pair;
}

// Transposes 4 x 4 words: word j of lane t of each quad becomes word t of lane j.
__device__ __forceinline__ void transpose(unsigned (&words)[4], int t) {
#pragma unroll
  for (int bit = 1; bit < 4; bit *= 2) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j & bit) continue;
      unsigned &low = words[j], &high = words[j | bit];
      const unsigned received = __shfl_xor_sync(ALL, t & bit ? low : high, bit);
      (t & bit ? low : high) = received;
    }
  }
}

// A product leaves columns 8 j + 2 t and 8 j + 2 t + 1 of a row in lane t of a quad. Returns the 8
// columns from 8 t on, of the 32 that sums[0], sums[4], … begin.
__device__ __forceinline__ uint4 columns_of_lane(const float* sums, int t) {
  unsigned words[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) words[j] = rounded(sums[4 * j], sums[4 * j + 1]);
  transpose(words, t);
  return make_uint4(words[0], words[1], words[2], words[3]);
}
