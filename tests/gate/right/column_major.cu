// Columns one after the other, with leading dimensions, as BLAS has them
// domain: any
#define A(i, j) A[(i) + (j) * lda]
#define B(i, j) B[(i) + (j) * ldb]
#define C(i, j) C[(i) + (j) * ldc]

__global__ __launch_bounds__(256) void mysgemm(int M, int N, int K, float alpha, float* A, int lda,
                                               float* B, int ldb, float beta, float* C, int ldc) {
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  int i = blockIdx.x * 16 + tx, j = blockIdx.y * 16 + ty;
  __shared__ float sa[256], sb[256];
  float tmp = 0.;
  for (int k_count = 0; k_count < K; k_count += 16) {
    sa[tx + ty * 16] = i < M && k_count + ty < K ? A(i, k_count + ty) : 0.;
    sb[tx + ty * 16] = k_count + tx < K && j < N ? B(k_count + tx, j) : 0.;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 16; k++) tmp += sa[tx + k * 16] * sb[k + ty * 16];
    __syncthreads();
  }
  if (i < M && j < N) C(i, j) = beta == 0. ? alpha * tmp : alpha * tmp + beta * C(i, j);
}

void test_mysgemm(int M, int N, int K, float alpha, float* A, float* B, float beta, float* C) {
  dim3 blockDim(256);
  dim3 gridDim((M + 15) / 16, (N + 15) / 16);
  mysgemm<<<gridDim, blockDim>>>(M, N, K, alpha, A, M, B, K, beta, C, M);
}
