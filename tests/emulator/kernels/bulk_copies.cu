// Bulk copies both ways, cp.async that arrives at an mbarrier, and a cluster of one block. 64
// threads. The tests choose a bug.
enum Bug {
  NONE,
  NO_WAIT_FOR_CP_ASYNC,
  NO_WAIT_FOR_READ,
  WAITS_FOR_ONE_GROUP,
  NO_PROXY_FENCE,
  ANOTHER_BLOCK,
  TOO_FEW_BYTES
};
__constant__ int bug;
__device__ __forceinline__ unsigned address(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void wait(unsigned bar, unsigned parity) {
  asm volatile(
      "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra "
      "AGAIN;\n}" ::"r"(bar),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void init(unsigned bar, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

// out: 640 numbers.
extern "C" __global__ void k(const unsigned* in, unsigned* out) {
  __shared__ __align__(128) unsigned tile[256], other[64];
  __shared__ __align__(8) unsigned long long bars[3];
  const unsigned t = threadIdx.x;
  if (t == 0) {
    init(address(&bars[0]), 1);
    init(address(&bars[1]), 64);
    init(address(&bars[2]), 64);
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 40;");
  asm volatile("griddepcontrol.wait;" ::: "memory");

  // Two copies complete one phase.
  unsigned elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(elected));
  if (t < 32 && elected) {
    unsigned bar, rank, which = bug == ANOTHER_BLOCK;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], 1024;" ::"l"(in));
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(
                     address(&bars[0])),
                 "r"(bug == TOO_FEW_BYTES ? 1008 : 1024));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(bar)
                 : "r"(address(&bars[0])), "r"(which));
    asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank) : "r"(bar));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1008, "
        "[%2];" ::"r"(address(tile)),
        "l"(in), "r"(bar + rank)
        : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1], 16, "
        "[%2], 1;" ::"r"(address(tile + 252)),
        "l"(in), "r"(bar)
        : "memory");
  }
  wait(address(&bars[0]), 0);
  for (unsigned i = t; i < 256; i += 64) out[i] = tile[i];

  // Each thread arrives when its cp.async has landed; without noinc, that changes nothing of the
  // count.
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address(&other[t])),
               "l"(in + 63 - t)
               : "memory");
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address(&bars[1]))
               : "memory");
  asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(address(&bars[2])) : "memory");
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address(&bars[2])) : "memory");
  if (bug != NO_WAIT_FOR_CP_ASYNC) wait(address(&bars[1]), 0);
  out[256 + t] = other[63 - t] + other[t];
  wait(address(&bars[2]), 0);

  // Each of two threads copies its half back, in two groups.
  tile[t] = t;
  tile[64 + t] = t;
  if (bug != NO_PROXY_FENCE) asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (t < 2) {
    for (int half = 0; half < 2; ++half) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 128;" ::"l"(
                       out + 320 + 64 * half + 32 * t),
                   "r"(address(tile + 64 * half + 32 * t))
                   : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
    if (bug != NO_WAIT_FOR_READ) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
    tile[32 * t + 64 * (bug == WAITS_FOR_ONE_GROUP)] = 99;
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
  unsigned x;
  asm volatile("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(x));
  out[448 + t] = x;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(x));
  out[512 + t] = x;
  asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(x));
  out[576 + t] = x;
}
