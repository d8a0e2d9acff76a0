// As by_warp.cu, with a guard of the instruction that releases.
extern "C" __global__ void k(int* c, int* d, int* flag) {
  const int t = threadIdx.x, b = blockIdx.x, n = blockDim.x;
  c[b * n + t] = t + b;
  __syncwarp();  // by all lanes
  asm volatile("{ .reg .pred p; setp.eq.u32 p, %1, 0; @p st.global.release.gpu.b32 [%0], 1; }"
               :: "l"(flag), "r"(t + b));
  if (t == 0 && b == 1) {
    int seen = 0;
    while (!seen) asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(seen) : "l"(flag));
  }
  __syncwarp();
  if (b == 1 && t < 32) d[t] = c[t ^ 1];
}
