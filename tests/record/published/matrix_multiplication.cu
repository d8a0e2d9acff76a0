__global__ void multiply(const float* a, const float* b, float* c, size_t m, size_t n, size_t k) {
  const size_t column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  if (row >= m || column >= n) return;
  float sum = 0.0f;
  for (size_t i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
  c[row * n + column] = sum;
}

extern "C" void solution(const float* a, const float* b, float* c, size_t m, size_t n, size_t k) {
  multiply<<<dim3((n + 15) / 16, (m + 15) / 16), dim3(16, 16)>>>(a, b, c, m, n, k);
}
