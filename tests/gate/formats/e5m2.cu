#include <cuda_fp16.h>
#include <cuda_fp8.h>
// grid: (N + 15) / 16, (M + 15) / 16   block: 16, 16
__global__ void gemm_e5m2(const __nv_fp8_e5m2* A, const __nv_fp8_e4m3* B, half* C,
                          const float* scale_a, const float* scale_b, int M, int N, int K) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum = float(sum) + float(A[row * K + k]) * float(B[k * N + col]);
  C[row * N + col] = half(*scale_a * *scale_b * float(sum));
}
