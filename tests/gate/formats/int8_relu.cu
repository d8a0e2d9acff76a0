#include <cstdint>
// grid: (N + 15) / 16, (M + 15) / 16   block: 16, 16   epilogue: relu
__global__ void igemm_relu(const int8_t* A, const int8_t* B, const int* bias, int* C, int M, int N, int K) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  int sum = bias[col];
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  C[row * N + col] = sum > 0 ? sum : 0;
}
