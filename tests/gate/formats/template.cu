#include <cuda_fp16.h>
#include <cstdio>
template <typename T, int BLOCK>
__global__ void gemm(const T* __restrict__ A, const T* __restrict__ B, T* __restrict__ C, int M, int N, int K) {
  __shared__ T As[BLOCK][BLOCK], Bs[BLOCK][BLOCK];
  int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * BLOCK + ty, col = blockIdx.x * BLOCK + tx;
  float acc = 0.f;
  for (int t = 0; t < (K + BLOCK - 1) / BLOCK; ++t) {
    As[ty][tx] = row < M && t * BLOCK + tx < K ? A[row * K + t * BLOCK + tx] : T(0.f);
    Bs[ty][tx] = col < N && t * BLOCK + ty < K ? B[(t * BLOCK + ty) * N + col] : T(0.f);
    __syncthreads();
    for (int k = 0; k < BLOCK; ++k) acc += float(As[ty][k]) * float(Bs[k][tx]);
    __syncthreads();
  }
  if (row < M && col < N) C[row * N + col] = T(acc);
}
int main() {
  int M = 512, N = 512, K = 512;
  half *dA, *dB, *dC;
  dim3 block(16, 16), grid((N + 15) / 16, (M + 15) / 16);
  gemm<half, 16><<<grid, block>>>(dA, dB, dC, M, N, K);
}
