#include <cuda_fp16.h>
// epilogue: relu   grid: (N + 15) / 16, (M + 15) / 16, batch   block: 16, 16
__global__ void bgemm(const half* A, const half* B, half* C, const half* residual, const float* bias, int M, int N, int K, long long strideA, long long strideB, long long strideC, int batch, float alpha) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x, z = blockIdx.z;
  if (row >= M || col >= N || z >= batch) return;
  A += z * strideA; B += z * strideB; C += z * strideC; residual += z * strideC;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += __half2float(A[row * K + k]) * __half2float(B[k * N + col]);
  C[row * N + col] = __float2half(fmaxf(alpha * sum + bias[col] + __half2float(residual[row * N + col]), 0.0f));
}
