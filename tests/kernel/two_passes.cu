// A product in two launches: each part of K has its own sums in the workspace, then they are
// added. MISTAKE 1 writes behind the workspace, 2 leaves a part unwritten.
#ifndef MISTAKE
#define MISTAKE 0
#endif

template <int TILE, int PARTS>
__global__ void products(int M, int N, int K, float alpha, const float* A, const float* B,
                         float beta, float* C, void* workspace) {
  const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  const int part = blockIdx.z;
  float* sums = (float*)workspace + (size_t)part * M * N;
  if (row >= M || col >= N || (MISTAKE == 2 && part == PARTS - 1 && row == 0)) return;
  float sum = 0;
  for (int k = part; k < K; k += PARTS) sum += A[row * K + k] * B[k * N + col];
  sums[row * N + col] = sum;
  if (MISTAKE == 1 && row == M - 1 && col == N - 1 && part == PARTS - 1) {
    sums[row * N + col + 1 + 4] = sum;
  }
}

template <int PARTS>
__global__ void add(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                    float* C, void* workspace) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= M * N) return;
  const float* sums = (const float*)workspace;
  float sum = 0.0f;
  for (int part = 0; part < PARTS; ++part) sum += sums[(size_t)part * M * N + i];
  C[i] = alpha * sum + (beta == 0.0f ? 0.0f : beta * C[i]);
}
