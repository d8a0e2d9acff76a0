// Loads, multiply-adds, barriers and stores in PTX
// grid: N / 16, M / 16
// block: 4, 16
// domain: M % 16 == 0, N % 16 == 0, K % 16 == 0
__device__ __forceinline__ float4 ldg128(const float* p) {
  float4 v;
  asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p));
  return v;
}
__device__ __forceinline__ void sts128(unsigned at, float4 v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(v.x), "f"(v.y), "f"(v.z),
               "f"(v.w)
               : "memory");
}
__device__ __forceinline__ float lds32(unsigned at) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at));
  return v;
}
__device__ __forceinline__ float4 lds128(unsigned at) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(at));
  return v;
}
__device__ __forceinline__ void ffma(float& d, float a, float b) {
  asm("fma.rn.f32 %0, %1, %2, %0;" : "+f"(d) : "f"(a), "f"(b));
}

__global__ void sgemm_ptx(int M, int N, int K, float alpha, const float* A, const float* B,
                          float beta, float* C) {
  __shared__ float4 smem[2][16][4];
  const unsigned a_tile = (unsigned)__cvta_generic_to_shared(&smem[0]);
  const unsigned b_tile = a_tile + 1024;
  const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y,
            col = blockIdx.x * 16 + 4 * x;
  float4 acc = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int k0 = 0; k0 < K; k0 += 16) {
    sts128(a_tile + 64 * y + 16 * x, ldg128(A + row * K + k0 + 4 * x));
    sts128(b_tile + 64 * y + 16 * x, ldg128(B + (k0 + y) * N + col));
    asm volatile("bar.sync 1, 64;" ::: "memory");
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      const float a = lds32(a_tile + 64 * y + 4 * k);
      const float4 b = lds128(b_tile + 64 * k + 16 * x);
      ffma(acc.x, a, b.x);
      ffma(acc.y, a, b.y);
      ffma(acc.z, a, b.z);
      ffma(acc.w, a, b.w);
    }
    asm volatile("bar.sync 1, 64;" ::: "memory");
  }
  float4* c = (float4*)(C + row * N + col);
  float4 old = {0.0f, 0.0f, 0.0f, 0.0f};
  if (beta != 0.0f) old = *c;
  *c = {alpha * acc.x + beta * old.x, alpha * acc.y + beta * old.y, alpha * acc.z + beta * old.z,
        alpha * acc.w + beta * old.w};
}
