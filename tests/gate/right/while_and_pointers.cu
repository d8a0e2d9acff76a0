// Loops that count down, pointers that walk, and shifts instead of products
// grid: (N + 31) >> 5, (M + 7) >> 3
// block: 256
// domain: any
__global__ void k_gemm(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                       float* C) {
  const unsigned lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;
  const unsigned row = (blockIdx.y << 3) + warp, col = (blockIdx.x << 5) | lane;
  if (row >= (unsigned)M || col >= (unsigned)N) return;
  const float* pa = A + (unsigned long long)row * K;
  const float* pb = B + col;
  float even = 0.0f, odd = 0.0f;
  int n = K >> 1;
  while (n-- > 0) {
    even += *pa++ * *pb;
    pb += N;
    odd += *pa++ * *pb;
    pb += N;
  }
  if (K & 1) even += *pa * *pb;
  float* pc = C + (unsigned long long)row * N + col;
  const float ab = alpha * (even + odd);
  *pc = beta ? ab + beta * *pc : ab;
}
