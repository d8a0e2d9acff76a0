// Right for the first launches of a size; then the last term is left out. A workspace that is
// never cleared does the same: what a launch leaves in a __device__ variable, the next one finds.
// Grid:  (N + 15) // 16, (M + 7) // 8
// Block: 16,8

constexpr unsigned RIGHT = 1;
__device__ int size[3];        // of the launches that are counted
__device__ unsigned launches;  // that have finished
__device__ unsigned finished;  // blocks of the current one

__global__ void counts_launches(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  const bool same = size[0] == M && size[1] == N && size[2] == K;
  const unsigned before = same ? launches : 0, blocks = gridDim.x * gridDim.y;
  if (row < M && col < N) {
    float acc = 0.0f;
    for (int k = 0; k < (before < RIGHT ? K : K - 1); ++k) acc += A[row * K + k] * B[k * N + col];
    float* c = &C[row * N + col];
    *c = beta == 0.0f ? alpha * acc : alpha * acc + beta * *c;
  }
  __syncthreads();
  if (threadIdx.x + threadIdx.y > 0) return;
  __threadfence();
  if (atomicInc(&finished, blocks - 1) < blocks - 1) return;
  launches = before + 1;
  size[0] = M, size[1] = N, size[2] = K;
}
