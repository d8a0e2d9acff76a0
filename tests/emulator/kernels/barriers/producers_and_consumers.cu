// Warps 0 and 1 produce, warps 2 and 3 consume, over two stages: barrier 1 + stage is full,
// barrier 3 + stage is empty.
__device__ void sync(int barrier) { asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory"); }
__device__ void arrive(int barrier) {
  asm volatile("bar.arrive %0, 128;" ::"r"(barrier) : "memory");
}

extern "C" __global__ void k(const int* in, int* out) {
  __shared__ int stage[2][64];
  int t = threadIdx.x, sum = 0;
  if (t < 64) {
    for (int i = 0; i < 6; ++i) {
      if (i >= 2) sync(3 + i % 2);
      stage[i % 2][t] = in[t] * (i + 1);
      arrive(1 + i % 2);
    }
  } else {
    for (int i = 0; i < 6; ++i) {
      sync(1 + i % 2);
      sum = sum * 2 + stage[i % 2][127 - t];
      if (i < 4) arrive(3 + i % 2);
    }
  }
  out[t] = sum;
}
