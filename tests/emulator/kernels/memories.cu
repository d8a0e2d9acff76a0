__constant__ int weights[4] = {1, 10, 100, 1000};
__device__ int offsets[2] = {7, -7};

extern "C" __global__ void k(const int* in, int* out) {
  extern __shared__ int dynamic[];
  __shared__ int fixed[32];
  int local[8];
  for (int i = 0; i < 8; ++i) local[i] = in[threadIdx.x] + i * i;
  dynamic[threadIdx.x] = local[in[threadIdx.x] & 7];
  fixed[threadIdx.x] = 1;
  __syncthreads();
  const int t = threadIdx.x;
  out[t] = dynamic[31 - t] * weights[t & 3] + offsets[t & 1] + fixed[0];
}
