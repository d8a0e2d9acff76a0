extern "C" __global__ void k(int* out) {
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int place = block * blockDim.x * blockDim.y * blockDim.z + thread;
  out[place] = 1000 * block + 100 * threadIdx.z + 10 * threadIdx.y + threadIdx.x;
}
