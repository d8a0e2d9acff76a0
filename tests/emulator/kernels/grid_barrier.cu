// A cooperative launch: the barrier of cooperative_groups::this_grid().sync(), in its own
// instructions.
__device__ void sync() {
  asm volatile("barrier.sync 0;" ::: "memory");
  if (threadIdx.x == 0) {
    unsigned high, low, old, now, count = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
    asm volatile("mov.u32 %0, %%envreg1;" : "=r"(high));
    asm volatile("mov.u32 %0, %%envreg2;" : "=r"(low));
    unsigned* barrier = (unsigned*)((unsigned long long)high << 32 | low) + 1;
    asm volatile("atom.add.release.gpu.u32 %0, [%1], %2;" : "=r"(old) : "l"(barrier),
        "r"(count) : "memory");
    do asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(barrier) : "memory");
    while (!((old ^ now) & 0x80000000u));
  }
  asm volatile("barrier.sync 0;" ::: "memory");
}

// Each thread hands its number on to the next thread of the grid, several times.
extern "C" __global__ void k(const int* in, int* out) {
  int t = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  out[t] = in[t];
  for (int i = 0; i < 5; ++i) {
    sync();
    out[(1 - i % 2) * n + (t + 1) % n] = out[i % 2 * n + t] + i;
  }
}
