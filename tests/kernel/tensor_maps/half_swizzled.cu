// Tiles of half in shared memory that TMA swizzles: a row is 64 bytes, and the 16 bytes
// at chunk c of row r are at chunk c ^ r / 2 % 4.
#include <cuda.h>
#include <cuda_fp16.h>

// grid: (N + TILE - 1) / TILE, (M + TILE - 1) / TILE   block: 16, 16
// tensor map: tensorMapA, box TILE x TILE of half, swizzle 64B
// tensor map: tensorMapB, box TILE x TILE of half, swizzle 64B
constexpr int TILE = 32;

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

__device__ float at(const half* tile, int row, int column) {
  return __half2float(tile[row * TILE + (column / 8 ^ row / 2 % 4) * 8 + column % 8]);
}

__global__ void hgemm_tma(const __grid_constant__ CUtensorMap tensorMapA,
                          const __grid_constant__ CUtensorMap tensorMapB, half* C, int M, int N,
                          int K) {
  __shared__ alignas(512) half a_tile[TILE * TILE], b_tile[TILE * TILE];
  __shared__ alignas(8) unsigned long long barrier;
  const int row = blockIdx.y * TILE + threadIdx.y * 2, column = blockIdx.x * TILE + threadIdx.x * 2;
  const bool copies = threadIdx.x == 0 && threadIdx.y == 0;
  if (copies) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&barrier)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  float sums[2][2] = {};
  for (int k = 0, phase = 0; k < K; k += TILE, phase ^= 1) {
    if (copies) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                       address(&barrier)), "n"(2 * TILE * TILE * 2) : "memory");
      copy_tile(a_tile, &tensorMapA, k, blockIdx.y * TILE, &barrier);
      copy_tile(b_tile, &tensorMapB, blockIdx.x * TILE, k, &barrier);
    }
    wait(&barrier, phase);
    for (int i = 0; i < TILE; ++i)
      for (int r = 0; r < 2; ++r)
        for (int c = 0; c < 2; ++c)
          sums[r][c] += at(a_tile, threadIdx.y * 2 + r, i) * at(b_tile, i, threadIdx.x * 2 + c);
    __syncthreads();
  }
  for (int r = 0; r < 2; ++r)
    for (int c = 0; c < 2; ++c)
      if (row + r < M && column + c < N) C[(row + r) * N + column + c] = __float2half(sums[r][c]);
}
