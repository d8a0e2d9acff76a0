extern "C" __global__ void k(const int* in, unsigned* out) {
  unsigned t = threadIdx.x, leader, chosen;
  int same;
  out[t] = __match_any_sync(0xffffffffu, in[t] % 5);
  out[32 + t] = __match_all_sync(0xffffffffu, in[t] > -1, &same) + same;
  out[64 + t] = __match_all_sync(0xffffffffu, in[t], &same) + same;
  if (t >= 7) {
    asm volatile("{ .reg .pred p; elect.sync %0|p, 0xffffff80; selp.u32 %1, 1, 0, p; }"
                 : "=r"(leader), "=r"(chosen));
    out[96 + t] = 100 * leader + chosen;
  }
}
