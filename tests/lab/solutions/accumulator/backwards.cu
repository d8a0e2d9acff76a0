// judged: right
// other names, and a loop that counts down
// grid: N / 32, M / 8
// block: 32, 8
// domain: M % 8 == 0, N % 32 == 0
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const size_t m = blockIdx.y * 8 + threadIdx.y, n = blockIdx.x * 32 + threadIdx.x;
  float total{};
  for (int step = K - 1; step >= 0; --step) total += A[m * K + step] * B[(size_t)step * N + n];
  total *= alpha;
  if (beta != 0.0f) total += beta * C[m * N + n];
  C[m * N + n] = total;
}
