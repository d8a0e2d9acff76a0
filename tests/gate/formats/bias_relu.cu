// grid: (N + 15) / 16, (M + 15) / 16   block: 16, 16   epilogue: relu
__global__ void linear_relu(const float* A, const float* B, const float* bias, float* C, int M, int N, int K) {
  __shared__ float As[16][16], Bs[16][16];
  int ty = threadIdx.y, tx = threadIdx.x, row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
  float sum = 0;
  for (int k = 0; k < K; k += 16) {
    As[ty][tx] = row < M && k + tx < K ? A[row * K + k + tx] : 0;
    Bs[ty][tx] = col < N && k + ty < K ? B[(k + ty) * N + col] : 0;
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += As[ty][i] * Bs[i][tx];
    __syncthreads();
  }
  if (row < M && col < N) C[row * N + col] = fmaxf(sum + bias[col], 0.0f);
}
