extern "C" __global__ void k(unsigned* out) {
  unsigned t = threadIdx.x;
  out[t] = __ballot_sync(0xffffffffu, t % 3 == 0);
  out[32 + t] = __any_sync(0xffffffffu, t == 5) + 2 * __all_sync(0xffffffffu, t < 32);
  out[32 + t] += 4 * __any_sync(0xffffffffu, t > 31);
  out[64 + t] = __reduce_add_sync(0xffffffffu, t * t);
  out[96 + t] = __reduce_max_sync(0xffffffffu, (int)t - 40);
  if (t % 2) out[128 + t] = __activemask(); else out[128 + t] = __popc(__activemask());
}
