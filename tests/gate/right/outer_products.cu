// Outer products of a column of A and a row of B, from an array of structs with operators
// grid: N / 32, M / 32
// block: 4, 4
// domain: M % 32 == 0, N % 32 == 0
struct alignas(16) Vec8 {
  float v[8];
  __device__ Vec8& fma(float s, const Vec8& o) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = ::fmaf(s, o.v[i], v[i]);
    return *this;
  }
};

__global__ void gemm_outer(int M, int N, int K, float alpha, const float* A, const float* B,
                           float beta, float* C) {
  const int row = blockIdx.y * 32 + threadIdx.y * 8, col = blockIdx.x * 32 + threadIdx.x * 8;
  Vec8 acc[8] = {};
  for (int k = 0; k < K; ++k) {
    Vec8 b = *reinterpret_cast<const Vec8*>(&B[k * N + col]);
#pragma unroll
    for (int i = 0; i < 8; ++i) acc[i].fma(A[(row + i) * K + k], b);
  }
  for (int i = 0; i < 8; ++i) {
    Vec8& c = *reinterpret_cast<Vec8*>(&C[(row + i) * N + col]);
    Vec8 out = {};
    if (beta != 0.0f) out.fma(beta, c);
    c = out.fma(alpha, acc[i]);
  }
}
