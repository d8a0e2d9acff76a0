// Four int8 in each int.   by columns: B   domain: K % 4 == 0
// grid: (N + 15) / 16, (M + 15) / 16   block: 16, 16
__global__ void gemm_dp4a(const int* __restrict__ A, const int* __restrict__ B, int* __restrict__ C, int M, int N, int K, int alpha, int beta) {
  __shared__ int As[16][17], Bs[16][17];
  int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x, words = K / 4;
  int sum = 0;
  for (int k = 0; k < words; k += 16) {
    As[threadIdx.y][threadIdx.x] = row < M && k + threadIdx.x < words ? A[row * words + k + threadIdx.x] : 0;
    Bs[threadIdx.x][threadIdx.y] = col < N && k + threadIdx.y < words ? B[col * words + k + threadIdx.y] : 0;
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum = __dp4a(As[threadIdx.y][i], Bs[threadIdx.x][i], sum);
    __syncthreads();
  }
  if (row < M && col < N) C[row * N + col] = alpha * sum + (beta ? beta * C[row * N + col] : 0);
}
