#include <cuda_fp16.h>
// grid: (N + 15) / 16, (M + 15) / 16   block: 16, 16   by columns: B
__global__ void hgemm_nt(const half* A, const half* B, float* C, int M, int N, int K, int lda, int ldb, int ldc) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += __half2float(A[row * lda + k]) * __half2float(B[col * ldb + k]);
  C[row * ldc + col] = sum;
}
