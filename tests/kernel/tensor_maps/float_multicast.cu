// Two blocks of a cluster share the rows of A: each copies half of a tile of A to both.
#include <cuda.h>

// grid: N / 32, M / 32   block: 32, 8   domain: M % 32 == 0, N % 64 == 0
// tensor maps: tma_a = A, box 16 x 32; tma_b = B, box 32 x 32
const int TILE = 32;

__device__ unsigned address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ unsigned rank() {
  unsigned number;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(number));
  return number;
}

__device__ void copy_tile(void* to, const CUtensorMap* map, int column, int row, void* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(address(to)), "l"(map), "r"(column), "r"(row),
      "r"(address(barrier))
      : "memory");
}

__device__ void copy_to_both(void* to, const CUtensorMap* map, int column, int row, void* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(address(to)), "l"(map),
      "r"(column), "r"(row), "r"(address(barrier)), "h"((unsigned short)3)
      : "memory");
}

__device__ void wait(void* barrier, int phase) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra AGAIN;\n}" ::"r"(address(barrier)), "r"(phase) : "memory");
}

__device__ void meet() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__global__ void __cluster_dims__(2, 1, 1)
    gemm_multicast(const __grid_constant__ CUtensorMap tma_a,
                   const __grid_constant__ CUtensorMap tma_b, float* C, int M, int N, int K) {
  __shared__ alignas(128) float a_tile[TILE][TILE], b_tile[TILE][TILE];
  __shared__ alignas(8) unsigned long long barrier;
  const int column = blockIdx.x * TILE, row = blockIdx.y * TILE, first = 16 * rank();
  const bool copies = threadIdx.x == 0 && threadIdx.y == 0;
  if (copies) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  meet();
  float sums[4] = {};
  for (int k = 0, phase = 0; k < K; k += TILE, phase ^= 1) {
    if (copies) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                       address(&barrier)), "n"(2 * TILE * TILE * 4) : "memory");
      copy_to_both(a_tile[first], &tma_a, k, row + first, &barrier);
      copy_tile(b_tile, &tma_b, column, k, &barrier);
    }
    wait(&barrier, phase);
    for (int i = 0; i < TILE; ++i)
      for (int r = 0; r < 4; ++r)
        sums[r] += a_tile[threadIdx.y + 8 * r][i] * b_tile[i][threadIdx.x];
    meet();
  }
  for (int r = 0; r < 4; ++r)
    C[(row + threadIdx.y + 8 * r) * N + column + threadIdx.x] = sums[r];
}
