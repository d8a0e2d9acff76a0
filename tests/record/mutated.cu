// 1 + 1
template <int BM = 8>
__global__ void __launch_bounds__(BM * 2) k(int M, float alpha, float* C) {
  static_assert(BM > 4, "small");
  __shared__ float As[8][BM];
  if (threadIdx.x >= M) return;
  As[threadIdx.x][0] = alpha * M;
  __syncthreads();
  asm volatile("bar.sync 1, 128;" ::: "memory");
  C[(size_t)threadIdx.x * 2] = As[0][1];
}
