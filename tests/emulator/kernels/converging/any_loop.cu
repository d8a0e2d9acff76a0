// Lanes that have no work left wait in each vote for the lanes of their warp that have.
extern "C" __global__ void k(const int* in, int* out) {
  int t = threadIdx.x, left = in[t], turns = 0, sum = 0;
  bool busy = left > 0;
  while (__any_sync(~0u, busy)) {
    ++turns;
    if (busy) {
      for (int i = left; i > 0; i -= 3) sum += i;
      if (left % 3 == 0) out[64 + t] = --left;
      busy = --left > 0;
    }
  }
  out[t] = turns;
  out[128 + t] = sum;
}
