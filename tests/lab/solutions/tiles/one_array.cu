// judged: right
// both tiles in one flat array, copied by float4
// grid: N / 32, M / 32
// block: 1024
// domain: M % 32 == 0, N % 32 == 0, K % 32 == 0, A, B % 16 bytes
__global__ void mine(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  __shared__ __align__(16) float both[2048];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int i = threadIdx.x % 256;
  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += 32) {
    const float* from = threadIdx.x < 256
                            ? A + (size_t)(blockIdx.y * 32 + i / 8) * K + k0 + i % 8 * 4
                            : B + (size_t)(k0 + i / 8) * N + blockIdx.x * 32 + i % 8 * 4;
    if (threadIdx.x < 512) ((float4*)both)[threadIdx.x] = *(const float4*)from;
    __syncthreads();
    for (int k = 0; k < 32; ++k) acc += both[32 * warp + k] * both[1024 + 32 * k + lane];
    __syncthreads();
  }
  const size_t c = (size_t)(blockIdx.y * 32 + warp) * N + blockIdx.x * 32 + lane;
  C[c] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[c];
}
