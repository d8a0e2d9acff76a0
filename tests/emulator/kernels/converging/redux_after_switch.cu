// Five ways of different length lead to one reduction.
extern "C" __global__ void k(const int* in, int* out) {
  int t = threadIdx.x, v = in[t];
  switch (v % 5) {
    case 0: out[64 + t] = v; break;
    case 1:
      for (int i = 0; i < v; ++i) out[64 + t] += i;
      break;
    case 2: v = out[64 + t] + 7; break;
    case 3:
      if (t & 1) out[64 + t] = 3;
      v *= 2;
  }
  out[t] = __reduce_add_sync(~0u, v);
  out[128 + t] = __reduce_max_sync(~0u, v);
}
