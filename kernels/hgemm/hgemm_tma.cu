// Tensor maps
// Run:     worklog run kernels/hgemm/hgemm_tma.cu
//
// Before:  128 threads issued 24 copies each per stage, and kept an address for each of them.
// Now:     one thread issues a copy per box of a matrix: one of A and BN / 64 of B per stage. The
//          copies swizzle, and complete on the mbarrier for which the multiplying warps wait.
// Why:     copies cost neither issue slots nor registers. Boxes beyond the edges bring zeros, so
//          that any number of rows, and 8 columns more or less, need no tile of their own.
// Costs:   a tensor map of each factor, made on the host. Rows have multiples of 16 bytes.
// Domain:  K % 8 == 0, N % 8 == 0, A, B, C % 16 bytes. Needs sm_90a.
// Tile:    BM=128 BN=256 STAGES=4
// Launch:  grid (N + BN - 1) / BN, (M + BM - 1) / BM   block 384
//          shared STAGES * ((BM + BN) * 128 + 16)
// After:   CUTLASS's warp-specialised main loop with TMA
//          (include/cutlass/gemm/collective/sm90_mma_tma_gmma_ss_warpspecialized.hpp), and
//          github.com/pranjalssh/fast.cu (examples/matmul), whose B lies in columns.
//
// Tensor maps: a_map = A, box BM x 64 of half, swizzle 128B, L2 256B
// Tensor maps: b_map = B, box 64 x 64 of half, swizzle 128B, L2 256B
//
// One block computes a BM x BN tile of C: a thread copies, and two warp groups multiply 64 rows
// each. hopper.cuh has the layout of a stage.

#include "hopper.cuh"

template <int BM, int BN, int STAGES>
__global__ void __launch_bounds__(384, 1) hgemm_tma(int M, int N, int K,
                                                    const __grid_constant__ CUtensorMap a_map,
                                                    const __grid_constant__ CUtensorMap b_map,
                                                    half* C) {
  static_assert(BM == 128, "two warp groups multiply 64 rows each");
  static_assert(BN == 128 || BN == 256, "a warp group multiplies 128 or 256 columns");
  constexpr int A_BYTES = BM * LINE_BYTES, B_BYTES = BN / 64 * PANEL_BYTES;
  extern __shared__ __align__(1024) unsigned char memory[];
  unsigned char(*a_stage)[A_BYTES] = (unsigned char(*)[A_BYTES])memory;
  unsigned char(*b_stage)[B_BYTES] = (unsigned char(*)[B_BYTES])(memory + STAGES * A_BYTES);
  unsigned long long* full = (unsigned long long*)(memory + STAGES * (A_BYTES + B_BYTES));
  unsigned long long* empty = full + STAGES;
  const int row = blockIdx.y * BM, col = blockIdx.x * BN, stages = (K + BK - 1) / BK;
  // Of a lane of the warp: the compiler needs to know that a warp doesn't diverge at its wgmmas.
  const int warp = __shfl_sync(ALL, threadIdx.x / 32, 0), lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    prefetch(a_map);
    prefetch(b_map);
    for (int slot = 0; slot < STAGES; ++slot) {
      init(full[slot], 1);
      init(empty[slot], 8);  // a lane of each multiplying warp
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();  // wait: the mbarriers must be initialised before any thread uses them

  if (warp < 4) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (warp > 0 || !elected()) return;
    for (int s = 0; s < stages; ++s) {
      const int slot = s % STAGES;
      wait(empty[slot], s / STAGES % 2 ^ 1);  // the first round passes at once
      expect(full[slot], A_BYTES + B_BYTES);
      copy_box(a_stage[slot], a_map, s * BK, row, full[slot]);
#pragma unroll
      for (int panel = 0; panel < BN / 64; ++panel) {
        copy_box(b_stage[slot] + panel * PANEL_BYTES, b_map, col + panel * 64, s * BK, full[slot]);
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const int group = warp / 4 - 1;
  float acc[BN / 2];
  for (int s = 0; s < stages; ++s) {
    const int slot = s % STAGES;
    wait(full[slot], s / STAGES % 2);
    multiply_stage(acc, a_stage[slot] + group * 64 * LINE_BYTES, b_stage[slot], s > 0);
    // The stage before is done, and this one goes on.
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if (s == 0) continue;
    __syncwarp();
    if (lane == 0) arrive(empty[(s - 1) % STAGES]);
  }
  wait_for_sums(acc);
  store_rows(C, M, N, row + (warp - 4) * 16, col, acc, lane);
}
