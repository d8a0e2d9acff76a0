// Read backwards, the base register is minus the lane and the offset brings it back.
extern "C" __global__ void k(float* out) {
  __shared__ float tile[64];
  tile[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];
}
