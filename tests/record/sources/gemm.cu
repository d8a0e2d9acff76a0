__global__ void matmul(int M, int N, int K, const float* A, const float* B, float* C) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
  C[row * N + col] = sum;
}
void run(int M, int N, int K, float* A, float* B, float* C) {
  matmul<<<dim3(N / 16, M / 16), dim3(16, 16)>>>(M, N, K, A, B, C);
}
