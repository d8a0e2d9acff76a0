// As libcu++ waits for its barriers: attempts are counted, then the clock is read.
extern "C" __global__ void k(unsigned most, unsigned* out) {
  __shared__ unsigned long long barrier;
  unsigned place = __cvta_generic_to_shared(&barrier), done = 0, attempts = 0;
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 33;" :: "r"(place));
  __syncthreads();
  asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" :: "r"(place));
  for (long long start = clock64(); !done && attempts < most; ++attempts) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
        : "=r"(done) : "r"(place) : "memory");
    if (attempts > 16 && clock64() - start > 40000) __nanosleep(100);
  }
  out[threadIdx.x] = attempts;
}
