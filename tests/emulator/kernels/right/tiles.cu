// Tiles of A and B in shared memory.
extern "C" __global__ void k(int M, int N, int K, const float* A, const float* B, float* C) {
  const int y = threadIdx.y, x = threadIdx.x, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
  __shared__ float As[16][16], Bs[16][16];
  float acc = 0;
  for (int k0 = 0; k0 < K; k0 += 16) {
    As[y][x] = A[row * K + k0 + x];
    Bs[y][x] = B[(k0 + y) * N + col];
    __syncthreads();
    for (int k = 0; k < 16; ++k) acc += As[y][k] * Bs[k][x];
    __syncthreads();
  }
  C[row * N + col] = acc;
}
