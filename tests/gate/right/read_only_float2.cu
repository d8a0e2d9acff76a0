// __ldg of float2, launch bounds with a minimum of blocks, and restrict everywhere
// grid: N / 64, (M + 7) / 8
// block: 256
// domain: N % 64 == 0, K % 2 == 0, B, C % 8 bytes, A % 8 bytes
__global__ void __launch_bounds__(256, 2) gemm_ldg(
    int M, int N, int K, float alpha, const float* __restrict__ A, const float* __restrict__ B,
    float beta, float* __restrict__ C) {
  const int row = blockIdx.y * 8 + (threadIdx.x >> 5);
  const int col = blockIdx.x * 64 + ((threadIdx.x & 31) << 1);
  if (row >= M) return;
  float2 acc = {0.0f, 0.0f};
#pragma unroll 4
  for (int k = 0; k < K; k += 2) {
    const float2 a = __ldg(reinterpret_cast<const float2*>(A + (size_t)row * K + k));
    const float2 b0 = __ldg(reinterpret_cast<const float2*>(B + (size_t)k * N + col));
    const float2 b1 = __ldg(reinterpret_cast<const float2*>(B + (size_t)(k + 1) * N + col));
    acc.x = fmaf(a.y, b1.x, fmaf(a.x, b0.x, acc.x));
    acc.y = fmaf(a.y, b1.y, fmaf(a.x, b0.y, acc.y));
  }
  float2* c = reinterpret_cast<float2*>(C + (size_t)row * N + col);
  float2 old = make_float2(0.0f, 0.0f);
  if (beta != 0.0f) old = *c;
  __stcs(c, make_float2(alpha * acc.x + beta * old.x, alpha * acc.y + beta * old.y));
}
