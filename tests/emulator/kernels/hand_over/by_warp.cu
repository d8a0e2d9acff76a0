// A warp hands over what its lanes wrote.
extern "C" __global__ void k(int* c, int* d, int* flag) {
  const int t = threadIdx.x, b = blockIdx.x, n = blockDim.x;
  c[b * n + t] = t + b;
  __syncwarp();  // by all lanes
  if (t == 0 && b == 0) asm volatile("st.global.release.gpu.b32 [%0], 1;" :: "l"(flag));
  if (t == 0 && b == 1) {
    int seen = 0;
    while (!seen) asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(seen) : "l"(flag));
  }
  __syncwarp();
  if (b == 1 && t < 32) d[t] = c[t ^ 1];
}
