// A warp copies and another one sums, through a ring of mbarriers, for so many stages. Between the
// turns both wait, and nothing is stored until the end.
__device__ __forceinline__ unsigned address(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void wait(unsigned bar, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra AGAIN;\n}" ::"r"(bar), "r"(parity) : "memory");
}
__device__ __forceinline__ void init(unsigned bar, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

extern "C" __global__ void k(unsigned stages, const unsigned* from, unsigned* out) {
  constexpr unsigned SLOTS = 4;
  __shared__ __align__(16) unsigned ring[SLOTS][4];
  __shared__ __align__(8) unsigned long long full[SLOTS], empty[SLOTS];
  if (threadIdx.x == 0) {
    for (unsigned s = 0; s < SLOTS; ++s) init(address(&full[s]), 1), init(address(&empty[s]), 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned step = 0; step < stages; ++step) {
      const unsigned s = step % SLOTS, bar = address(&full[s]);
      wait(address(&empty[s]), step / SLOTS % 2 ^ 1);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(bar) : "memory");
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%2];" ::
              "r"(address(ring[s])), "l"(from), "r"(bar) : "memory");
    }
  } else if (threadIdx.x == 32) {
    unsigned sum = 0;
    for (unsigned step = 0; step < stages; ++step) {
      const unsigned s = step % SLOTS;
      wait(address(&full[s]), step / SLOTS % 2);
      for (unsigned i = 0; i < 4; ++i) sum += ring[s][i];
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(&empty[s])) : "memory");
    }
    out[0] = sum;
  }
}
