// All threads write the same value.
extern "C" __global__ void k(int* out) {
  __shared__ int flag;
  flag = 1;
  __syncthreads();
  out[threadIdx.x] = flag;
}
