// grid: (N + 15) / 16, (M + 15) / 16   block: 16, 16   epilogue: gelu_tanh
__global__ void gemm_gelu_tanh(const float* A, const float* B, const float* D, float* C, int M, int N, int K) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  float x = D[row * N + col];
  for (int k = 0; k < K; ++k) x += A[row * K + k] * B[k * N + col];
  C[row * N + col] = 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}
