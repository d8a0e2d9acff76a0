// Warp 1 reads what warp 0 wrote, once a flag in shared memory says so; then the other way
// round.
__device__ void give(int* flag) {
  asm volatile("st.release.cta.shared.u32 [%0], 1;" ::"r"((unsigned)__cvta_generic_to_shared(flag))
      : "memory");
}
__device__ void take(int* flag) {
  int seen;
  do asm volatile("ld.acquire.cta.shared.u32 %0, [%1];"
                  : "=r"(seen) : "r"((unsigned)__cvta_generic_to_shared(flag)) : "memory");
  while (seen == 0);
}

extern "C" __global__ void k(const int* in, int* out) {
  __shared__ int tile[64], flags[2];
  int t = threadIdx.x, warp = t / 32;
  if (t < 2) flags[t] = 0;
  __syncthreads();
  if (warp == 1) {
    if (t == 40) take(&flags[0]);
    __syncwarp();
  }
  tile[t] = warp == 0 ? in[t] : tile[63 - t] * 2;
  __syncwarp();
  if (t % 32 == 7) give(&flags[warp]);
  if (warp == 0) take(&flags[1]);
  out[t] = tile[t ^ 32];
}
