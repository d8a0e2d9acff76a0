// Four slices of K in one block, added up in shared memory with atomics
// grid: (N + 15) / 16, (M + 15) / 16
// block: 16, 16, 4
// domain: any
__global__ void sgemm_sliced_k(int M, int N, int K, float alpha, const float* A, const float* B,
                               float beta, float* C) {
  __shared__ float sum[16][16];
  const int x = threadIdx.x, y = threadIdx.y, slice = threadIdx.z;
  const int row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
  if (slice == 0) sum[y][x] = 0.0f;
  __syncthreads();
  if (row < M && col < N) {
    float part = 0.0f;
    const int each = (K + 3) / 4;
    for (int k = slice * each; k < min(K, (slice + 1) * each); ++k)
      part += A[row * K + k] * B[k * N + col];
    atomicAdd(&sum[y][x], part);
  }
  __syncthreads();
  if (slice != 0 || row >= M || col >= N) return;
  float* c = C + row * N + col;
  *c = beta != 0.0f ? alpha * sum[y][x] + beta * *c : alpha * sum[y][x];
}
