// Halves on tensor cores
// Run:     worklog run kernels/hgemm/hgemm_mma.cu
//
// Now:     warps multiply with mma.sync, whose operands ldmatrix reads from swizzled tiles in
//          shared memory. cp.async keeps STAGES - 1 tiles of K under way.
// Why:     ldmatrix reads a 16 x 16 operand with one instruction, and transposes B's. A warp reads
//          the next operands while it multiplies, also across the barrier between two tiles.
// Costs:   each warp reads its own operands: a tile of A is read BN / WN times from shared memory,
//          and a tile of B BM / WM times. Hopper's full rate needs wgmma.
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0, A, B, C % 16 bytes. Needs sm_80.
// Tile:    BM=128 BN=256 BK=32 WM=64 WN=64 STAGES=4
// Launch:  grid N / BN, M / BM   block BM * BN / (WM * WN) * 32
//          shared STAGES * (BM + BN) * BK * 2
// After:   the multistage kernels of CUTLASS (include/cutlass/gemm/threadblock/mma_multistage.h),
//          which also read the first operands of a tile before they multiply the last of another.
//
// One block computes a BM x BN tile of C with one warp per WM x WN tile. A tile in shared memory
// consists of pieces of 16 bytes. Piece p of a row lies at p ^ row % 8: then the eight rows that
// ldmatrix reads together are in different banks. Rows of A with 4 pieces lie two in 128 bytes, so
// that every second row counts.

#include "hgemm.cuh"

// Four 8 x 8 matrices; lane l has the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void read(unsigned (&to)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void read_transposed(unsigned (&to)[4], unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

__device__ __forceinline__ void multiply(float* d, const unsigned (&a)[4], const unsigned* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <int BM, int BN, int BK, int WM, int WN, int STAGES>
__global__ void __launch_bounds__(BM * BN / (WM * WN) * 32) hgemm_mma(
    int M, int N, int K, const half* A, const half* B, half* C) {
  constexpr int THREADS = BM * BN / (WM * WN) * 32, STEPS = BK / 16, TM = WM / 16, TN = WN / 16;
  constexpr int A_PIECES = BK / 8, B_PIECES = BN / 8;  // per row
  constexpr int A_BYTES = BM * BK * 2, B_BYTES = BK * BN * 2;
  static_assert(THREADS % A_PIECES == 0 && BM * A_PIECES % THREADS == 0 &&
                    THREADS % B_PIECES == 0 && BK * B_PIECES % THREADS == 0,
                "every thread copies the same column of pieces of several rows");
  static_assert(BK == 32 || BK == 64, "a row of A has 4 or 8 pieces");
  static_assert(BN % 64 == 0 && WN % 32 == 0, "8 pieces are swizzled, and 32 columns stored");
  extern __shared__ __align__(128) unsigned char memory[];
  const unsigned a_tiles = (unsigned)__cvta_generic_to_shared(memory);
  const unsigned b_tiles = a_tiles + STAGES * A_BYTES;

  // Bytes from the start of a tile.
  auto place_in_a = [](int row, int piece) {
    return row * A_PIECES * 16 + (piece ^ row / (8 / A_PIECES) % A_PIECES) * 16;
  };
  auto place_in_b = [](int row, int piece) { return row * BN * 2 + (piece ^ row % 8) * 16; };

  A += (size_t)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (size_t)blockIdx.y * BM * N + blockIdx.x * BN;
  const int tiles = K / BK;
  const int thread = threadIdx.x;
  constexpr int A_ROWS = THREADS / A_PIECES, B_ROWS = THREADS / B_PIECES;  // of a pass
  auto fetch = [&](int tile) {  // global memory -> shared memory, as one group of copies
    const int slot = tile % STAGES, a_row = thread / A_PIECES, b_row = thread / B_PIECES;
    if (tile < tiles) {
      const half* a = A + (size_t)a_row * K + tile * BK + thread % A_PIECES * 8;
#pragma unroll
      for (int r = 0; r < BM; r += A_ROWS) {
        copy_16_bytes(a_tiles + slot * A_BYTES + place_in_a(a_row + r, thread % A_PIECES),
                      a + (size_t)r * K);
      }
      const half* b = B + (size_t)(tile * BK + b_row) * N + thread % B_PIECES * 8;
#pragma unroll
      for (int r = 0; r < BK; r += B_ROWS) {
        copy_16_bytes(b_tiles + slot * B_BYTES + place_in_b(b_row + r, thread % B_PIECES),
                      b + (size_t)r * N);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  const int warp = thread / 32, lane = thread % 32;
  const int row = warp / (BN / WN) * WM, col = warp % (BN / WN) * WN;
  unsigned a[2][TM][4], b[2][TN][4];  // the operands of a step of 16 k, and of the next one
  float acc[TM][2 * TN][4] = {};
  auto read_operands = [&](int tile, int step) {
    const unsigned a_tile = a_tiles + tile % STAGES * A_BYTES;
    const unsigned b_tile = b_tiles + tile % STAGES * B_BYTES;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      read(a[step % 2][i], a_tile + place_in_a(row + 16 * i + lane % 16, 2 * step + lane / 16));
    }
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      read_transposed(b[step % 2][j], b_tile + place_in_b(16 * step + lane % 16,
                                                          col / 8 + 2 * j + lane / 16));
    }
  };
  auto wait_for_next_tile = [&]() {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();  // wait: all copies of the tile must be there, and all of another one read
  };

  for (int tile = 0; tile < STAGES - 1; ++tile) fetch(tile);
  wait_for_next_tile();
  read_operands(0, 0);
  for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      const bool is_last = step == STEPS - 1;
      if (is_last) wait_for_next_tile();
      if (!is_last || tile + 1 < tiles) read_operands(tile + is_last, (step + 1) % STEPS);
      if (step == 0) fetch(tile + STAGES - 1);  // overwrites the tile before
#pragma unroll
      for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < 2 * TN; ++j) {
          multiply(acc[i][j], a[step % 2][i], &b[step % 2][j / 2][j % 2 * 2]);
        }
      }
    }
  }

  // Lane (g, t) has rows g and g + 8: PTX ISA, "Matrix Fragments for mma.m16n8k16".
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < TM; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      half* to = &C[(size_t)(row + 16 * i + 8 * r + g) * N + col + 8 * t];
#pragma unroll
      for (int j = 0; j < 2 * TN; j += 4) {
        *(uint4*)&to[8 * j] = columns_of_lane(&acc[i][j][2 * r], t);
      }
    }
  }
}
