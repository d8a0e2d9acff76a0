__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  __shared__ float As[8][8], Bs[8][8];
  const int y = threadIdx.y, x = threadIdx.x, row = blockIdx.y * 8 + y, col = blockIdx.x * 8 + x;
  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += 8) {
    As[y][x] = A[row * K + k0 + x];
    Bs[y][x] = B[(k0 + y) * N + col];
    for (int k = 0; k < 8; ++k) acc += As[y][k] * Bs[k][x];
    __syncthreads();
  }
  C[row * N + col] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col];
}
