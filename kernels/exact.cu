// Sums in double precision
// Run:     worklog.sgemm(A, B, max_error=1e-6)
//          It isn't a rung: it is for results that FP32's own sums may miss.
//
// Why:     a product of two floats is exact as a double. Of K such products, the sum is off by
//          K * 2^-53 of the sum of their magnitudes, and C is rounded to a float once. An FP32 sum
//          may be off by K * 2^-24.
// Costs:   the units for doubles do half as many multiply-adds per cycle on compute capability 9.0,
//          and 1/64 on GPUs for graphics. Tiles are converted once, when they are staged.
// Domain:  any M, N, K.
// Tile:    A_BY_COLUMNS=0 B_BY_COLUMNS=0
// Launch:  grid (N + 63) / 64, min((M + 63) / 64, 65535)   block 256
//
// One block computes 64 x 64 of C, and a thread 4 x 4. A_BY_COLUMNS, B_BY_COLUMNS: whether a factor
// is stored column by column.

template <int A_BY_COLUMNS, int B_BY_COLUMNS>
__global__ void __launch_bounds__(256) sgemm_exact(int M, int N, int K, float alpha, const float* A,
                                                   const float* B, float beta, float* C) {
  constexpr int SIDE = 64, BK = 16, OWN = 4;
  // Padded, so that a copy that transposes hits more banks.
  __shared__ double As[BK][SIDE + 2], Bs[BK][SIDE + 2];
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const size_t j0 = (size_t)blockIdx.x * SIDE, depth = alpha == 0.0f ? 0 : K;
  for (size_t i0 = (size_t)blockIdx.y * SIDE; i0 < M; i0 += (size_t)gridDim.y * SIDE) {
    double sum[OWN][OWN] = {};
    for (size_t k0 = 0; k0 < depth; k0 += BK) {
      for (int n = threadIdx.x; n < BK * SIDE; n += 256) {
        // Neighbouring threads read neighbouring floats.
        const int a_k = A_BY_COLUMNS ? n / SIDE : n % BK, row = A_BY_COLUMNS ? n % SIDE : n / BK;
        const int b_k = B_BY_COLUMNS ? n % BK : n / SIDE, col = B_BY_COLUMNS ? n / BK : n % SIDE;
        const size_t i = i0 + row, j = j0 + col, of_a = k0 + a_k, of_b = k0 + b_k;
        const float* a = &A[A_BY_COLUMNS ? of_a * M + i : i * K + of_a];
        const float* b = &B[B_BY_COLUMNS ? j * K + of_b : of_b * N + j];
        As[a_k][row] = i < M && of_a < K ? *a : 0.0f;
        Bs[b_k][col] = j < N && of_b < K ? *b : 0.0f;
      }
      __syncthreads();  // wait: the tiles must be complete before any thread reads them
      for (int k = 0; k < BK; ++k) {
        for (int r = 0; r < OWN; ++r) {
          for (int c = 0; c < OWN; ++c) sum[r][c] += As[k][y * OWN + r] * Bs[k][x + 16 * c];
        }
      }
      __syncthreads();  // wait: the tiles are no longer in use
    }
    for (int r = 0; r < OWN; ++r) {
      for (int c = 0; c < OWN; ++c) {
        const size_t i = i0 + y * OWN + r, j = j0 + x + 16 * c;
        if (i >= M || j >= N) continue;
        const double old = beta == 0.0f ? 0.0 : (double)beta * C[i * N + j];
        C[i * N + j] = (float)((double)alpha * sum[r][c] + old);
      }
    }
  }
}
