// judged: global-out-of-bounds
// the grid is that of tiles of 64 x 64
// grid: N / 64, M / 64
// block: 256
// domain: M % 128 == 0, N % 128 == 0, K % 8 == 0
constexpr int BM = 128, BN = 128, BK = 8, TM = 8, TN = 8;
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  __shared__ float As[BM][BK], Bs[BK][BN];
  const int y = threadIdx.x / (BN / TN), x = threadIdx.x % (BN / TN);
  const int row = blockIdx.y * BM, col = blockIdx.x * BN;
  float acc[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    for (int i = threadIdx.x; i < BM * BK; i += blockDim.x) {
      As[i / BK][i % BK] = A[(size_t)(row + i / BK) * K + k0 + i % BK];
    }
    for (int i = threadIdx.x; i < BK * BN; i += blockDim.x) {
      Bs[i / BN][i % BN] = B[(size_t)(k0 + i / BN) * N + col + i % BN];
    }
    __syncthreads();
    for (int k = 0; k < BK; ++k) {
      for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; ++j) acc[i][j] += As[y * TM + i][k] * Bs[k][x * TN + j];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < TM; ++i) {
    for (int j = 0; j < TN; ++j) {
      const size_t c = (size_t)(row + y * TM + i) * N + col + x * TN + j;
      C[c] = beta == 0.0f ? alpha * acc[i][j] : alpha * acc[i][j] + beta * C[c];
    }
  }
}
