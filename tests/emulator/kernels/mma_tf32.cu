// Tensor cores with TF32 operands: each warp computes 32 x 32 elements, each block of 4 warps 64
// x 64.
// PARTS 1: each operand is rounded to TF32. PARTS 3: it is split into two TF32 numbers, and hi *
// hi + hi * lo + lo * hi is as accurate as FP32 if the sums leave the tensor core's accumulator
// now and then.
// Domain: M % 64 == 0, N % 64 == 0, K % 32 == 0.

#define PARTS 1
#define LINE 36  // floats per line of A in shared memory: ldmatrix without bank conflicts

__device__ unsigned to_tf32(float x) {
  unsigned out;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out) : "f"(x));
  return out;
}

__device__ void multiply(float* c, const unsigned* a, const unsigned* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

extern "C" __global__ void k(int M, int N, int K, float alpha, const float* A, const float* B,
                             float beta, float* C) {
  __shared__ __align__(16) float a[64 * LINE];
  __shared__ float b[32][72];
  const int t = threadIdx.x, lane = t % 32, row = blockIdx.y * 64, column = blockIdx.x * 64;
  const int m = t / 64 * 32, n = t / 32 % 2 * 32;
  float sums[2][4][4] = {};

  for (int start = 0; start < K; start += 32) {
    for (int i = t; i < 64 * 32; i += 128) {
      a[i / 32 * LINE + i % 32] = A[(row + i / 32) * (size_t)K + start + i % 32];
      b[i / 64][i % 64] = B[(start + i / 64) * (size_t)N + column + i % 64];
    }
    __syncthreads();
    float part[2][4][4] = {};
    for (int k = 0; k < 32; k += 8) {
      unsigned hi[2][4], lo[2][4];
      for (int i = 0; i < 2; ++i) {
        // Lane l gives the address of row l % 16 and of floats 4 * (l / 16) … + 3 of it.
        const float* place = &a[(m + 16 * i + lane % 16) * LINE + k + lane / 16 * 4];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(lo[i][0]), "=r"(lo[i][1]), "=r"(lo[i][2]), "=r"(lo[i][3])
                     : "r"((unsigned)__cvta_generic_to_shared(place)));
        for (int r = 0; r < 4; ++r) {
          const float x = __uint_as_float(lo[i][r]);
          hi[i][r] = to_tf32(x);
          lo[i][r] = to_tf32(x - __uint_as_float(hi[i][r]));
        }
      }
      for (int j = 0; j < 4; ++j) {
        unsigned high[2], low[2];
        for (int r = 0; r < 2; ++r) {
          const float x = b[k + lane % 4 + 4 * r][n + 8 * j + lane / 4];
          high[r] = to_tf32(x);
          low[r] = to_tf32(x - __uint_as_float(high[r]));
        }
        for (int i = 0; i < 2; ++i) {
          if (PARTS == 3) {
            multiply(part[i][j], lo[i], high);
            multiply(part[i][j], hi[i], low);
          }
          multiply(part[i][j], hi[i], high);
        }
      }
    }
    for (int e = 0; e < 32; ++e) (&sums[0][0][0])[e] += (&part[0][0][0])[e];
    __syncthreads();
  }

  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      for (int e = 0; e < 4; ++e) {
        const int r = row + m + 16 * i + lane / 4 + e / 2 * 8;
        float* c = &C[r * (size_t)N + column + n + 8 * j + lane % 4 * 2 + e % 2];
        *c = alpha * sums[i][j][e] + (beta == 0.0f ? 0.0f : beta * *c);
      }
}
