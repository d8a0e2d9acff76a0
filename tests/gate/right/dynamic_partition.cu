// Dynamic shared memory that pointers partition, and buffers that swap
// domain: any
__global__ void gemm_dynamic(const float *A, const float *B, float *C, int M, int N, int K,
                             float alpha, float beta) {
  extern __shared__ float smem[];
  float *cur = smem, *next = smem + 2 * 16 * 16;
  const int tx = threadIdx.x, ty = threadIdx.y, own = ty * 16 + tx;
  const int row = blockIdx.y * 16 + ty, col = blockIdx.x * 16 + tx;
  float acc = 0.f;
  cur[own] = row < M && tx < K ? A[row * K + tx] : 0.f;
  cur[256 + own] = ty < K && col < N ? B[ty * N + col] : 0.f;
  __syncthreads();
  for (int k0 = 16; k0 < K + 16; k0 += 16) {
    next[own] = row < M && k0 + tx < K ? A[row * K + k0 + tx] : 0.f;
    next[256 + own] = k0 + ty < K && col < N ? B[(k0 + ty) * N + col] : 0.f;
    const float *a = cur + 16 * ty, *b = cur + 256 + tx;
    for (const float *end = a + 16; a != end; ++a, b += 16) acc += *a * *b;
    __syncthreads();
    float *swap = cur;
    cur = next;
    next = swap;
  }
  if (row < M && col < N)
    C[row * N + col] = alpha * acc + (beta != 0.f ? beta * C[row * N + col] : 0.f);
}

void run(const float *A, const float *B, float *C, int M, int N, int K, float alpha, float beta) {
  dim3 block(16, 16), grid((N + 15) / 16, (M + 15) / 16);
  size_t bytes = 4 * 16 * 16 * sizeof(float);
  gemm_dynamic<<<grid, block, bytes>>>(A, B, C, M, N, K, alpha, beta);
}
