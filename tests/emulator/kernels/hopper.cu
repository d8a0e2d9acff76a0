// What kernels for Hopper consist of, at its smallest: a cluster of two blocks, each of which
// computes 64 x 8 of C = A * B. One warp group copies with tensor maps, B to both blocks, and
// another one multiplies. Two stages of 64 k, each with a full and an empty mbarrier.
// A: 128 x K of FP16; B: 8 x K, transposed; C: 128 x 8.
struct __align__(64) TensorMap {
  unsigned long long opaque[16];
};
struct __align__(1024) Stage {
  unsigned short a[64][64], b[8][64];
};
constexpr int STAGES = 2, BYTES = 64 * 64 * 2 + 8 * 64 * 2;

__device__ __forceinline__ unsigned address(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ unsigned mapped(const void* p, unsigned rank) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address(p)), "r"(rank));
  return there;
}
__device__ __forceinline__ void init(unsigned bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void expect(unsigned bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void arrive(unsigned bar) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar)
               : "memory");
}
__device__ __forceinline__ int done(unsigned bar, int parity) {
  int is_done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(is_done)
      : "r"(bar), "r"(parity)
      : "memory");
  return is_done;
}
__device__ __forceinline__ void wait(unsigned bar, int parity) {
  while (!done(bar, parity)) {
  }
}
__device__ __forceinline__ void load(void* to, const TensorMap& map, int k, int row, unsigned bar) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(address(to)),
      "l"(&map), "r"(k), "r"(row), "r"(bar)
      : "memory");
}
__device__ __forceinline__ void load_both(void* to, const TensorMap& map, int k, unsigned bar,
                                          int mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(address(to)),
      "l"(&map), "r"(k), "r"(0), "r"(bar), "h"((short)mask)
      : "memory");
}
__device__ __forceinline__ void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ unsigned long long descriptor(const void* p) {
  const unsigned long long start = address(p);
  return (start & 0x3FFFF) >> 4 | 1ull << 16 | 1024ull >> 4 << 32 | 1ull << 62;
}
__device__ __forceinline__ void multiply(float (&d)[4], unsigned long long a,
                                         unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
      "{%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b));
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(256)
    k(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B,
      const __grid_constant__ TensorMap C, int K) {
  __shared__ Stage stages[STAGES];
  __shared__ __align__(128) float tile[64][8];
  __shared__ __align__(8) unsigned long long full[STAGES], empty[STAGES];
  const int t = threadIdx.x, row = blockIdx.x * 64;
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (t == 0) {
    for (int s = 0; s < STAGES; ++s) {
      init(address(&full[s]), 1);
      init(address(&empty[s]), 2 * 4);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  meet_cluster();  // after init
  if (t < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (t == 0) {
      for (int i = 0; i < K / 64; ++i) {
        const int s = i % STAGES;
        wait(address(&empty[s]), i / STAGES % 2 ^ 1);
        expect(address(&full[s]), BYTES);
        load(stages[s].a, A, i * 64, row, address(&full[s]));
        if (rank == 0) load_both(stages[s].b, B, i * 64, address(&full[s]), 3);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 40;");
    float d[4] = {};
    for (int i = 0; i < K / 64; ++i) {
      const int s = i % STAGES;
      wait(address(&full[s]), i / STAGES % 2);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      for (int k = 0; k < 4; ++k)
        multiply(d, descriptor(stages[s].a) + 2 * k, descriptor(stages[s].b) + 2 * k);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      if (t % 32 == 0) arrive(mapped(&empty[s], rank));
      if (t % 32 == 0) arrive(mapped(&empty[s], rank ^ 1));
    }
    for (int e = 0; e < 4; ++e)
      tile[t / 32 % 4 * 16 + t % 32 / 4 + e / 2 * 8][t % 4 * 2 + e % 2] = d[e];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync 1, 128;" ::: "memory");
    if (t == 128) {
      asm volatile(
          "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
              &C),
          "r"(0), "r"(row), "r"(address(tile))
          : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
  }
  meet_cluster();  // before exit
}
