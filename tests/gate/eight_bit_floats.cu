// A and B as e4m3, multiplied by tensor cores: a warp computes 16 x 8 of C.
// Grid:    (N + 7) // 8, (M + 15) // 16
// Block:   32
// Domain:  any

__device__ unsigned four(const float* from, int stride, int left) {
  float x[4];
  for (int k = 0; k < 4; ++k) x[k] = k < left ? from[k * stride] : 0.0f;
  unsigned short low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(x[1]), "f"(x[0]));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(x[3]), "f"(x[2]));
  return low | (unsigned)high << 16;
}

__global__ void fp8(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  const int row = blockIdx.y * 16 + threadIdx.x / 4, col = blockIdx.x * 8 + threadIdx.x / 4;
  const int t = threadIdx.x % 4;
  float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int k0 = 0; k0 < K; k0 += 32) {
    unsigned a[4], b[2];
    for (int r = 0; r < 4; ++r) {
      const int k = k0 + 4 * t + r / 2 * 16, m = row + r % 2 * 8;
      a[r] = four(A + m * K + k, 1, m < M ? K - k : 0);
    }
    for (int r = 0; r < 2; ++r) {
      const int k = k0 + 4 * t + r * 16;
      b[r] = four(B + k * N + col, N, col < N ? K - k : 0);
    }
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  for (int e = 0; e < 4; ++e) {
    const int m = row + e / 2 * 8, n = blockIdx.x * 8 + 2 * t + e % 2;
    if (m >= M || n >= N) continue;
    float* c = &C[m * N + n];
    *c = beta == 0.0f ? alpha * acc[e] : alpha * acc[e] + beta * *c;
  }
}
