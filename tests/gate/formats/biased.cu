#include <cuda_bf16.h>
// grid: (N + 15) / 16, (M + 15) / 16   block: 16, 16
__global__ void gemm_bias(const __nv_bfloat16* A, const __nv_bfloat16* B, const float* bias, float* C, int M, int N, int K, int batch_count) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  for (int z = 0; z < batch_count; ++z) {
    float sum = bias[col];
    for (int k = 0; k < K; ++k) sum += __bfloat162float(A[((size_t)z * M + row) * K + k]) * __bfloat162float(B[((size_t)z * K + k) * N + col]);
    C[((size_t)z * M + row) * N + col] = sum;
  }
}
