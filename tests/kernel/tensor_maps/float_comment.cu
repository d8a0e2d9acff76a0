#include <cuda.h>

// Each block copies a tile of A and a tile of B with one thread, and waits at an mbarrier.
// grid: N / 32, M / 32   block: 32, 8
// tensor maps: tma_a = A, box 32 x 32; tma_b = B, box 32 x 32
const int TILE = 32;

__device__ unsigned address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void copy_tile(void* to, const CUtensorMap* map, int column, int row, void* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(address(to)), "l"(map), "r"(column), "r"(row),
      "r"(address(barrier))
      : "memory");
}

__device__ void wait(void* barrier, int phase) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra AGAIN;\n}" ::"r"(address(barrier)), "r"(phase) : "memory");
}

__global__ void gemm_tma(const __grid_constant__ CUtensorMap tma_a,
                         const __grid_constant__ CUtensorMap tma_b, float* C, int M, int N, int K,
                         float alpha, float beta) {
  __shared__ alignas(128) float a_tile[TILE][TILE], b_tile[TILE][TILE];
  __shared__ alignas(8) unsigned long long barrier;
  const int column = blockIdx.x * TILE, row = blockIdx.y * TILE;
  const bool copies = threadIdx.x == 0 && threadIdx.y == 0;
  if (copies) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&barrier)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  float sums[4] = {};
  int phase = 0;
  for (int k = 0; k < K; k += TILE) {
    if (copies) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                       address(&barrier)), "n"(2 * TILE * TILE * 4) : "memory");
      copy_tile(a_tile, &tma_a, k, row, &barrier);
      copy_tile(b_tile, &tma_b, column, k, &barrier);
    }
    wait(&barrier, phase);
    phase ^= 1;
    for (int i = 0; i < TILE; ++i)
      for (int r = 0; r < 4; ++r)
        sums[r] += a_tile[threadIdx.y + 8 * r][i] * b_tile[i][threadIdx.x];
    __syncthreads();
  }
  for (int r = 0; r < 4; ++r) {
    float* c = &C[(row + threadIdx.y + 8 * r) * N + column + threadIdx.x];
    *c = alpha * sums[r] + (beta == 0 ? 0 : beta * *c);
  }
}
