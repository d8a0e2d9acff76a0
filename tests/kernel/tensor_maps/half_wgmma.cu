// One warpgroup per tile of C: TMA copies tiles of A and B, and wgmma multiplies them. The launcher
// asks the driver for the function that makes the maps.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cassert>
#include <cstdint>

constexpr int BM = 64, BN = 64, BK = 64;

__device__ uint32_t address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// Of a tile whose rows are 128 bytes, swizzled: 8 rows are 1024 bytes.
__device__ uint64_t descriptor(uint32_t start) {
  return (uint64_t)(start >> 4) | 64ull << 16 | 64ull << 32 | 1ull << 62;
}

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

__device__ void multiply(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, 1, 1, 1, 0, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b));
}

__global__ void __launch_bounds__(128)
    hgemm_wgmma(int M, int N, int K, const __grid_constant__ CUtensorMap tma_a,
                const __grid_constant__ CUtensorMap tma_b, float* C) {
  __shared__ alignas(1024) half a_tile[BM * BK], b_tile[BK * BN];
  __shared__ alignas(8) uint64_t barrier;
  const int row = blockIdx.y * BM, column = blockIdx.x * BN;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&barrier)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  float d[32] = {};
  for (int k = 0, phase = 0; k < K; k += BK, phase ^= 1) {
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                       address(&barrier)), "n"((BM + BN) * BK * 2) : "memory");
      copy_tile(a_tile, &tma_a, k, row, &barrier);
      copy_tile(b_tile, &tma_b, column, k, &barrier);
    }
    wait(&barrier, phase);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int i = 0; i < BK; i += 16)
      multiply(d, descriptor(address(a_tile) + 2 * i), descriptor(address(b_tile) + 128 * i));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
  }
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int i = 0; i < 32; ++i) {
    const int m = row + warp * 16 + lane / 4 + i / 2 % 2 * 8;
    const int n = column + i / 4 * 8 + lane % 4 * 2 + i % 2;
    if (m < M && n < N) C[(size_t)m * N + n] = d[i];
  }
}

PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                        cudaEnableDefault, &found);
  assert(status == cudaSuccess && found == cudaDriverEntryPointSuccess);
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

template <int BOX_ROWS, int BOX_COLUMNS>
CUtensorMap map_of(const half* matrix, int rows, int columns) {
  CUtensorMap map{};
  uint64_t sizes[2] = {(uint64_t)columns, (uint64_t)rows}, strides[1] = {columns * sizeof(half)};
  uint32_t box[2] = {BOX_COLUMNS, BOX_ROWS}, steps[2] = {1, 1};
  auto encode = encoder();
  CUresult status = encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void*)matrix, sizes, strides,
                           box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  assert(status == CUDA_SUCCESS);
  return map;
}

void launch(int M, int N, int K, const half* A, const half* B, float* C) {
  dim3 grid((N + BN - 1) / BN, (M + BM - 1) / BM);
  hgemm_wgmma<<<grid, 128>>>(M, N, K, map_of<BM, BK>(A, M, K), map_of<BK, BN>(B, K, N), C);
}
