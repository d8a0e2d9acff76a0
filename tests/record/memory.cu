// Latencies and bandwidths of each memory of a GPU, for tests/record/memory.py.
//
// A chain is a closed walk through lines of 128 bytes: the first word of a line is the address of
// the next line. One thread follows it, so each load waits for the one before, and the cycles of a
// step are the latency of a load, with no address arithmetic between two loads.

using Address = unsigned long long;
constexpr int WORDS = 128 / sizeof(Address);  // of a line
constexpr int SHARED_LINES = 256;             // 32 KiB
constexpr int SHARED_WORDS = 32;              // of 4 bytes in a line
constexpr int SHARED_QUADS = SHARED_LINES * SHARED_WORDS / 4;
constexpr int THREADS = 1024;

// Connects the lines in this order to a closed walk.
extern "C" __global__ void link(Address *chain, const unsigned *order, int lines) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= lines) return;
  const unsigned next = order[i + 1 < lines ? i + 1 : 0];
  chain[(size_t)WORDS * order[i]] = (Address)&chain[(size_t)WORDS * next];
}

// Writes the cycles of a walk, and where it ends, so that no load is left out.
__device__ void finish(Address *out, long long start, Address end) {
  out[0] = clock64() - start;
  out[1] = end;
}

// Through global memory from address `at` on, or from the chain's first line if it is 0.
// L1: whether L1 may keep the lines
template <bool L1>
__global__ void chase(const Address *chain, Address at, int steps, Address *out) {
  if (at == 0) at = (Address)chain;
  const long long start = clock64();
  for (int i = 0; i < steps; ++i) {
    if (L1)
      asm volatile("ld.global.ca.u64 %0, [%0];" : "+l"(at));
    else
      asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at));
  }
  finish(out, start, at);
}

// Through shared memory in this order. It ends at an offset in bytes.
extern "C" __global__ void chase_shared(const unsigned *order, int lines, int steps, Address *out) {
  __shared__ unsigned chain[SHARED_LINES * SHARED_WORDS];
  for (int i = 0; i < lines; ++i) {
    const unsigned next = order[i + 1 < lines ? i + 1 : 0];
    chain[SHARED_WORDS * order[i]] =
        (unsigned)__cvta_generic_to_shared(&chain[SHARED_WORDS * next]);
  }
  const unsigned base = (unsigned)__cvta_generic_to_shared(chain);
  unsigned at = base + SHARED_WORDS * sizeof(unsigned) * order[0];
  const long long start = clock64();
  for (int i = 0; i < steps; ++i) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at)::"memory");
  finish(out, start, at - base);
}

// Through registers: each multiply-add needs the result of the one before.
extern "C" __global__ void chase_registers(float a, int steps, Address *out) {
  float x = a;
  const long long start = clock64();
#pragma unroll 64
  for (int i = 0; i < steps; ++i) asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(x) : "f"(a));
  finish(out, start, __float_as_uint(x));
}

// Each block reads its part of a buffer again and again.
// L1: whether L1 may keep it
// part: the quads (16 bytes) of a block
template <bool L1>
__global__ void __launch_bounds__(THREADS)
    stream(const float4 *buffer, size_t part, int rounds, float *out) {
  const float4 *of_block = buffer + part * blockIdx.x;
  float sum = 0.0f;
  for (int round = 0; round < rounds; ++round) {
#pragma unroll 4
    for (size_t i = threadIdx.x; i < part; i += blockDim.x) {
      const float4 *from = &of_block[i];
      float4 v;
      if (L1)
        asm volatile("ld.global.ca.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                     : "l"(from));
      else
        asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                     : "l"(from));
      sum += v.x + v.y + v.z + v.w;
    }
  }
  out[(size_t)blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Each block reads its shared memory, with the start of the buffer in it, again and again. In each
// round, a thread starts 32 quads further: from the same address, the compiler would load once.
extern "C" __global__ void __launch_bounds__(THREADS)
    stream_shared(const float4 *buffer, int rounds, float *out) {
  __shared__ float4 copy[SHARED_QUADS];
  for (int i = threadIdx.x; i < SHARED_QUADS; i += blockDim.x) copy[i] = buffer[i];
  __syncthreads();
  const unsigned base = (unsigned)__cvta_generic_to_shared(copy);
  float sum = 0.0f;
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < SHARED_QUADS; i += THREADS) {
      float4 v;
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                   : "r"(base + 16 * ((threadIdx.x + i + 32 * round) % SHARED_QUADS)));
      sum += v.x + v.y + v.z + v.w;
    }
  }
  out[(size_t)blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Runs for some nanoseconds, and writes the cycles and the nanoseconds that passed.
extern "C" __global__ void tell_clock(Address ns, Address *out) {
  Address begun, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
  const long long start = clock64();
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - begun < ns);
  out[0] = clock64() - start;
  out[1] = now - begun;
}
