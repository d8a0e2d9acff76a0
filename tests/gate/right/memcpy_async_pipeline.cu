// A pipeline of three stages with __pipeline_memcpy_async
// grid: N / 32, M / 32
// block: 64
// domain: M % 32 == 0, N % 32 == 0, K % 16 == 0
#include <cuda_pipeline.h>
constexpr int kStages = 3, kTile = 32, kDepth = 16;

__global__ void gemm_pipelined(int M, int N, int K, float alpha, const float* A, const float* B,
                               float beta, float* C) {
  __shared__ alignas(16) float tileA[kStages][kTile][kDepth];
  __shared__ alignas(16) float tileB[kStages][kDepth][kTile];
  const int t = threadIdx.x, tx = t % 8, ty = t / 8;
  A += (size_t)blockIdx.y * kTile * K;
  B += blockIdx.x * kTile;
  C += (size_t)blockIdx.y * kTile * N + blockIdx.x * kTile;
  const int steps = K / kDepth;
  auto prefetch = [&](int step) {
    if (step < steps) {
      const int stage = step % kStages;
      for (int i = 4 * t; i < kTile * kDepth; i += 4 * 64) {
        const int r = i / kDepth, c = i % kDepth, rb = i / kTile, cb = i % kTile;
        __pipeline_memcpy_async(&tileA[stage][r][c], &A[r * K + step * kDepth + c], 16);
        __pipeline_memcpy_async(&tileB[stage][rb][cb], &B[(step * kDepth + rb) * N + cb], 16);
      }
    }
    __pipeline_commit();
  };
  for (int s = 0; s < kStages - 1; ++s) prefetch(s);
  float acc[4][4] = {};
  for (int step = 0; step < steps; ++step) {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();
    prefetch(step + kStages - 1);
    const int stage = step % kStages;
#pragma unroll
    for (int k = 0; k < kDepth; ++k)
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
          acc[i][j] += tileA[stage][ty + 8 * i][k] * tileB[stage][k][tx + 8 * j];
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      float* c = &C[(ty + 8 * i) * N + tx + 8 * j];
      *c = beta == 0.0f ? alpha * acc[i][j] : alpha * acc[i][j] + beta * *c;
    }
}
