// grid: (N + 15) / 16, (M + 15) / 16   block: 16, 16
__global__ void matmul(const int* a, const int* b, int* c, int M, int N, int K) {
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  int sum = 0;
  for (int k = 0; k < K; ++k) sum += a[row * K + k] * b[k * N + col];
  c[row * N + col] = sum;
}
