// mma.sync with three products of TF32, each step's sum added in FP32
// grid: N / 16, M / 16
// block: 64
// domain: M % 16 == 0, N % 16 == 0, K % 8 == 0
// class: fp32-emulated
__device__ uint2 big_small(float x) {
  uint2 r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r.x) : "f"(x));
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r.y) : "f"(x - __uint_as_float(r.x)));
  return r;
}

__device__ void mma16n8k8(float* d, const unsigned* a, const unsigned* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__global__ void gemm_3xtf32(int M, int N, int K, float alpha, const float* A, const float* B,
                            float beta, float* C) {
  const int lane = threadIdx.x % 32, gid = lane >> 2, tig = lane & 3;
  A += (blockIdx.y * 16 + gid) * K + tig;
  B += tig * N + blockIdx.x * 16 + threadIdx.x / 32 * 8 + gid;
  float sum[4] = {};
  for (int k = 0; k < K; k += 8) {
    unsigned aBig[4], aSmall[4], bBig[2], bSmall[2];
    for (int i = 0; i < 4; ++i) {
      const uint2 r = big_small(A[i % 2 * 8 * K + k + i / 2 * 4]);
      aBig[i] = r.x;
      aSmall[i] = r.y;
    }
    for (int i = 0; i < 2; ++i) {
      const uint2 r = big_small(B[(k + 4 * i) * N]);
      bBig[i] = r.x;
      bSmall[i] = r.y;
    }
    float step[4] = {};
    mma16n8k8(step, aSmall, bBig);
    mma16n8k8(step, aBig, bSmall);
    mma16n8k8(step, aBig, bBig);
    for (int i = 0; i < 4; ++i) sum[i] += step[i];
  }
  C += (blockIdx.y * 16 + gid) * N + blockIdx.x * 16 + threadIdx.x / 32 * 8 + 2 * tig;
  for (int i = 0; i < 4; ++i) {
    float& c = C[i / 2 * 8 * N + i % 2];
    c = beta == 0.0f ? alpha * sum[i] : alpha * sum[i] + beta * c;
  }
}
