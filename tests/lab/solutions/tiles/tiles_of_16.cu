// judged: right
// half of the reuse, and another order of the copies
// grid: N / 16, M / 16
// block: 16, 16
// domain: M % 16 == 0, N % 16 == 0, K % 16 == 0
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  __shared__ float a_tile[16][16];
  __shared__ float b_tile[16][16];
  const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  float acc = 0.0f;
  for (int tile = 0; tile < K / 16; ++tile) {
    b_tile[threadIdx.y][threadIdx.x] = B[(size_t)(16 * tile + threadIdx.y) * N + col];
    a_tile[threadIdx.y][threadIdx.x] = A[(size_t)row * K + 16 * tile + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; ++k) acc += a_tile[threadIdx.y][k] * b_tile[k][threadIdx.x];
    __syncthreads();
  }
  const size_t c = (size_t)row * N + col;
  C[c] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[c];
}
