extern "C" __global__ void k(int* seen, float* total, int* last, int* flag, float* out) {
  __shared__ int counter, highest;
  __shared__ float sum;
  if (threadIdx.x == 0) { counter = 0; highest = -1000; sum = 0.0f; }
  __syncthreads();
  int mine = atomicAdd(&counter, 1);
  atomicMax(&highest, (int)(threadIdx.x * 7 % 64));
  atomicAdd(&sum, 0.5f);
  seen[blockIdx.x * 64 + mine] = 1;
  atomicAdd(total, 1.0f);
  atomicExch(last, 5);
  atomicCAS(flag, 0, blockIdx.x + 1);
  __syncthreads();
  float* mine_out = out + blockIdx.x * 3;
  if (threadIdx.x == 0) { mine_out[0] = counter; mine_out[1] = highest; mine_out[2] = sum; }
}
