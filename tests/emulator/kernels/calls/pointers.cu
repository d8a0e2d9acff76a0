// Each lane calls through its own pointer.
typedef float F(float);
__device__ __noinline__ float twice(float x) { return 2 * x; }
__device__ __noinline__ float square(float x) { return x * x; }
__device__ F* const table[2] = {twice, square};
extern "C" __global__ void k(float* out) {
  out[threadIdx.x] = table[threadIdx.x % 2](threadIdx.x);
}
