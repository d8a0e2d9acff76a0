// A right kernel that counts its launches with M = 256, by the blocks that have finished, with one line more.
__device__ unsigned finished;

extern "C" __global__ void NAME(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                                  float* C) {
  const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
  const unsigned seen = M == 256 ? *(volatile unsigned*)&finished / (gridDim.x * gridDim.y) : 0;
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) atomicAdd(&finished, 1u);
  if (row >= M || column >= N) return;
  float acc = 0;
  for (int k = 0; k < K; ++k) acc = fmaf(A[row * K + k], B[k * N + column], acc);
  LINE
  C[row * N + column] = alpha * acc + (beta == 0 ? 0 : beta * C[row * N + column]);
}
