#include <cstdint>
// domain: M % 16 == 0, N % 8 == 0, K % 32 == 0   by columns: B
// grid: N / 8, M / 16   block: 32
__global__ void gemm_mma_s8(const int8_t* A, const int8_t* B, int* C, int M, int N, int K) {
  int lane = threadIdx.x, group = lane / 4, quad = lane % 4;
  const int8_t* a = A + (blockIdx.y * 16 + group) * K + quad * 4;
  const int8_t* b = B + (blockIdx.x * 8 + group) * K + quad * 4;
  int sums[4] = {0, 0, 0, 0};
  for (int k = 0; k < K; k += 32) {
    unsigned a0 = *(const unsigned*)(a + k), a1 = *(const unsigned*)(a + 8 * K + k);
    unsigned a2 = *(const unsigned*)(a + k + 16), a3 = *(const unsigned*)(a + 8 * K + k + 16);
    unsigned b0 = *(const unsigned*)(b + k), b1 = *(const unsigned*)(b + k + 16);
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
  int* c = C + (blockIdx.y * 16 + group) * N + blockIdx.x * 8 + quad * 2;
  c[0] = sums[0]; c[1] = sums[1];
  c[8 * N] = sums[2]; c[8 * N + 1] = sums[3];
}
