// The warps of a block share a lock.
extern "C" __global__ void k(int* c, int* d, int* flag) {
  const int t = threadIdx.x, b = blockIdx.x;
  __shared__ int lock;
  if (t == 0) lock = 0;
  __syncthreads();
  if (t % 32 == 0) {
    while (atomicCAS(&lock, 0, 1) != 0) {}
    __threadfence_block();
    c[b] += t;
    __threadfence_block();  // written
    atomicExch(&lock, 0);
  }
}
