// The next barrier orders the reads of a warp that has exited.
extern "C" __global__ void k(int* out) {
  __shared__ int tile[32];
  tile[threadIdx.x % 32] = 7;
  __syncthreads();
  if (threadIdx.x >= 32) {
    out[threadIdx.x] = tile[63 - threadIdx.x];
    return;
  }
  __syncthreads();  // of the other warp
  tile[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = tile[threadIdx.x];
}
