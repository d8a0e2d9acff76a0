// Clusters of 2 x 2 blocks of 64 threads: loads, stores and atomics in the shared memory of another
// block, an mbarrier of another block, and a multicast. The tests choose a bug.
enum Bug {
  NONE,
  NO_BARRIER_BEFORE,
  NO_BARRIER_AFTER_WRITING,
  ARRIVES_EARLY,
  ARRIVES_RELAXED,
  NO_BARRIER_BEFORE_EXIT,
  NO_SUCH_BLOCK,
  BEYOND_ITS_MEMORY,
  BEYOND_ITS_ARRAY,
  WAITS_TWICE,
  ARRIVES_TWICE,
  NO_WAIT_FOR_COPY,
  MULTICAST_BEYOND
};
__constant__ int bug;
__device__ __forceinline__ unsigned address(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ unsigned mapped(const void* p, unsigned rank) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address(p)), "r"(rank));
  return there;
}
__device__ __forceinline__ unsigned load(unsigned there) {
  unsigned x;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(x) : "r"(there) : "memory");
  return x;
}
__device__ __forceinline__ void arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
__device__ __forceinline__ void meet() {
  arrive();
  wait();
}

// out: 64 x 6 numbers per block.
extern "C" __global__ void __cluster_dims__(2, 2, 1) k(const unsigned* in, unsigned* out) {
  __shared__ __align__(128) unsigned tile[64], copied[64], counts[4], box[4];
  __shared__ __align__(8) unsigned long long full, told;
  const unsigned t = threadIdx.x, number = blockIdx.y * gridDim.x + blockIdx.x;
  unsigned rank, x, y, owner;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(y));
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(x));
  asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(owner) : "r"(mapped(tile, 3)));
  out += number * 384;
  out[t] = rank + 10 * y + 100 * x + 1000 * owner;
  if (t < 4) counts[t] = 0;
  if (t == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&full)) : "memory");
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 4;" ::"r"(address(&told)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  tile[t] = number * 100 + t;
  __syncthreads();
  if (bug == ARRIVES_EARLY) arrive();
  if (bug == ARRIVES_EARLY) tile[t] += 1;
  if (bug == ARRIVES_RELAXED) asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
  if (bug != NO_BARRIER_BEFORE && bug != ARRIVES_RELAXED && bug != ARRIVES_EARLY) arrive();
  if (bug == ARRIVES_TWICE) arrive();
  if (bug != NO_BARRIER_BEFORE) wait();
  if (bug == WAITS_TWICE) wait();

  // Read another block's tile, write into a third one's, and count in all.
  const unsigned at = bug == BEYOND_ITS_MEMORY ? 4096 : bug == BEYOND_ITS_ARRAY ? 64 : 0;
  out[64 + t] = load(mapped(tile + t + at, bug == NO_SUCH_BLOCK ? 4 + rank : rank ^ 1));
  meet();
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(mapped(tile + (t ^ 1), rank ^ 2)), "r"(t + rank)
               : "memory");
  if (t < 4)
    asm volatile("red.shared::cluster.add.u32 [%0], %1;" ::"r"(mapped(counts, t)), "r"(1 + rank)
                 : "memory");
  if (bug != NO_BARRIER_AFTER_WRITING) meet();
  out[128 + t] = tile[t];
  out[192 + t] = counts[0];

  // The first block copies 16 bytes to all of them; each tells it that it has seen them.
  if (t == 0)
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(address(&full)) : "memory");
  meet();
  if (t == 0 && rank == 0)
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1], 16, [%2], %3;" ::"r"(address(box)),
        "l"(in), "r"(address(&full)), "h"((short)(bug == MULTICAST_BEYOND ? 31 : 15))
        : "memory");
  if (bug != NO_WAIT_FOR_COPY)
    asm volatile("{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n@!p bra AGAIN;\n}" ::"r"(
                     address(&full)) : "memory");
  out[256 + t] = box[t % 4];
  if (t == 0)
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(mapped(&told, 0))
                 : "memory");
  if (rank == 0)
    asm volatile("{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\n@!p bra AGAIN;\n}" ::"r"(
                     address(&told)) : "memory");
  copied[t] = rank;
  meet();
  unsigned long long near = (unsigned long long)&copied[t], far;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(far) : "l"(near), "r"(3 - rank));
  out[320 + t] = *(const unsigned*)far;
  if (bug != NO_BARRIER_BEFORE_EXIT) meet();
}
