#include <cuda_fp16.h>
// mma.sync on tiles in swizzled shared memory, read with ldmatrix.
// grid: N / 64, M / 64   block: 128   domain: M % 64 == 0, N % 64 == 0, K % 32 == 0
__device__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__global__ void hgemm_mma(int M, int N, int K, const half* A, const half* B, half* C) {
  __shared__ __align__(16) half As[64][32], Bs[32][64];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const half* a_block = A + (size_t)blockIdx.y * 64 * K;
  const half* b_block = B + blockIdx.x * 64;
  float acc[8][4] = {};
  for (int k0 = 0; k0 < K; k0 += 32) {
    for (int i = threadIdx.x; i < 256; i += 128) {
      const int a_row = i / 4, a_chunk = i % 4, b_row = i / 8, b_chunk = i % 8;
      *(uint4*)&As[a_row][(a_chunk ^ a_row / 2 % 4) * 8] =
          *(const uint4*)&a_block[(size_t)a_row * K + k0 + a_chunk * 8];
      *(uint4*)&Bs[b_row][(b_chunk ^ b_row % 8) * 8] =
          *(const uint4*)&b_block[(size_t)(k0 + b_row) * N + b_chunk * 8];
    }
    __syncthreads();
    for (int k = 0; k < 32; k += 16) {
      unsigned a[4];
      const int row = warp * 16 + lane % 16, chunk = k / 8 + lane / 16;
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                   : "r"(shared_address(&As[row][(chunk ^ row / 2 % 4) * 8])));
      for (int n = 0; n < 8; ++n) {
        unsigned b[2];
        const int k_row = k + lane % 16;
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(b[0]), "=r"(b[1])
                     : "r"(shared_address(&Bs[k_row][(n ^ k_row % 8) * 8])));
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(acc[n][0]), "+f"(acc[n][1]), "+f"(acc[n][2]), "+f"(acc[n][3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
      }
    }
    __syncthreads();
  }
  const int row = blockIdx.y * 64 + warp * 16 + lane / 4;
  for (int n = 0; n < 8; ++n) {
    const int col = blockIdx.x * 64 + n * 8 + lane % 4 * 2;
    *(half2*)&C[(size_t)row * N + col] = __floats2half2_rn(acc[n][0], acc[n][1]);
    *(half2*)&C[(size_t)(row + 8) * N + col] = __floats2half2_rn(acc[n][2], acc[n][3]);
  }
}
