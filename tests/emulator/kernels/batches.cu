// A different number of iterations per block, each with two barriers.
extern "C" __global__ void k(int* out) {
  __shared__ int tile[64];
  int sum = 0;
  for (int i = 0; i <= blockIdx.x; ++i) {
    tile[threadIdx.x] = i + threadIdx.x;
    __syncthreads();
    sum += tile[63 - threadIdx.x];
    __syncthreads();
  }
  out[blockIdx.x * 64 + threadIdx.x] = sum;
}
