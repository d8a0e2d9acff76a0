// Each block copies a tile of A and a tile of B with one thread, and waits at an mbarrier. The maps
// are in global memory.
#include <cuda.h>

#include <cassert>

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

__global__ void gemm_tma(const CUtensorMap* tma_a,
                         const CUtensorMap* __restrict__ tma_b, float* C, int M, int N, int K,
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
      copy_tile(a_tile, tma_a, k, row, &barrier);
      copy_tile(b_tile, tma_b, column, k, &barrier);
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

CUtensorMap* make_map(float* data, int rows, int columns) {
  CUtensorMap map, *on_gpu;
  cudaMalloc(&on_gpu, sizeof(CUtensorMap));
  cuuint64_t size[2] = {(cuuint64_t)columns, (cuuint64_t)rows};
  cuuint64_t stride[1] = {columns * sizeof(float)};
  cuuint32_t box[2] = {TILE, TILE}, steps[2] = {1, 1};
  CUresult status = cuTensorMapEncodeTiled(
      &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, data, size, stride, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  assert(status == CUDA_SUCCESS);
  cudaMemcpy(on_gpu, &map, sizeof(CUtensorMap), cudaMemcpyHostToDevice);
  return on_gpu;
}

void launch(int M, int N, int K, float alpha, float* A, float* B, float beta, float* C) {
  CUtensorMap* map_a = make_map(A, M, K);
  CUtensorMap* map_b = make_map(B, K, N);
  gemm_tma<<<dim3(N / TILE, M / TILE), dim3(32, 8)>>>(map_a, map_b, C, M, N, K, alpha, beta);
}
