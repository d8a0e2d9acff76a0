#include <cuda_fp16.h>
// grid: (N / 2 + 15) / 16, (M + 15) / 16   block: 16, 16   domain: N % 2 == 0
__global__ void hgemm_half2(half* a, half* b, half* c, const int M, const int N, const int K) {
  int n = (blockIdx.x * 16 + threadIdx.x) * 2, m = blockIdx.y * 16 + threadIdx.y;
  if (m >= M || n >= N) return;
  float2 sum = {0.f, 0.f};
  for (int k = 0; k < K; ++k) {
    float av = __half2float(a[m * K + k]);
    float2 bv = __half22float2(*reinterpret_cast<half2*>(&b[k * N + n]));
    sum.x += av * bv.x; sum.y += av * bv.y;
  }
  *reinterpret_cast<half2*>(&c[m * N + n]) = __floats2half2_rn(sum.x, sum.y);
}
