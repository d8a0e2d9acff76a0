// Warp groups
// Run:     worklog run kernels/hgemm/hgemm_wgmma.cu
//
// Before:  each warp read its operands into registers, and copied its part of the tiles. All warps
//          met at a barrier for each tile of K.
// Now:     two warp groups multiply 64 x 256 each with wgmma, which reads both operands from shared
//          memory. A third one copies STAGES stages ahead, and hands them over with mbarriers.
// Why:     a wgmma of 64 x 256 x 16 takes 128 clocks at the peak rate, and reads 10 kB: 80 of the
//          128 bytes per clock that shared memory has. Its warps issue little else.
// Costs:   cp.async needs an instruction per 16 bytes and lane: 24 per thread and stage, in four
//          warps. One block per multiprocessor: nothing multiplies while it stores C.
// Domain:  M % BM == 0, N % BN == 0, K % 64 == 0, A, B, C % 16 bytes. Needs sm_90a.
// Tile:    BM=128 BN=256 STAGES=4
// Launch:  grid N / BN, M / BM   block 384
//          shared STAGES * ((BM + BN) * 128 + 16)
// After:   CUTLASS's warp-specialised main loop with cp.async
//          (include/cutlass/gemm/collective/sm90_mma_multistage_gmma_ss_warpspecialized.hpp).
//
// One block computes a BM x BN tile of C: one warp group copies, and two multiply 64 rows each.
// hopper.cuh has the layout of a stage.

#include "hopper.cuh"

constexpr int COPIERS = 128;  // threads: a warp group, since setmaxnreg counts per warp group
constexpr int LAG = 1;        // stages that are being copied before the last one is handed over

// A thread's part of a stage, from global memory to the swizzled lines.
template <int BM, int BN>
__device__ __forceinline__ void fetch(unsigned char* a_stage, unsigned char* b_stage, const half* A,
                                      const half* B, int K, int N) {
  constexpr int A_ROWS = COPIERS / 8, B_ROWS = 8 * COPIERS / BN;  // of a pass
  const int a_row = threadIdx.x / 8, a_piece = threadIdx.x % 8;
  const unsigned a_to = address(a_stage);
#pragma unroll
  for (int r = 0; r < BM; r += A_ROWS) {
    copy_16_bytes(a_to + place_in_a(a_row + r, a_piece), A + (size_t)(a_row + r) * K + a_piece * 8);
  }
  const int b_row = threadIdx.x / (BN / 8), b_piece = threadIdx.x % (BN / 8);
  const unsigned b_to = address(b_stage);
#pragma unroll
  for (int r = 0; r < BK; r += B_ROWS) {
    copy_16_bytes(b_to + place_in_b(b_row + r, b_piece), B + (size_t)(b_row + r) * N + b_piece * 8);
  }
}

template <int BM, int BN, int STAGES>
__global__ void __launch_bounds__(384, 1) hgemm_wgmma(
    int M, int N, int K, const half* A, const half* B, half* C) {
  static_assert(BM == 128, "two warp groups multiply 64 rows each");
  static_assert(BN == 128 || BN == 256, "a warp group multiplies 128 or 256 columns");
  static_assert(STAGES > LAG + 1, "a stage is copied while others are multiplied");
  constexpr int A_BYTES = BM * LINE_BYTES, B_BYTES = BN / 64 * PANEL_BYTES;
  // Registers per thread. The addresses of 24 copies need most of the few.
  constexpr int FEW = 104, MANY = 200;
  extern __shared__ __align__(1024) unsigned char memory[];
  unsigned char(*a_stage)[A_BYTES] = (unsigned char(*)[A_BYTES])memory;
  unsigned char(*b_stage)[B_BYTES] = (unsigned char(*)[B_BYTES])(memory + STAGES * A_BYTES);
  unsigned long long* full = (unsigned long long*)(memory + STAGES * (A_BYTES + B_BYTES));
  unsigned long long* empty = full + STAGES;

  A += (size_t)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  const int stages = K / BK;
  // Of a lane of the warp: the compiler needs to know that a warp doesn't diverge at its wgmmas.
  const int warp = __shfl_sync(ALL, threadIdx.x / 32, 0), lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    for (int slot = 0; slot < STAGES; ++slot) {
      init(full[slot], COPIERS / 32);  // a lane of each copying warp
      init(empty[slot], BM / 16);      // a lane of each multiplying warp
    }
  }
  __syncthreads();  // wait: the mbarriers must be initialised before any thread uses them

  auto hand_over = [&](unsigned long long& bar) {  // a warp to those that wait for it
    __syncwarp();
    if (lane == 0) arrive(bar);
  };

  if (warp < COPIERS / 32) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(FEW));
    for (int s = 0; s < stages + LAG; ++s) {
      if (s < stages) {
        wait(empty[s % STAGES], s / STAGES % 2 ^ 1);  // the first round passes at once
        fetch<BM, BN>(a_stage[s % STAGES], b_stage[s % STAGES], A + s * BK,
                      B + (size_t)s * BK * N, K, N);
      }
      asm volatile("cp.async.commit_group;" ::: "memory");
      if (s < LAG) continue;
      asm volatile("cp.async.wait_group %0;" ::"n"(LAG) : "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // wgmma must see the copies
      hand_over(full[(s - LAG) % STAGES]);
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MANY));
  const int group = warp / 4 - 1;
  float acc[BN / 2];
  for (int s = 0; s < stages; ++s) {
    const int slot = s % STAGES;
    wait(full[slot], s / STAGES % 2);
    multiply_stage(acc, a_stage[slot] + group * 64 * LINE_BYTES, b_stage[slot], s > 0);
    // The stage before is done, and this one goes on.
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if (s > 0) hand_over(empty[(s - 1) % STAGES]);
  }
  wait_for_sums(acc);
  store_rows(C, M, N, blockIdx.y * BM + (warp - 4) * 16, blockIdx.x * BN, acc, lane);
}
