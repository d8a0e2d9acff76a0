#include <cuda_bf16.h>
// grid: (N + 15) / 16, (M + 15) / 16   block: 16, 16
__global__ void gemm_residual(const __nv_bfloat16* A, const __nv_bfloat16* B, const __nv_bfloat16* residual, float* C, int M, int N, int K, __nv_bfloat16 alpha) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += __bfloat162float(A[row * K + k]) * __bfloat162float(B[k * N + col]);
  C[row * N + col] = __bfloat162float(alpha) * sum + __bfloat162float(residual[row * N + col]);
}
