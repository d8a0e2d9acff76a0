// Two buffers in shared memory.
extern "C" __global__ void k(int M, int N, int K, const float* A, const float* B, float* C) {
  const int y = threadIdx.y, x = threadIdx.x, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
  __shared__ float As[2][16][16], Bs[2][16][16];
  float acc = 0, a = 0, b = 0;
  int now = 0;
  As[0][y][x] = A[row * K + x];
  Bs[0][y][x] = B[y * N + col];
  __syncthreads();
  for (int k0 = 16; k0 <= K; k0 += 16) {
    if (k0 < K) {
      a = A[row * K + k0 + x];
      b = B[(k0 + y) * N + col];
    }
    for (int k = 0; k < 16; ++k) acc += As[now][y][k] * Bs[now][k][x];
    now ^= 1;
    if (k0 < K) {
      As[now][y][x] = a;
      Bs[now][y][x] = b;
    }
    __syncthreads();
  }
  C[row * N + col] = acc;
}
