// A warp group multiplies 64 x 64 tiles with TF32 operands that it stages in shared memory, 32 k
// at a time: lines of 128 bytes along K, swizzled.
// Domain: M % 64 == 0, N % 64 == 0, K % 32 == 0.

struct __align__(1024) Stage {
  float a[64][32], b[64][32];  // b: transposed
};

__device__ unsigned long long descriptor(const void* p) {
  const unsigned long long start = __cvta_generic_to_shared(p);
  return (start & 0x3FFFF) >> 4 | 1ull << 16 | 1024ull >> 4 << 32 | 1ull << 62;
}

// Four floats of line r at the place that the swizzle gives them.
__device__ float& place(float (*tile)[32], int r, int k) {
  return tile[r][(k / 4 ^ r % 8) * 4 + k % 4];
}

__device__ void multiply(float (&d)[32], unsigned long long a, unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, 1, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
        "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
        "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b));
}

extern "C" __global__ void k(int M, int N, int K, float alpha, const float* A, const float* B,
    float beta, float* C) {
  __shared__ Stage stage;
  const int t = threadIdx.x, row = blockIdx.y * 64, column = blockIdx.x * 64;
  float d[32] = {};
  for (int start = 0; start < K; start += 32) {
    for (int i = t; i < 64 * 32; i += 128) {
      place(stage.a, i / 32, i % 32) = A[(row + i / 32) * (size_t)K + start + i % 32];
      place(stage.b, i % 64, i / 64) = B[(start + i / 64) * (size_t)N + column + i % 64];
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int k = 0; k < 32; k += 8) {
      multiply(d, descriptor(stage.a) + k / 4, descriptor(stage.b) + k / 4);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
  }
  for (int i = 0; i < 32; ++i) {
    const int r = row + t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8;
    float* c = &C[r * (size_t)N + column + i / 4 * 8 + t % 4 * 2 + i % 2];
    *c = alpha * d[i] + (beta == 0.0f ? 0.0f : beta * *c);
  }
}
