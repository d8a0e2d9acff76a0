// A product: each lane loads an element of a row of A, and those that vote for theirs hand it to all lanes.
__global__ void mm(int M, int N, int K, const float* A, const float* B, float* C) {
  const int lane = threadIdx.x, row = blockIdx.y, col = blockIdx.x * 32 + lane;
  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += 32) {
    const float a = k0 + lane < K ? A[(size_t)row * K + k0 + lane] : 0.0f;
    unsigned left = __ballot_sync(0xffffffff, (VOTED)) & (K - k0 < 32 ? (1u << (K - k0)) - 1 : 0xffffffff);
    while (left) {
      const int j = __ffs(left) - 1;
      left &= left - 1;
      const float other = __shfl_sync(0xffffffff, a, j);
      if (col < N) acc += other * B[(size_t)(k0 + j) * N + col];
    }
  }
  if (col < N) C[(size_t)row * N + col] = acc;
}
