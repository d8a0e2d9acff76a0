// Each pair of warps has a barrier of its own, and one loop more than the pair before.
extern "C" __global__ void k(const int* in, int* out) {
  __shared__ int tile[128];
  int t = threadIdx.x, pair = t / 64, value = in[t];
  for (int i = 0; i <= pair; ++i) {
    tile[t] = value;
    asm volatile("barrier.cta.sync.aligned %0, 64;" ::"r"(pair + 7) : "memory");
    value += tile[t ^ 63];
    asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(pair + 7), "r"(64) : "memory");
  }
  out[t] = value;
}
