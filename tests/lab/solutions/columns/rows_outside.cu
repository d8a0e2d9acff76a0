// judged: right
// the loop over rows is outside, and constants are written out
// grid: N / 32, M / 64
// block: 32, 8
// domain: M % 64 == 0, N % 32 == 0, K % 16 == 0
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  __shared__ float a_tile[64][16];
  __shared__ float b_tile[16][32];
  const int thread = threadIdx.y * 32 + threadIdx.x;
  A += (size_t)blockIdx.y * 64 * K;
  B += blockIdx.x * 32;
  C += (size_t)blockIdx.y * 64 * N + blockIdx.x * 32;
  float sums[8] = {0.0f};
  for (int first = 0; first < K; first += 16) {
    for (int i = thread; i < 1024; i += 256) a_tile[i / 16][i % 16] = A[(size_t)(i / 16) * K + first + i % 16];
    for (int i = thread; i < 512; i += 256) b_tile[i / 32][i % 32] = B[(size_t)(first + i / 32) * N + i % 32];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 8; ++r) {
#pragma unroll
      for (int k = 0; k < 16; ++k) sums[r] += a_tile[threadIdx.y * 8 + r][k] * b_tile[k][threadIdx.x];
    }
    __syncthreads();
  }
  for (int r = 0; r < 8; ++r) {
    float* c = &C[(size_t)(threadIdx.y * 8 + r) * N + threadIdx.x];
    *c = beta == 0.0f ? alpha * sums[r] : alpha * sums[r] + beta * *c;
  }
}
