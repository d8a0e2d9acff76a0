// Fragments of nvcuda::wmma, in TF32
// grid: N / 32, M / 32
// block: 128
// domain: M % 32 == 0, N % 32 == 0, K % 8 == 0
// class: tf32
#include <mma.h>
using namespace nvcuda;
const int WMMA_M = 16, WMMA_N = 16, WMMA_K = 8;

__global__ void wmma_gemm(int M, int N, int K, float alpha, const float* a, const float* b,
                          float beta, float* c) {
  const int warpM = blockIdx.y * 2 + threadIdx.x / 64;
  const int warpN = blockIdx.x * 2 + threadIdx.x / 32 % 2;
  wmma::fragment<wmma::matrix_a, WMMA_M, WMMA_N, WMMA_K, wmma::precision::tf32, wmma::row_major>
      a_frag;
  wmma::fragment<wmma::matrix_b, WMMA_M, WMMA_N, WMMA_K, wmma::precision::tf32, wmma::row_major>
      b_frag;
  wmma::fragment<wmma::accumulator, WMMA_M, WMMA_N, WMMA_K, float> acc_frag, c_frag;
  wmma::fill_fragment(acc_frag, 0.0f);
  for (int i = 0; i < K; i += WMMA_K) {
    wmma::load_matrix_sync(a_frag, a + warpM * WMMA_M * K + i, K);
    wmma::load_matrix_sync(b_frag, b + i * N + warpN * WMMA_N, N);
    for (int t = 0; t < a_frag.num_elements; t++)
      a_frag.x[t] = wmma::__float_to_tf32(a_frag.x[t]);
    for (int t = 0; t < b_frag.num_elements; t++)
      b_frag.x[t] = wmma::__float_to_tf32(b_frag.x[t]);
    wmma::mma_sync(acc_frag, a_frag, b_frag, acc_frag);
  }
  float* tile = c + warpM * WMMA_M * N + warpN * WMMA_N;
  if (beta != 0.0f) wmma::load_matrix_sync(c_frag, tile, N, wmma::mem_row_major);
  for (int i = 0; i < acc_frag.num_elements; i++)
    c_frag.x[i] = beta != 0.0f ? alpha * acc_frag.x[i] + beta * c_frag.x[i] : alpha * acc_frag.x[i];
  wmma::store_matrix_sync(tile, c_frag, N, wmma::mem_row_major);
}
