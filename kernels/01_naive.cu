// 01 · Naive
//
// Now:     one thread computes one element of C: a dot product of a row of A and a column of B, straight from global memory.
// Why:     it is the definition, and the number that every later rung is measured against.
// Costs:   threadIdx.x, which neighbours in a warp differ in, walks down the rows. The 32 threads of a warp read 32 rows of A, K floats
//          apart, and write 32 rows of C: 32 sectors of 32 bytes for 4 useful bytes each.
// Domain:  any M, N, K.
//
// One block computes a BM x BN tile of C with BM * BN threads. blockIdx.x walks the columns of C, blockIdx.y the rows, in every rung.

template <int BM, int BN>
__global__ void __launch_bounds__(BM * BN) sgemm_naive(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const int row = blockIdx.y * BM + threadIdx.x % BM;
  const int col = blockIdx.x * BN + threadIdx.x / BM;
  if (row >= M || col >= N) return;

  float acc = 0.0f;
  for (int k = 0; k < K; ++k) {
    acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
  }

  // With beta == 0, C is not read: it may hold anything, NaN included.
  float* c = &C[(size_t)row * N + col];
  *c = beta == 0.0f ? alpha * acc : alpha * acc + beta * *c;
}
