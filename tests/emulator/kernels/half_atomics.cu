// Sums in 16 bits, one and two numbers at a time; 16-bit words are counted by compare-and-swap.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void k(__half* half, __nv_bfloat16* brain, unsigned short* count) {
  const float own = 1 + threadIdx.x % 2;
  atomicAdd(half, __float2half(own));
  const __half2 old = atomicAdd((__half2*)half + 1, __floats2half2_rn(own, 0.25f));
  atomicAdd(brain, __float2bfloat16(own));
  atomicAdd((__nv_bfloat162*)brain + 1, __floats2bfloat162_rn(own, 0.25f));
  for (unsigned short seen = 0, before = 1; seen != before;) {
    before = seen;
    seen = atomicCAS(count, before, (unsigned short)(before + 1));
  }
  if (threadIdx.x == 31) count[1] = (unsigned short)__low2float(old);
}
