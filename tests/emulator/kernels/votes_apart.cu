// Each half votes alone before both vote together, at different places of the code.
extern "C" __global__ void k(unsigned* out) {
  int t = threadIdx.x;
  if (t < 16) {
    out[t] = __ballot_sync(~0u, t % 3 == 0);
  } else {
    out[32 + t] = __ballot_sync(0xffff0000u, t % 2);
    out[t] = __ballot_sync(~0u, t % 3 == 1);
  }
}
