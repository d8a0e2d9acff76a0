// Without .aligned, the lanes of a warp may wait at several instructions.
extern "C" __global__ void k(const int* in, int* out) {
  __shared__ int tile[128];
  int t = threadIdx.x;
  tile[t] = in[t];
  if (t % 3 == 0) {
    out[128 + t] = 1;
    asm volatile("barrier.sync 0;" ::: "memory");
    out[t] = tile[127 - t];
  } else {
    asm volatile("barrier.cta.sync 0;" ::: "memory");
    out[t] = -tile[127 - t];
  }
}
