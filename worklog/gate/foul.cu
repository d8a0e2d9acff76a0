// Fills with NaN what a launch inherits from the launch before: shared memory, local memory and
// registers.

__global__ void foul() {
  // 48 KiB, the most without opting in; four blocks fill a multiprocessor
  __shared__ volatile unsigned words[12288];
  volatile unsigned local[128];
  for (int i = threadIdx.x; i < 12288; i += blockDim.x) words[i] = 0x7fc00000u;
  for (int i = 0; i < 128; ++i) local[(i + threadIdx.x) & 127] = 0x7fc00000u;
  __syncthreads();
  unsigned held[20];
#pragma unroll
  for (int i = 0; i < 20; ++i) held[i] = words[(threadIdx.x + i) % 12288];
  __syncthreads();  // keeps the compiler from delaying the loads: all values are live at once
  if (gridDim.x == 1) {  // never true; keeps the values live
#pragma unroll
    for (int i = 0; i < 20; ++i) words[held[i] % 12288] = local[(held[i] + i) & 127];
  }
}
