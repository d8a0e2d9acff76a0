// Sums in double2, rounded once at the end
// grid: (N / 2 + 15) / 16, (M + 7) / 8
// block: 16, 8
// domain: N % 2 == 0, B, C % 8 bytes
__device__ inline double2 operator+(double2 a, double2 b) {
  return make_double2(a.x + b.x, a.y + b.y);
}
__device__ inline double2 operator*(double s, float2 v) { return make_double2(s * v.x, s * v.y); }

__global__ void dgemm_inside(int M, int N, int K, float alpha, const float* A, const float* B,
                             float beta, float* C) {
  const int row = blockIdx.y * 8 + threadIdx.y, pair = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || 2 * pair >= N) return;
  double2 acc = make_double2(0.0, 0.0);
  for (int k = 0; k < K; ++k)
    acc = acc + (double)A[row * K + k] * ((const float2*)(B + k * N))[pair];
  float2& c = ((float2*)(C + row * N))[pair];
  const double2 old = beta == 0.0f ? make_double2(0.0, 0.0) : (double)beta * c;
  c = make_float2(float(alpha * acc.x + old.x), float(alpha * acc.y + old.y));
}
