// A barrier of two warps in the reserved shared memory, as
// cooperative_groups::tiled_partition<64>() has it.
__device__ void sync(unsigned barrier, int warp) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    unsigned old, own = 1u << warp, all = 3u << warp / 2 * 2;
    asm volatile("atom.or.acq_rel.cta.shared.b32 %0, [%1], %2;" : "=r"(old) : "r"(barrier),
        "r"(own) : "memory");
    if (((old | own) & all) == all) {
      asm volatile("red.and.relaxed.cta.shared.b32 [%0], %1;" ::"r"(barrier), "r"(~all) : "memory");
    } else {
      do asm volatile("ld.acquire.cta.shared.b32 %0, [%1];" : "=r"(old) : "r"(barrier) : "memory");
      while (old & own);
    }
  }
  __syncwarp();
}

extern "C" __global__ void k(const int* in, int* out) {
  __shared__ int tile[64];
  unsigned barrier;
  asm("mov.u32 %0, %%reserved_smem_offset_1;" : "=r"(barrier));
  int t = threadIdx.x, sum = 0;
  for (int i = 0; i < 3; ++i) {
    tile[t] = in[t] + i;
    sync(barrier, t / 32);
    sum += tile[63 - t];
    sync(barrier, t / 32);
  }
  out[t] = sum;
}
