#include <cuda_bf16.h>
// grid: (N + 15) / 16, (M + 15) / 16   block: 16, 16
__global__ void gemm(int M, int N, int K, float alpha, const __nv_bfloat16* A, const __nv_bfloat16* B, float beta, __nv_bfloat16* C) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += __bfloat162float(A[row * K + k]) * __bfloat162float(B[k * N + col]);
  float old = beta == 0 ? 0.0f : beta * __bfloat162float(C[row * N + col]);
  C[row * N + col] = __float2bfloat16(alpha * sum + old);
}
