// A textbook's coarse threads: each computes a column in four tiles side by side
// domain: any
#define TILE_WIDTH 16
#define COARSE_FACTOR 4

__global__ void matmul_coarsened(const float* A, const float* B, float* C, int M, int N, int K,
                                 float alpha, float beta) {
  __shared__ float A_s[TILE_WIDTH][TILE_WIDTH];
  __shared__ float B_s[TILE_WIDTH][TILE_WIDTH];
  unsigned int row = blockIdx.y * TILE_WIDTH + threadIdx.y;
  unsigned int colStart = blockIdx.x * TILE_WIDTH * COARSE_FACTOR + threadIdx.x;
  float sum[COARSE_FACTOR];
  for (unsigned int c = 0; c < COARSE_FACTOR; ++c) sum[c] = 0.0f;
  for (unsigned int tile = 0; tile < (K + TILE_WIDTH - 1) / TILE_WIDTH; ++tile) {
    unsigned int ka = tile * TILE_WIDTH + threadIdx.x, kb = tile * TILE_WIDTH + threadIdx.y;
    A_s[threadIdx.y][threadIdx.x] = (row < M && ka < K) ? A[row * K + ka] : 0.0f;
    for (unsigned int c = 0; c < COARSE_FACTOR; ++c) {
      unsigned int col = colStart + c * TILE_WIDTH;
      B_s[threadIdx.y][threadIdx.x] = (kb < K && col < N) ? B[kb * N + col] : 0.0f;
      __syncthreads();
      for (unsigned int i = 0; i < TILE_WIDTH; ++i)
        sum[c] += A_s[threadIdx.y][i] * B_s[i][threadIdx.x];
      __syncthreads();
    }
  }
  for (unsigned int c = 0; c < COARSE_FACTOR; ++c) {
    unsigned int col = colStart + c * TILE_WIDTH;
    if (row < M && col < N) {
      C[row * N + col] = beta == 0.0f ? alpha * sum[c] : alpha * sum[c] + beta * C[row * N + col];
    }
  }
}

void launch(const float* A, const float* B, float* C, int M, int N, int K, float alpha,
            float beta) {
  dim3 threads(TILE_WIDTH, TILE_WIDTH);
  dim3 blocks((N + TILE_WIDTH * COARSE_FACTOR - 1) / (TILE_WIDTH * COARSE_FACTOR),
              (M + TILE_WIDTH - 1) / TILE_WIDTH);
  matmul_coarsened<<<blocks, threads>>>(A, B, C, M, N, K, alpha, beta);
}
