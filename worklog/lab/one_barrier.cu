// The reference of the puzzle one_barrier: the rung `shared` with two buffers in turn, so that one
// barrier per tile is enough. A warp that is ahead writes the other buffer, and it can't be two
// tiles ahead, since each warp waits for all at the barrier of the tile in between.
//
// grid: N / 32, M / 32
// block: 1024
// domain: M % 32 == 0, N % 32 == 0, K % 32 == 0

__global__ void one_barrier(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  __shared__ float As[2][32][32], Bs[2][32][32];
  const int y = threadIdx.x / 32, x = threadIdx.x % 32;
  const int row = blockIdx.y * 32 + y, col = blockIdx.x * 32 + x;

  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += 32) {
    const int buffer = k0 / 32 % 2;
    As[buffer][y][x] = A[(size_t)row * K + k0 + x];
    Bs[buffer][y][x] = B[(size_t)(k0 + y) * N + col];
    __syncthreads();  // wait: the tile must be complete before any thread reads it
    for (int k = 0; k < 32; ++k) acc += As[buffer][y][k] * Bs[buffer][k][x];
  }

  const size_t c = (size_t)row * N + col;
  C[c] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[c];
}
