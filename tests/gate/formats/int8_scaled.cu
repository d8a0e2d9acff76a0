// Dequantised: C of float, with the scales of A and B.   domain: N % 4 == 0
// grid: (N / 4 + 31) / 32, M   block: 32
__global__ void gemm_w8a8(const signed char* A, const char4* B, float* C, int M, int N, int K, float scale_a, const float* scale_b) {
  int row = blockIdx.y, word = blockIdx.x * 32 + threadIdx.x;
  if (word >= N / 4) return;
  int4 sum = make_int4(0, 0, 0, 0);
  for (int k = 0; k < K; ++k) {
    int a = A[row * K + k];
    char4 b = B[k * (N / 4) + word];
    sum.x += a * b.x; sum.y += a * b.y; sum.z += a * b.z; sum.w += a * b.w;
  }
  float scale = scale_a * *scale_b;
  ((float4*)C)[row * (N / 4) + word] = make_float4(scale * sum.x, scale * sum.y, scale * sum.z, scale * sum.w);
}
