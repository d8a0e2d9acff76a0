// One lane of each warp takes a lock, counts its failed tries, and counts in shared memory while
// it holds the lock.
extern "C" __global__ void k(const int* in, int* out) {
  __shared__ int lock, count;
  int t = threadIdx.x, tries = 0;
  if (t == 0) lock = count = 0;
  __syncthreads();
  if (t % 32 == 0) {
    while (atomicCAS(&lock, 0, 1) != 0) ++tries;
    __threadfence_block();  // taken
    for (int i = 0; i < in[t] + 40; ++i) count = count + 1;
    __threadfence_block();  // given back
    atomicExch(&lock, 0);
  }
  __syncthreads();
  out[t] = count + (tries < 0);
}
