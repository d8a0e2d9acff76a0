// Shared memory in units of float4, swizzled by XOR with the row
// grid: N / 32, M / 32
// block: 8, 8
// domain: M % 32 == 0, N % 32 == 0, K % 32 == 0
template <int Bits>
__device__ __forceinline__ int swizzle(int row, int unit) {
  return unit ^ (row & ((1 << Bits) - 1));
}

__global__ void gemm_swizzle(int M, int N, int K, float alpha, const float* __restrict__ A,
                             const float* __restrict__ B, float beta, float* __restrict__ C) {
  __shared__ float4 sA[32][8], sB[32][8];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const float4* gA = reinterpret_cast<const float4*>(A + blockIdx.y * 32 * K);
  const float4* gB = reinterpret_cast<const float4*>(B + blockIdx.x * 32);
  float4 acc[4] = {};
  for (int k0 = 0; k0 < K; k0 += 32) {
#pragma unroll
    for (int i = ty; i < 32; i += 8) {
      sA[i][swizzle<3>(i, tx)] = gA[i * (K / 4) + k0 / 4 + tx];
      sB[i][swizzle<3>(i, tx)] = gB[(k0 + i) * (N / 4) + tx];
    }
    __syncthreads();
#pragma unroll 4
    for (int k = 0; k < 32; ++k) {
      const float4 b = sB[k][swizzle<3>(k, tx)];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = ty + 8 * i;
        const float a = reinterpret_cast<const float*>(&sA[row][swizzle<3>(row, k / 4)])[k % 4];
        acc[i].x += a * b.x;
        acc[i].y += a * b.y;
        acc[i].z += a * b.z;
        acc[i].w += a * b.w;
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    float4* c =
        reinterpret_cast<float4*>(C + (blockIdx.y * 32 + ty + 8 * i) * N) + blockIdx.x * 8 + tx;
    float4 d = beta == 0.0f ? make_float4(0, 0, 0, 0) : *c;
    d.x = fmaf(alpha, acc[i].x, beta * d.x);
    d.y = fmaf(alpha, acc[i].y, beta * d.y);
    d.z = fmaf(alpha, acc[i].z, beta * d.z);
    d.w = fmaf(alpha, acc[i].w, beta * d.w);
    *c = d;
  }
}
