// Shared-memory tiles of 16 x 16 for any M, N and K: row-major C = alpha * A * B + beta * C.
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                     float* C) {
  __shared__ float As[16][16], Bs[16][16];
  const int y = threadIdx.y, x = threadIdx.x;
  const int row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += 16) {
    As[y][x] = row < M && k0 + x < K ? A[row * K + k0 + x] : 0.0f;
    Bs[y][x] = k0 + y < K && col < N ? B[(k0 + y) * N + col] : 0.0f;
    __syncthreads();  // wait: other threads read what this one has stored
    for (int k = 0; k < 16; ++k) acc += As[y][k] * Bs[k][x];
    __syncthreads();  // wait: faster threads would overwrite the tile that others still read
  }
  if (row >= M || col >= N) return;
  float* c = &C[row * N + col];
  *c = beta == 0.0f ? alpha * acc : alpha * acc + beta * *c;
}
