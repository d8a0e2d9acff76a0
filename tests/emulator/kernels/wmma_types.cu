// nvcuda::wmma of integers, of doubles and of bits, in its other shapes, from global and from
// shared memory.
#include <mma.h>
using namespace nvcuda::wmma;

constexpr int BYTES = 4096;
typedef signed char s8;
typedef unsigned char u8;

// The matrices at the start of A, B and C, with LINE numbers from line to line.
template <int M, int N, int K, class T, class U, class LayoutA, class LayoutB, int LINE>
__device__ void product(const void* A, const void* B, U* C) {
  fragment<matrix_a, M, N, K, T, LayoutA> a;
  fragment<matrix_b, M, N, K, T, LayoutB> b;
  fragment<accumulator, M, N, K, U> c;
  load_matrix_sync(a, (const T*)A, LINE);
  load_matrix_sync(b, (const T*)B, LINE);
  load_matrix_sync(c, C, LINE, mem_row_major);
  mma_sync(c, a, b, c);
  store_matrix_sync(C, c, LINE, mem_col_major);
}

__device__ void bits(const void* A, const void* B, int* C) {
  fragment<matrix_a, 8, 8, 128, experimental::precision::b1, row_major> a;
  fragment<matrix_b, 8, 8, 128, experimental::precision::b1, col_major> b;
  fragment<accumulator, 8, 8, 128, int> c;
  fill_fragment(c, 0);
  load_matrix_sync(a, A, 256);
  load_matrix_sync(b, B, 256);
  bmma_sync(c, a, b, c, experimental::bmmaBitOpAND);
  store_matrix_sync(C, c, 32, mem_row_major);
}

extern "C" __global__ void k(const char* A, const char* B, int* C, double* D, half* E) {
  __shared__ __align__(128) char a[BYTES];
  for (int i = threadIdx.x; i < BYTES; i += 32) a[i] = A[i];
  __syncthreads();
  product<16, 16, 16, s8, int, row_major, col_major, 32>(a, B, C);
  product<16, 16, 16, s8, int, col_major, row_major, 32>(a, B, C + 1024);
  product<32, 8, 16, u8, int, row_major, col_major, 32>(a, B, C + 2048);
  product<8, 32, 16, u8, int, col_major, row_major, 48>(A, B, C + 3072);
  bits(A, B, C + 5120);
  product<8, 8, 4, double, double, row_major, col_major, 8>(D + 64, D + 128, D);
  product<8, 8, 4, double, double, col_major, row_major, 8>(D + 64, D + 128, D + 192);
  product<32, 8, 16, half, half, row_major, row_major, 32>(a, E + 1024, E);
  product<8, 32, 16, half, half, col_major, col_major, 32>(a, E + 1024, E + 2048);
}
