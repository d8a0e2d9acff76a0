#include <cuda_fp16.h>
// grid: (N + 15) / 16, (M + 15) / 16   block: 16, 16
__global__ void hgemm(int M, int N, int K, float alpha, const half* A, const half* B, float beta, half* C) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += __half2float(A[row * K + k]) * __half2float(B[k * N + col]);
  float old = beta == 0 ? 0.0f : beta * __half2float(C[row * N + col]);
  C[row * N + col] = __float2half(alpha * sum + old);
}
