// Each form of mbarrier instruction, in one warp; `out` gets 32 numbers per step.
__device__ __forceinline__ unsigned address(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
typedef unsigned long long State;

#define WITH_STATE(NAME, INSTRUCTION)                                                              \
  __device__ __forceinline__ State NAME(unsigned bar, unsigned n) {                                \
    State s;                                                                                       \
    asm volatile(INSTRUCTION : "=l"(s) : "r"(bar), "r"(n) : "memory");                             \
    return s;                                                                                      \
  }
#define WITHOUT(NAME, INSTRUCTION)                                                                 \
  __device__ __forceinline__ void NAME(unsigned bar, unsigned n) {                                 \
    asm volatile(INSTRUCTION ::"r"(bar), "r"(n) : "memory");                                       \
  }
#define COMPLETE(NAME, INSTRUCTION, TYPE, CODE)                                                    \
  __device__ __forceinline__ unsigned NAME(unsigned bar, TYPE which) {                             \
    unsigned done;                                                                                 \
    asm volatile("{\n.reg .pred p;\n" INSTRUCTION "\nselp.u32 %0, 1, 0, p;\n}"                     \
                 : "=r"(done)                                                                      \
                 : "r"(bar), CODE(which)                                                           \
                 : "memory");                                                                      \
    return done;                                                                                   \
  }
WITHOUT(init, "mbarrier.init.shared::cta.b64 [%0], %1;")
WITHOUT(expect, "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;")
WITHOUT(complete, "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;")
WITHOUT(arrive_cluster, "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0], %1;")
WITH_STATE(arrive, "mbarrier.arrive.shared.b64 %0, [%1], %2;")
WITH_STATE(arrive_release, "mbarrier.arrive.release.cta.shared::cta.b64 %0, [%1], %2;")
WITH_STATE(arrive_drop, "mbarrier.arrive_drop.shared::cta.b64 %0, [%1], %2;")
WITH_STATE(arrive_some, "mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %0, [%1], %2;")
WITH_STATE(arrive_expect, "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %0, [%1], %2;")
COMPLETE(test, "mbarrier.test_wait.shared::cta.b64 p, [%1], %2;", State, "l")
COMPLETE(attempt, "mbarrier.try_wait.acquire.cta.shared::cta.b64 p, [%1], %2, 100;", State, "l")
COMPLETE(test_parity, "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;",
         unsigned, "r")
COMPLETE(try_parity, "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, 100;", unsigned, "r")

extern "C" __global__ void k(unsigned* out) {
  __shared__ __align__(8) State bar;
  const unsigned t = threadIdx.x, b = address(&bar);
  State s;
  unsigned n;
  if (t == 0) init(b, 32);
  __syncthreads();
  // Phase 0: everyone arrives, even lanes before odd ones.
  if (t % 2 == 0) s = arrive(b, 1);
  __syncwarp();
  out[t] = test_parity(b, 0) + 2 * test_parity(b, 1);
  __syncwarp();
  if (t % 2) s = arrive(b, 1);
  while (!test(b, s)) {
  }
  asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(n) : "l"(s));
  out[32 + t] = n > 16 == (t % 2 == 0);
  out[64 + t] = try_parity(b, 0) + 2 * try_parity(b, 1);
  __syncwarp();
  // Phase 1: lane 0 arrives for 29, lanes 1 and 2 leave, and lane 3 arrives last.
  if (t == 0) s = arrive_some(b, 29);
  if (t == 1 || t == 2) arrive_drop(b, 1);
  __syncwarp();
  out[96 + t] = test_parity(b, 1);
  __syncwarp();
  if (t == 3) s = arrive_release(b, 1);
  if (t == 0 || t == 3)
    while (!attempt(b, s)) {
    }
  __syncwarp();
  out[128 + t] = test_parity(b, 1);
  __syncwarp();
  // Phase 2 expects 30 arrivals, and bytes.
  if (t == 4) expect(b, 48);
  if (t == 5) s = arrive_expect(b, 16);
  if (t == 6) arrive_cluster(b, 29);
  __syncwarp();
  out[160 + t] = test_parity(b, 0);
  __syncwarp();
  if (t == 7) complete(b, 40);
  if (t == 8) complete(b, 24);
  __syncwarp();
  out[192 + t] = try_parity(b, 0);
  __syncthreads();
  // The memory is free for something else, and for another mbarrier.
  if (t == 9) asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(b) : "memory");
  if (t == 9) bar = 7;
  if (t == 9) init(b, 1);
  __syncthreads();
  out[224 + t] = test_parity(b, 0);
  __syncwarp();
  if (t == 10) arrive(b, 1);
  __syncwarp();
  out[256 + t] = test_parity(b, 0);
}
