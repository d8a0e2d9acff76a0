// Three masks that are no tiles, in an order of their own: even lanes below 20, odd lanes, and the
// others.
extern "C" __global__ void k(unsigned* out) {
  unsigned t = threadIdx.x, even = 0x55555u, odd = 0xaaaaaaaau;
  unsigned mask = t % 2 ? odd : t < 20 ? even : ~(odd | even);
  out[t] = __ballot_sync(mask, t % 3 == 0);
  out[32 + t] = __reduce_max_sync(mask, t * 7 % 32);
  if (t % 2) out[64 + t] = __activemask(); else out[64 + t] = __popc(__activemask());
}
