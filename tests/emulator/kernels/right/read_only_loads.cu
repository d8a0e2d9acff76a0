// Loads through the read-only cache, stores that bypass L1.
extern "C" __global__ void k(
    int M, int N, int K, const float* __restrict__ A, const float* __restrict__ B, float* C) {
  const int y = threadIdx.y, x = threadIdx.x, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
  float acc = 0;
#pragma unroll 8
  for (int k = 0; k < K; ++k) acc = fmaf(__ldg(A + row * K + k), __ldcg(B + k * N + col), acc);
  __stcs(C + row * N + col, acc);
}
