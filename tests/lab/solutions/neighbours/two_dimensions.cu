// judged: right
// a block of 32 x 32 threads, and pointers
// grid: N / 32, M / 32
// block: 32, 32
// domain: M % 32 == 0, N % 32 == 0
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const float* a = A + (size_t)row * K;
  const float* b = B + col;
  float sum = 0.0f;
  while (a < A + (size_t)(row + 1) * K) {
    sum = fmaf(*a++, *b, sum);
    b += N;
  }
  float* c = C + (size_t)row * N + col;
  *c = beta == 0.0f ? alpha * sum : alpha * sum + beta * *c;
}
