// The lanes of a warp hand values over twice, in volatile memory.
extern "C" __global__ void k(const int* in, int* out) {
  __shared__ volatile int tile[64];
  tile[threadIdx.x] = in[threadIdx.x];
  __syncwarp();  // first
  int other = tile[threadIdx.x ^ 1];
  __syncwarp();  // second
  tile[threadIdx.x] = other;
  __syncwarp();  // third
  out[threadIdx.x] = tile[threadIdx.x ^ 2];
}
