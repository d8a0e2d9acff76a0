// Counts and votes of the whole block, of half of it, and at two instructions.
extern "C" __global__ void k(const int* in, int* out) {
  int t = threadIdx.x, v = in[t], half;
  int sum = __syncthreads_count(v > 3) + 1000 * __syncthreads_and(v < 9)
      + 2000 * __syncthreads_or(v == 8);
  if (t < 64) {
    asm volatile(
        "{\n.reg .pred %p, %q;\nsetp.gt.s32 %p, %1, 4;\n"
        "barrier.cta.red.popc.aligned.u32 %0, 2, 64, %p;\n"
        "bar.red.or.pred %q, 2, 64, !%p;\n@!%q add.u32 %0, %0, 100;\n}"
        : "=r"(half)
        : "r"(v));
    half += 10000 * __syncthreads_count(t % 2);
  } else {
    half = -__syncthreads_count(t % 3 == 0);
  }
  out[t] = sum;
  out[128 + t] = half;
}
