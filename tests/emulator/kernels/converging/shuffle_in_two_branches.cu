// CUDA C++ Programming Guide, "Independent Thread Scheduling": valid since compute capability 7.0.
extern "C" __global__ void k(const int* in, int* out) {
  int t = threadIdx.x, v = in[t];
  if (t % 32 < 16) {
    out[64 + t] = v;
    v = __shfl_xor_sync(~0u, v + 1, 16);
    out[t] = v;
  } else {
    v *= 3;
    v = __shfl_xor_sync(~0u, v, 16);
    out[t] = -v;
  }
}
