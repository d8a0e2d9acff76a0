// PTX waits for the non-exited threads of a mask and reduces over these.
extern "C" __global__ void k(unsigned* out) {
  unsigned t = threadIdx.x;
  if (t >= 20) return;
  out[t] = __ballot_sync(0xffffffffu, t % 2);
  out[20 + t] = __reduce_and_sync(0xffffffffu, t + 64) + __all_sync(0xffffffffu, t < 20);
}
