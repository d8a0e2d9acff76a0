// judged: right
// a thread computes four columns, by float4
// grid: N / 128, M / 8
// block: 256
// domain: M % 8 == 0, N % 128 == 0, B, C % 16 bytes
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const int row = blockIdx.y * 8 + threadIdx.x / 32;
  const int col = blockIdx.x * 128 + threadIdx.x % 32 * 4;
  float4 acc = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int k = 0; k < K; ++k) {
    const float a = A[(size_t)row * K + k];
    const float4 b = *(const float4*)&B[(size_t)k * N + col];
    acc.x += a * b.x;
    acc.y += a * b.y;
    acc.z += a * b.z;
    acc.w += a * b.w;
  }
  float4* c = (float4*)&C[(size_t)row * N + col];
  const float4 old = beta == 0.0f ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : *c;
  *c = make_float4(alpha * acc.x + beta * old.x, alpha * acc.y + beta * old.y,
                   alpha * acc.z + beta * old.z, alpha * acc.w + beta * old.w);
}
