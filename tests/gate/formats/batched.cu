#include <cuda_fp16.h>
__global__ void bgemm(const half* A, const half* B, half* C, int M, int N, int K, long long strideA, long long strideB, long long strideC) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x, z = blockIdx.z;
  if (row >= M || col >= N) return;
  A += z * strideA; B += z * strideB; C += z * strideC;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += __half2float(A[row * K + k]) * __half2float(B[k * N + col]);
  C[row * N + col] = __float2half(sum);
}
void run(const half* A, const half* B, half* C, int M, int N, int K, int batch) {
  dim3 block(16, 16), grid((N + 15) / 16, (M + 15) / 16, batch);
  bgemm<<<grid, block>>>(A, B, C, M, N, K, (long long)M * K, (long long)K * N, (long long)M * N);
}
