// What the kernels for Hopper share: how the operands lie in shared memory, copies of boxes, the
// product of a warp group whose B lies in rows, and the store of its tile. You may skip it.
#pragma once
#include <cuda.h>
#include "../wgmma.cuh"
#include "hgemm.cuh"

constexpr int BK = 64;           // halves along K of a stage: a line of A has 128 bytes
constexpr int LINE_BYTES = 128;  // 8 pieces of 16 bytes
constexpr int PANEL_BYTES = BK * LINE_BYTES;  // 64 columns of B

// A stage has BM lines of A along K, then BN / 64 panels of B. A panel has BK lines of 64 columns
// each. Piece p of line number i lies at p ^ i % 8: the swizzle of 128 bytes. PTX ISA, "Strides":
// for a matrix in rows ("MN-major"), the leading dimension byte offset goes from panel to panel,
// and the stride from 8 lines to the next 8. So do the canonical layouts of CUTLASS
// (include/cute/atom/mma_traits_sm90_gmma.hpp).
__device__ __forceinline__ int place_in_a(int row, int piece) {
  return row * LINE_BYTES + (piece ^ row % 8) * 16;
}
__device__ __forceinline__ int place_in_b(int row, int piece) {
  return piece / 8 * PANEL_BYTES + row * LINE_BYTES + (piece % 8 ^ row % 8) * 16;
}
__device__ __forceinline__ unsigned long long descriptor_of_panels(const void* panels) {
  return (address(panels) & 0x3FFFF) >> 4 | (unsigned long long)(PANEL_BYTES >> 4) << 16 |
         1024ull >> 4 << 32 | 1ull << 62;
}
// The next 16 k are 32 bytes further in lines of A, and 16 lines further in B's panels.
constexpr int A_STEP = 32 >> 4, B_STEP = 16 * LINE_BYTES >> 4;

// Whether this is the lane that the warp chose. The compiler knows that it is one.
__device__ __forceinline__ bool elected() {
  int chosen;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.b32 %0, 1, 0, p;\n}"
               : "=r"(chosen));
  return chosen != 0;
}

// Fetches the tensor map itself, ahead of the first copy.
__device__ __forceinline__ void prefetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// The box with a corner at column x and row y; beyond the matrix it has zeros. The barrier expects
// its bytes.
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& map, int x, int y,
                                         unsigned long long& bar) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(address(to)),
      "l"(&map), "r"(x), "r"(y), "r"(address(&bar))
      : "memory");
}
// Also to the other blocks of the cluster that the mask names, at the same places there.
__device__ __forceinline__ void copy_box_to(unsigned short blocks, void* to, const CUtensorMap& map,
                                            int x, int y, unsigned long long& bar) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(address(to)),
      "l"(&map), "r"(x), "r"(y), "r"(address(&bar)), "h"(blocks)
      : "memory");
}
// Arrives at the barrier of a block of the cluster. Without a scope: with .release.cluster, ptxas
// puts MEMBAR.ALL.GPU before it, for which the multiplying warps would wait at every stage.
__device__ __forceinline__ void arrive_at(unsigned block, unsigned long long& bar) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(address(&bar)),
      "r"(block)
      : "memory");
}

// Stores a warp's 16 rows of a tile of C, from `row` and `col` on. Lane (g, t) has rows g and
// g + 8: PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16". The stores are the first to
// leave L2, which A and B need.
template <int SUMS>
__device__ __forceinline__ void store_rows(half* C, int M, int N, int row, int col,
                                           const float (&acc)[SUMS], int lane) {
  const int t = lane % 4;
  row += lane / 4;
  col += 8 * t;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    half* to = &C[(size_t)(row + 8 * r) * N + col];
#pragma unroll
    for (int c = 0; c < 2 * SUMS; c += 32) {
      const uint4 columns = columns_of_lane(&acc[c / 2 + 2 * r], t);
      if (row + 8 * r < M && col + c < N) __stcs((uint4*)&to[c], columns);
    }
  }
}

__device__ __forceinline__ void multiply_rows(float (&d)[64], unsigned long long a,
                                              unsigned long long b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, add, 1, 1, 0, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
        "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
        "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
        "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
        "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"((int)add));
}
__device__ __forceinline__ void multiply_rows(float (&d)[128], unsigned long long a,
                                              unsigned long long b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "
      "%126, %127}, "
      "%128, %129, add, 1, 1, 0, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
        "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
        "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
        "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
        "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]),
        "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]),
        "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]),
        "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]),
        "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
        "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]),
        "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]),
        "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), "+f"(d[113]),
        "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
        "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]),
        "+f"(d[126]), "+f"(d[127])
      : "l"(a), "l"(b), "r"((int)add));
}

// Multiplies a stage, as one group that goes on.
template <int SUMS>
__device__ __forceinline__ void multiply_stage(float (&acc)[SUMS], const unsigned char* a_lines,
                                               const unsigned char* panels, bool add) {
  const unsigned long long a = descriptor(a_lines), b = descriptor_of_panels(panels);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int k = 0; k < BK / 16; ++k) {
    multiply_rows(acc, a + k * A_STEP, b + k * B_STEP, add || k > 0);
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits for all products, and keeps the compiler from using the sums before.
template <int SUMS>
__device__ __forceinline__ void wait_for_sums(float (&acc)[SUMS]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < SUMS; ++i) asm volatile("" : "+f"(acc[i])::"memory");
}
