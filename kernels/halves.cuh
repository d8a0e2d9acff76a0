// A number as two halves, and FFMAs where these are not precise enough: rungs 25 and 26.
#pragma once

constexpr int LINE_BYTES = 128;       // of a row of A or a column of B, per stage
constexpr unsigned ALL = 0xffffffff;  // lanes

// Two floats as two halves each: hi + lo has 22 bits or more. x is in the low half of a register.
__device__ __forceinline__ void split(float x, float y, unsigned& hi, unsigned& lo) {
  float x_hi, y_hi;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(hi) : "f"(y), "f"(x));
  asm("{\n.reg .f16 x, y;\nmov.b32 {x, y}, %2;\ncvt.f32.f16 %0, x;\ncvt.f32.f16 %1, y;\n}"
      : "=f"(x_hi), "=f"(y_hi)
      : "r"(hi));
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(lo) : "f"(y - y_hi), "f"(x - x_hi));
}

// A row of A times a column of B in FP32, by a warp.
__device__ __forceinline__ float dot(const float* a, const float* b, int K, int N, int lane) {
  float x = 0.0f;
#pragma unroll 8
  for (int k = lane; k < K; k += 32) x += a[k] * b[(size_t)k * N];
  for (int other = 16; other > 0; other /= 2) x += __shfl_xor_sync(ALL, x, other);
  return x;
}
