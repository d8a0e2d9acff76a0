#include <cstdint>
// Quantised per token and per channel.   grid: (N + 15) / 16, (M + 15) / 16   block: 16, 16
__global__ void w8a8(const int8_t* A, const int8_t* B, float* C, const float* scale_a, const float* scale_b, int M, int N, int K) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  int sum = 0;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  C[row * N + col] = sum * scale_a[row] * scale_b[col];
}
