// Kernels of the harness itself. None of them runs between the two events around a
// measured kernel.

using Word = unsigned long long;

__device__ __forceinline__ Word global_ns() {
  Word now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Blocks the stream until the host sets *flag, or gives up after limit_ns and says so in flag[1]: a
// host that waits for work queued behind this kernel would otherwise wait for ever.
extern "C" __global__ void harness_hold(volatile int* flag, Word limit_ns) {
  const Word start = global_ns();
  while (flag[0] == 0) {
    if (global_ns() - start > limit_ns) {
      flag[1] = 1;
      return;
    }
    __nanosleep(100);
  }
}

// One thread a block, a few blocks an SM: each SM notes its cycle counter and the global timer in
// its own slot.
extern "C" __global__ void harness_stamp(Word* slots) {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  slots[2 * sm] = global_ns();
  slots[2 * sm + 1] = clock64();
}

// Overwrites a buffer with values that differ everywhere, so that no compression helps.
extern "C" __global__ void harness_flush(unsigned* buffer, size_t words, unsigned salt) {
  const size_t step = (size_t)gridDim.x * blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += step) {
    buffer[i] = (unsigned)i * 2654435761u + salt;
  }
}

// A kernel of known length.
extern "C" __global__ void harness_spin(Word ns) {
  const Word start = global_ns();
  while (global_ns() - start < ns) {
  }
}

// The FP32 ceiling: 16 independent chains of multiply-adds a thread, nothing else.
extern "C" __global__ void __launch_bounds__(256) harness_ffma(float* out, int steps) {
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) x[i] = threadIdx.x + i;
  const float a = 1.0f + blockIdx.x * 1e-9f, b = threadIdx.x * 1e-9f;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int repeat = 0; repeat < 16; ++repeat) {
#pragma unroll
      for (int i = 0; i < 16; ++i) x[i] = x[i] * a + b;
    }
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 16; ++i) sum += x[i];
  if (sum == 12345.678f) out[0] = sum;  // keeps the chains alive; practically never true
}

// The L2 ceiling: all SMs read the same buffer, smaller than L2, again and again, past L1.
extern "C" __global__ void __launch_bounds__(1024) harness_read(
    const float4* buffer, size_t quads, int rounds, float* out) {
  const size_t step = (size_t)gridDim.x * blockDim.x;
  float sum = 0.0f;
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < quads; i += step) {
      const float4 v = __ldcg(&buffer[i]);
      sum += v.x + v.y + v.z + v.w;
    }
  }
  if (sum == 12345.678f) out[0] = sum;
}

// How long single reads take: one thread walks a chain of cache lines past L1, each read waiting
// for the one before.
extern "C" __global__ void harness_probe(const unsigned* chain, unsigned* cycles, int steps) {
  __shared__ unsigned took[2048];
  __shared__ volatile unsigned sink;
  unsigned at = 0;
  for (int i = 0; i < steps; ++i) {
    const unsigned start = clock();
    at = __ldcg(&chain[at]);
    sink = at;  // the clock below is read after this store, and the store waits for the read
    took[i] = clock() - start;
  }
  for (int i = 0; i < steps; ++i) cycles[i] = took[i];
}
