// Split-K in which the three parts of a tile add to C one after the other: each waits for its turn.
// Grid:  (N + 15) // 16 * 3, (M + 7) // 8
// Block: 16,8

__device__ int turns[1 << 14];  // of each tile; the last part winds it back for the next launch

__global__ void split_k_by_semaphore(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const int row = blockIdx.y * 8 + threadIdx.y, col = blockIdx.x / 3 * 16 + threadIdx.x;
  const int part = blockIdx.x % 3, first = threadIdx.x + threadIdx.y == 0;
  int* turn = &turns[blockIdx.y * (gridDim.x / 3) + blockIdx.x / 3];
  const bool inside = row < M && col < N;
  float acc = 0.0f;
  for (int k = part; inside && k < K; k += 3) acc += A[row * K + k] * B[k * N + col];
  if (first)
    while (*(volatile int*)turn != part) __nanosleep(100);
  __syncthreads();
  __threadfence();
  if (inside) {
    volatile float* c = &C[row * N + col];
    *c = part > 0 ? *c + alpha * acc : beta == 0.0f ? alpha * acc : alpha * acc + beta * *c;
  }
  __threadfence();
  __syncthreads();
  if (first) *(volatile int*)turn = part == 2 ? 0 : part + 1;
}
