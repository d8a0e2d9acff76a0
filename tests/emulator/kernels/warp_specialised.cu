// C = alpha * A * B + beta * C with tiles of 64 x 64: one warp copies, four warps multiply. Four
// stages of 8 k; a full and an empty mbarrier each hand a stage over, and there is no
// __syncthreads() in the loop.
// Domain: M % 64 == 0, N % 64 == 0, K % 8 == 0.
constexpr int BM = 64, BN = 64, BK = 8, STAGES = 4, CONSUMERS = 4;

// The tests choose a bug.
enum Bug {
  NONE,
  RELEASES_WITHOUT_SYNCWARP,
  RELEASES_BEFORE_READING,
  NO_WAIT_FOR_FULL,
  NO_WAIT_FOR_EMPTY,
  FULL_PARITY_STAYS,
  EMPTY_PARITY_STAYS,
  EMPTY_PARITY_INVERTED,
  WAITS_FOR_ANOTHER_STAGE,
  EXPECTS_MORE_BYTES,
  EXPECTS_FEWER_BYTES,
  COUNTS_FEWER_ARRIVALS,
  COUNTS_MORE_ARRIVALS,
  NO_FENCE,
  NO_BARRIER_AFTER_INIT,
  ONE_MBARRIER_NOT_INITIALISED
};
__constant__ int bug;

struct __align__(16) Stage {
  float a[BK][BM], b[BK][BN];
};

__device__ __forceinline__ unsigned address(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void init(unsigned bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void wait(unsigned bar, int parity) {
  asm volatile(
      "{\n.reg .pred P1;\nLAB_WAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
      "@P1 bra DONE;\nbra LAB_WAIT;\nDONE:\n}" ::"r"(bar),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void arrive(unsigned bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void expect(unsigned bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void copy(void* to, const void* from, int bytes, unsigned bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(address(to)),
      "l"(from), "r"(bytes), "r"(bar)
      : "memory");
}

extern "C" __global__ void __launch_bounds__(32 + 32 * CONSUMERS)
    k(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  __shared__ Stage stages[STAGES];
  __shared__ __align__(8) unsigned long long full[STAGES], empty[STAGES];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = blockIdx.y * BM, col = blockIdx.x * BN;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      init(address(&full[s]),
           32 + 1 + (bug == COUNTS_MORE_ARRIVALS) - (bug == COUNTS_FEWER_ARRIVALS));
      if (s || bug != ONE_MBARRIER_NOT_INITIALISED) init(address(&empty[s]), CONSUMERS);
    }
    if (bug != NO_FENCE) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (bug != NO_BARRIER_AFTER_INIT) __syncthreads();
  if (warp == CONSUMERS) {
    for (int i = 0; i < K / BK; ++i) {
      const int s = i % STAGES, k0 = i * BK;
      const int parity =
          bug == EMPTY_PARITY_STAYS ? 0 : i / STAGES % 2 ^ (bug == EMPTY_PARITY_INVERTED);
      if (bug != NO_WAIT_FOR_EMPTY) wait(address(&empty[s]), parity ^ 1);
      const int bytes =
          BK * BN * 4 + 16 * (bug == EXPECTS_MORE_BYTES) - 256 * (bug == EXPECTS_FEWER_BYTES);
      if (lane == 0) expect(address(&full[s]), bytes);
      __syncwarp();
      if (lane < BK) copy(stages[s].b[lane], &B[(k0 + lane) * N + col], BN * 4, address(&full[s]));
      for (int r = lane; r < BM; r += 32)
        for (int k = 0; k < BK; k += 4) {
          const float4 x = *(const float4*)&A[(row + r) * K + k0 + k];
          stages[s].a[k][r] = x.x;
          stages[s].a[k + 1][r] = x.y;
          stages[s].a[k + 2][r] = x.z;
          stages[s].a[k + 3][r] = x.w;
        }
      arrive(address(&full[s]));
    }
    return;
  }
  const int r0 = threadIdx.x / 16 * 8, c0 = threadIdx.x % 16 * 4;
  float acc[8][4] = {};
  for (int i = 0; i < K / BK; ++i) {
    const int s = i % STAGES;
    const int parity = bug == FULL_PARITY_STAYS ? 0 : i / STAGES % 2;
    if (bug != NO_WAIT_FOR_FULL)
      wait(address(&full[bug == WAITS_FOR_ANOTHER_STAGE ? 0 : s]), parity);
    if (bug == RELEASES_BEFORE_READING && lane == 0) arrive(address(&empty[s]));
    for (int k = 0; k < BK; ++k) {
      const float4 b = *(const float4*)&stages[s].b[k][c0];
      for (int r = 0; r < 8; ++r) {
        const float a = stages[s].a[k][r0 + r];
        acc[r][0] += a * b.x;
        acc[r][1] += a * b.y;
        acc[r][2] += a * b.z;
        acc[r][3] += a * b.w;
      }
    }
    if (bug != RELEASES_WITHOUT_SYNCWARP) __syncwarp();
    if (bug != RELEASES_BEFORE_READING && lane == 0) arrive(address(&empty[s]));
  }
  for (int r = 0; r < 8; ++r)
    for (int c = 0; c < 4; ++c) {
      float* out = &C[(row + r0 + r) * N + col + c0 + c];
      *out = alpha * acc[r][c] + (beta == 0 ? 0 : beta * *out);
    }
}
