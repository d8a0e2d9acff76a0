// Copies one box of a tensor to shared memory, writes it as it lies there, and copies it, each word
// plus 1, to the same place of another tensor. With `bug`, a step is missing.
struct __align__(64) TensorMap {
  unsigned long long opaque[16];
};
enum Bug {
  NONE,
  NO_WAIT,
  NO_PROXY_FENCE,
  NO_BARRIER_BEFORE_STORE,
  NO_WAIT_FOR_STORE,
  OVERWRITES_WHILE_READ,
  NO_STORE
};

__device__ __forceinline__ unsigned address(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}

#define LOAD(RANK, CORNER)                                                                         \
  case RANK:                                                                                       \
    asm volatile("cp.async.bulk.tensor." #RANK                                                     \
                 "d.shared::cluster.global.tile"                                                   \
                 ".mbarrier::complete_tx::bytes [%0], [%1, " CORNER "], [%2];" ::"r"(tile),        \
                 "l"(&from), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)                 \
                 : "memory");                                                                      \
    break;
#define STORE(RANK, CORNER)                                                                        \
  case RANK:                                                                                       \
    asm volatile("cp.async.bulk.tensor." #RANK                                                     \
                 "d.global.shared::cta.tile.bulk_group "                                           \
                 "[%0, " CORNER "], [%1];" ::"l"(&to),                                             \
                 "r"(tile), "n"(0), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)                    \
                 : "memory");                                                                      \
    break;
#define EACH(FORM)                                                                                 \
  FORM(1, "{%3}")                                                                                  \
  FORM(2, "{%3, %4}")                                                                              \
  FORM(3, "{%3, %4, %5}")                                                                          \
  FORM(4, "{%3, %4, %5, %6}")                                                                      \
  FORM(5, "{%3, %4, %5, %6, %7}")

extern "C" __global__ void k(const __grid_constant__ TensorMap from,
                             const __grid_constant__ TensorMap to, int rank, int c0, int c1, int c2,
                             int c3, int c4, int bytes, int bug, unsigned* out) {
  extern __shared__ __align__(1024) unsigned box[];
  __shared__ __align__(8) unsigned long long full;
  const unsigned bar = address(&full), tile = address(box), t = threadIdx.x;
  if (t == 0) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&from) : "memory");
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
    switch (rank) { EACH(LOAD) }
  }
  __syncthreads();
  if (bug != NO_WAIT)
    asm volatile(
        "{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n@!p bra "
        "AGAIN;\n}" ::"r"(bar)
        : "memory");
  for (unsigned i = t; i < bytes / 4; i += 64) out[i] = box[i];
  for (unsigned i = t; i < bytes / 4; i += 64) box[i] += 1;
  if (bug != NO_PROXY_FENCE) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  if (bug != NO_BARRIER_BEFORE_STORE) __syncthreads();
  if (t == 0 && bug != NO_STORE) {
    switch (rank) { EACH(STORE) }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    if (bug == OVERWRITES_WHILE_READ) box[0] = 0;
    if (bug != NO_WAIT_FOR_STORE) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}
