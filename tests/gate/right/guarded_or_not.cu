// Two instances of one function: whole tiles have no guards
// grid: (N + 31) / 32, (M + 31) / 32
// block: 64
// domain: any
template <bool Guarded>
__device__ void tile(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                     float* C) {
  const int row = blockIdx.y * 32 + threadIdx.x / 8 * 4,
            col = blockIdx.x * 32 + threadIdx.x % 8 * 4;
  float acc[4][4] = {}, a[4], b[4];
  for (int k = 0; k < K; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      a[i] = !Guarded || row + i < M ? A[(row + i) * K + k] : 0.0f;
      b[i] = !Guarded || col + i < N ? B[k * N + col + i] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) acc[i / 4][i % 4] += a[i / 4] * b[i % 4];
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      if (Guarded && (row + i >= M || col + j >= N)) continue;
      float* c = &C[(row + i) * N + col + j];
      *c = beta == 0.0f ? alpha * acc[i][j] : alpha * acc[i][j] + beta * *c;
    }
  }
}

__global__ void sgemm_two_ways(int M, int N, int K, float alpha, const float* A, const float* B,
                               float beta, float* C) {
  const bool whole = (blockIdx.y + 1) * 32 <= M && (blockIdx.x + 1) * 32 <= N;
  whole ? tile<false>(M, N, K, alpha, A, B, beta, C) : tile<true>(M, N, K, alpha, A, B, beta, C);
}
