extern "C" __global__ void k(const int* in, int* out) {
  int t = threadIdx.x, v = in[t];
  int down = v, butterfly = v, up = v;
  for (int d = 16; d; d /= 2) down += __shfl_down_sync(0xffffffffu, down, d);
  for (int d = 16; d; d /= 2) butterfly += __shfl_xor_sync(0xffffffffu, butterfly, d);
  for (int d = 1; d < 32; d *= 2) {
    int x = __shfl_up_sync(0xffffffffu, up, d);
    if (t % 32 >= d) up += x;
  }
  out[t] = __shfl_sync(0xffffffffu, down, 0);
  out[64 + t] = butterfly;
  out[128 + t] = up;
  out[192 + t] = __shfl_down_sync(0xffffffffu, v, 3, 8);
}
