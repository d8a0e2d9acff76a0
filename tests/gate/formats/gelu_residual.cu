#include <cuda_fp16.h>
// grid: (N + 15) / 16, (M + 15) / 16   block: 16, 16   epilogue: gelu
__global__ void gemm_gelu(int M, int N, int K, half alpha, const half* A, const half* B, half beta, half* C, const half* bias, const half* residual) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += __half2float(A[row * K + k]) * __half2float(B[k * N + col]);
  float x = __half2float(alpha) * sum + __half2float(bias[col]) + __half2float(residual[row * N + col]);
  if (__half2float(beta) != 0) x += __half2float(beta) * __half2float(C[row * N + col]);
  C[row * N + col] = __float2half(0.5f * x * (1.0f + erff(x * 0.70710678f)));
}
