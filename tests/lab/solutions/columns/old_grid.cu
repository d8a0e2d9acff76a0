// judged: global-out-of-bounds
// the grid is that of tiles of 32 x 32
// grid: N / 32, M / 32
// block: 512
// domain: M % 64 == 0, N % 64 == 0, K % 8 == 0
constexpr int BM = 64, BN = 64, BK = 8, TM = 8;
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  __shared__ float As[BM][BK], Bs[BK][BN];
  const int y = threadIdx.x / BN, x = threadIdx.x % BN;
  const int row = blockIdx.y * BM, col = blockIdx.x * BN;
  float acc[TM] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    for (int i = threadIdx.x; i < BM * BK; i += blockDim.x) {
      As[i / BK][i % BK] = A[(size_t)(row + i / BK) * K + k0 + i % BK];
    }
    for (int i = threadIdx.x; i < BK * BN; i += blockDim.x) {
      Bs[i / BN][i % BN] = B[(size_t)(k0 + i / BN) * N + col + i % BN];
    }
    __syncthreads();
    for (int k = 0; k < BK; ++k) {
      for (int i = 0; i < TM; ++i) acc[i] += As[y * TM + i][k] * Bs[k][x];
    }
    __syncthreads();
  }
  for (int i = 0; i < TM; ++i) {
    const size_t c = (size_t)(row + y * TM + i) * N + col + x;
    C[c] = beta == 0.0f ? alpha * acc[i] : alpha * acc[i] + beta * C[c];
  }
}
