// One warp multiplies 16 x 16 by 16 x 8 halves. A comes from shared memory by ldmatrix; B,
// stored row by row, by ldmatrix.trans; D leaves by stmatrix, and again transposed: by
// stmatrix.trans, and by movmatrix.
#define A_LINE 24
__device__ unsigned place(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

extern "C" __global__ void k(const unsigned short* A, const unsigned short* B, unsigned short* D) {
  __shared__ __align__(16) unsigned short a[16 * A_LINE];
  __shared__ __align__(16) unsigned short b[16 * 8], d[16 * 8], e[8 * 16];
  const int lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) a[i / 16 * A_LINE + i % 16] = A[i];
  for (int i = lane; i < 128; i += 32) b[i] = B[i];
  __syncthreads();

  unsigned x[4], y[2], z[2] = {};
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(place(&a[lane % 16 * A_LINE + lane / 16 * 8])));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(y[0]), "=r"(y[1])
               : "r"(place(&b[lane % 16 * 8])));
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
               "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
               : "+r"(z[0]), "+r"(z[1])
               : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
               ::"r"(place(&d[lane % 16 * 8])),
               "r"(z[0]), "r"(z[1]) : "memory");
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};"
               ::"r"(place(&e[lane % 8 * 16])),
               "r"(z[0]) : "memory");
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(z[1]));
  *(unsigned*)&e[lane / 4 * 16 + 8 + lane % 4 * 2] = z[1];
  __syncthreads();
  for (int i = lane; i < 128; i += 32) {
    D[i] = d[i];
    D[128 + i] = e[i];
  }
}
