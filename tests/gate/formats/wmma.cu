#include <mma.h>
using namespace nvcuda;
// grid: N / 16, M / 16   block: 32   domain: M % 16 == 0, N % 16 == 0, K % 16 == 0
__global__ void hgemm_wmma(const half* A, const half* B, float* C, int M, int N, int K) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fill_fragment(c, 0.0f);
  int row = blockIdx.y * 16, col = blockIdx.x * 16;
  for (int k = 0; k < K; k += 16) {
    wmma::load_matrix_sync(a, A + row * K + k, K);
    wmma::load_matrix_sync(b, B + k * N + col, N);
    wmma::mma_sync(c, a, b, c);
  }
  wmma::store_matrix_sync(C + row * N + col, c, N, wmma::mem_row_major);
}
