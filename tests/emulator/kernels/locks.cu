// Every thread takes a lock, in global or in shared memory.
extern "C" __global__ void k(int global, int* lock, int* count, int* out) {
  __shared__ int locks[1], counts[1];
  if (threadIdx.x == 0) locks[0] = counts[0] = 0;
  __syncthreads();
  int *l = global ? lock : locks, *n = global ? count : counts;
  while (atomicCAS(l, 0, 1) != 0) {}
  atomicExch(n, atomicAdd(n, 0) + 1);
  __threadfence();
  atomicExch(l, 0);
  __syncthreads();
  if (threadIdx.x == 0) atomicMax(out, atomicAdd(n, 0));
}
