// Lanes leave a loop at different times, and shuffle behind it and inside of an outer loop.
extern "C" __global__ void k(const int* in, int* out) {
  int t = threadIdx.x, v = in[t], sum = 0;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < v + round; ++i) {
      if ((i ^ t) & 1) continue;
      out[64 + t] += i;
    }
    sum += __shfl_down_sync(~0u, out[64 + t], 1);
    v = __shfl_xor_sync(~0u, v, 5);
  }
  out[t] = sum;
}
