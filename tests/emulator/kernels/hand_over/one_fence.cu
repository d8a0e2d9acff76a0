// One thread hands over what its block wrote.
extern "C" __global__ void k(int* c, int* d, int* flag) {
  const int t = threadIdx.x, b = blockIdx.x, n = blockDim.x;
  c[b * n + t] = t + b;
  __syncthreads();  // by all threads
  if (t == 0 && b == 0) {
    __threadfence();  // written
    asm volatile("st.global.relaxed.gpu.b32 [%0], 1;" :: "l"(flag));
  }
  if (t == 5 && b == 1) {
    int seen = 0;
    while (!seen) asm volatile("ld.global.relaxed.gpu.b32 %0, [%1];" : "=r"(seen) : "l"(flag));
    __threadfence();  // seen
  }
  __syncthreads();
  if (b == 1) d[t] = c[t ^ 1];
}
