// One warp loads, another computes, with two named barriers for each buffer
// grid: N / 32, M / 8
// block: 64
// domain: M % 8 == 0, N % 32 == 0, K % 8 == 0
__device__ __forceinline__ void wait(int barrier) {
  asm volatile("bar.sync %0, 64;" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive(int barrier) {
  asm volatile("bar.arrive %0, 64;" ::"r"(barrier) : "memory");
}

__global__ void gemm_producer(int M, int N, int K, float alpha, const float* A, const float* B,
                              float beta, float* C) {
  enum { FULL = 1, FREE = 3 };  // and the next of each
  __shared__ float sA[2][8][8], sB[2][8][32];
  const int lane = threadIdx.x % 32, row = blockIdx.y * 8, col = blockIdx.x * 32 + lane;
  const int steps = K / 8;
  if (threadIdx.x < 32) {
    for (int s = 0; s < steps; ++s) {
      if (s >= 2) wait(FREE + s % 2);
      for (int i = lane; i < 64; i += 32)
        sA[s % 2][i / 8][i % 8] = A[(row + i / 8) * K + 8 * s + i % 8];
      for (int i = 0; i < 8; ++i) sB[s % 2][i][lane] = B[(8 * s + i) * N + col];
      arrive(FULL + s % 2);
    }
    return;
  }
  float acc[8] = {};
  for (int s = 0; s < steps; ++s) {
    wait(FULL + s % 2);
    for (int k = 0; k < 8; ++k)
      for (int i = 0; i < 8; ++i) acc[i] += sA[s % 2][i][k] * sB[s % 2][k][lane];
    if (s + 2 < steps) arrive(FREE + s % 2);
  }
  for (int i = 0; i < 8; ++i) {
    float* c = &C[(row + i) * N + col];
    *c = beta == 0.0f ? alpha * acc[i] : alpha * acc[i] + beta * *c;
  }
}
