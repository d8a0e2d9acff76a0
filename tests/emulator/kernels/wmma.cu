// What nvcuda::wmma makes of fragments in each layout, of half and of TF32, in global and in
// shared memory.
#include <mma.h>
using namespace nvcuda::wmma;

template <class LayoutA, class LayoutB>
__device__ void halves(const half* a, const half* b, float* c, half* d, layout_t layout) {
  fragment<matrix_a, 16, 16, 16, half, LayoutA> x;
  fragment<matrix_b, 16, 16, 16, half, LayoutB> y;
  fragment<accumulator, 16, 16, 16, float> sums;
  fragment<accumulator, 16, 16, 16, half> short_sums;
  fill_fragment(short_sums, __float2half(0.0f));
  load_matrix_sync(x, a, 24);
  load_matrix_sync(y, b, 16);
  load_matrix_sync(sums, c, 16, layout);
  mma_sync(sums, x, y, sums);
  mma_sync(short_sums, x, y, short_sums);
  store_matrix_sync(c, sums, 16, layout);
  store_matrix_sync(d, short_sums, 16, layout);
}

template <class LayoutA, class LayoutB>
__device__ void singles(const float* a, const float* b, float* c, int line_a, int line_b) {
  fragment<matrix_a, 16, 16, 8, precision::tf32, LayoutA> x;
  fragment<matrix_b, 16, 16, 8, precision::tf32, LayoutB> y;
  fragment<accumulator, 16, 16, 8, float> sums;
  fill_fragment(sums, 0.0f);
  load_matrix_sync(x, a, line_a);
  load_matrix_sync(y, b, line_b);
  for (int i = 0; i < x.num_elements; ++i) x.x[i] = __float_to_tf32(x.x[i]);
  mma_sync(sums, x, y, sums);
  store_matrix_sync(c, sums, 16, mem_row_major);
}

// A and B of halves are 16 lines of 24 and 16; C holds three matrices that are added to, and
// room for three.
extern "C" __global__ void k(const half* A, const half* B, float* C, half* D, const float* X,
    const float* Y) {
  __shared__ __align__(32) half a[16 * 24];
  __shared__ __align__(32) float x[128];
  for (int i = threadIdx.x; i < 16 * 24; i += 32) a[i] = A[i];
  for (int i = threadIdx.x; i < 128; i += 32) x[i] = X[i];
  __syncthreads();
  halves<row_major, col_major>(a, B, C, D, mem_row_major);
  halves<col_major, row_major>(A, B, C + 256, D + 256, mem_col_major);
  halves<row_major, row_major>(A, B, C + 512, D + 512, mem_row_major);
  singles<row_major, row_major>(x, Y, C + 768, 8, 16);
  singles<col_major, col_major>(x, Y, C + 1024, 16, 8);
}
