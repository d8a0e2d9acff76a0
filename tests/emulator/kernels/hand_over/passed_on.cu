// Each block adds to what the block before it left.
extern "C" __global__ void k(int* c, int* d, int* flag) {
  const int t = threadIdx.x, b = blockIdx.x;
  volatile int* turn = flag;
  if (t == 0) while (*turn != b) {}
  __threadfence();  // seen
  __syncthreads();
  c[t ^ b] += b;
  __threadfence();  // written
  __syncthreads();  // by all threads
  if (t == 0) *turn = b + 1;
}
