// Clusters
// Run:     worklog run kernels/hgemm/hgemm_cluster.cu
//
// Before:  a block fetched 48 kB per stage, the same tile of B as the block with the next rows. It
//          ended after its tile, and nothing multiplied while it stored that.
// Now:     two blocks of a cluster compute rows that are neighbours. Each one fetches half of the
//          tile of B, for both. They stay on their multiprocessors for one pair of tiles after the
//          other. The second warp group of a block begins SKEW stages behind the first one.
// Why:     32 kB per stage and block from L2. The next tile's stages are fetched while this one is
//          stored. (While a warp group stores, the other one has the tensor cores for itself: that
//          gained nothing. Notebook 18 has it beside SKEW=0.)
// Costs:   a slot is refilled when four warp groups have released it, in two blocks.
// Domain:  K % 8 == 0, N % 8 == 0, A, B, C % 16 bytes. Needs sm_90a.
// Tile:    BM=128 BN=256 STAGES=4 GROUP=8 SKEW=1
// Launch:  grid SMS / 2 * 2   block 384   shared STAGES * ((BM + BN) * 128 + 16) + 8
// After:   CUTLASS's cooperative kernel (include/cutlass/gemm/kernel/
//          sm90_gemm_tma_warpspecialized_cooperative.hpp) with clusters of 2 x 1, and
//          github.com/pranjalssh/fast.cu (examples/matmul/matmul_12.cuh).
//
// Tensor maps: a_map = A, box BM x 64 of half, swizzle 128B, L2 256B
// Tensor maps: b_map = B, box 64 x 64 of half, swizzle 128B, L2 256B
//
// Any even number of blocks computes all pairs of tiles: one per multiprocessor, or fewer. In a
// block, one thread copies, and two warp groups multiply 64 rows each. hopper.cuh has the layout of
// a stage.

#include "hopper.cuh"

template <int BM, int BN, int STAGES, int GROUP, int SKEW>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
    hgemm_cluster(int M, int N, int K, const __grid_constant__ CUtensorMap a_map,
                  const __grid_constant__ CUtensorMap b_map, half* C) {
  static_assert(BM == 128, "two warp groups multiply 64 rows each");
  static_assert(BN == 128 || BN == 256, "a warp group multiplies 128 or 256 columns");
  static_assert(SKEW < STAGES, "the first warp group gets there with all slots held by the second");
  constexpr int A_BYTES = BM * LINE_BYTES, B_BYTES = BN / 64 * PANEL_BYTES;
  extern __shared__ __align__(1024) unsigned char memory[];
  unsigned char(*a_stage)[A_BYTES] = (unsigned char(*)[A_BYTES])memory;
  unsigned char(*b_stage)[B_BYTES] = (unsigned char(*)[B_BYTES])(memory + STAGES * A_BYTES);
  unsigned long long* full = (unsigned long long*)(memory + STAGES * (A_BYTES + B_BYTES));
  unsigned long long* empty = full + STAGES;
  unsigned long long& ahead = full[2 * STAGES];  // the first warp group is, in a tile
  // Of a lane of the warp: the compiler needs to know that a warp doesn't diverge at its wgmmas.
  const int warp = __shfl_sync(ALL, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int rank = blockIdx.x % 2;
  const int stages = (K + BK - 1) / BK, row_pairs = (M + 2 * BM - 1) / (2 * BM);
  const int columns = (N + BN - 1) / BN, pairs = row_pairs * columns;
  // As few clusters as need no more rounds: the others would only take power from them.
  const int clusters = gridDim.x / 2, rounds = (pairs + clusters - 1) / clusters;
  const int workers = (pairs + rounds - 1) / rounds;
  const int first_pair = (int)blockIdx.x / 2 < workers ? blockIdx.x / 2 : pairs;

  if (threadIdx.x == 0) {
    prefetch(a_map);
    prefetch(b_map);
    for (int slot = 0; slot < STAGES; ++slot) {
      init(full[slot], 1);
      init(empty[slot], 16);  // a lane of each multiplying warp of both blocks
    }
    init(ahead, 4);  // a lane of each warp of the first warp group
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  // Wait: the mbarriers must be initialised before the other block uses them.
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");

  // GROUP pairs of rows are walked column by column, so that the blocks at work share them in L2.
  auto row_and_column = [&](int pair, int& row, int& col) {
    const int first = pair / (GROUP * columns) * GROUP;
    const int rows = min(GROUP, row_pairs - first), rest = pair - first * columns;
    row = ((first + rest % rows) * 2 + rank) * BM;
    col = rest / rows * BN;
  };

  if (warp < 4) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (warp == 0 && elected()) {
      int step = 0;
      for (int pair = first_pair; pair < pairs; pair += workers) {
        int row, col;
        row_and_column(pair, row, col);
        for (int s = 0; s < stages; ++s, ++step) {
          const int slot = step % STAGES;
          wait(empty[slot], step / STAGES % 2 ^ 1);  // the first round passes at once
          expect(full[slot], A_BYTES + B_BYTES);     // half of B comes from the other block
          copy_box(a_stage[slot], a_map, s * BK, row, full[slot]);
#pragma unroll
          for (int i = 0; i < BN / 128; ++i) {
            const int panel = rank * BN / 128 + i;
            copy_box_to(0b11, b_stage[slot] + panel * PANEL_BYTES, b_map, col + panel * 64, s * BK,
                        full[slot]);
          }
        }
      }
      // The block stays until the other one has arrived for the last time at its mbarriers.
      for (int end = step + STAGES; step < end; ++step) {
        wait(empty[step % STAGES], step / STAGES % 2 ^ 1);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int group = warp / 4 - 1;
    const bool is_skewed = stages >= STAGES;
    float acc[BN / 2];
    auto release = [&](int step) {
      __syncwarp();
      if (lane < 2) arrive_at(lane, empty[step % STAGES]);
    };
    for (int pair = first_pair, step = 0, tile = 0; pair < pairs; pair += workers, ++tile) {
      if (is_skewed && group == 1) wait(ahead, tile % 2);
      for (int s = 0; s < stages; ++s, ++step) {
        const int slot = step % STAGES;
        wait(full[slot], step / STAGES % 2);
        multiply_stage(acc, a_stage[slot] + group * 64 * LINE_BYTES, b_stage[slot], s > 0);
        // The stage before is done, and this one goes on.
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (s > 0) release(step - 1);
        if (is_skewed && group == 0 && s == SKEW && lane == 0) arrive(ahead);
      }
      wait_for_sums(acc);
      release(step - 1);
      int row, col;
      row_and_column(pair, row, col);
      store_rows(C, M, N, row + (warp - 4) * 16, col, acc, lane);
    }
  }
}
