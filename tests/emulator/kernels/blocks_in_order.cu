// Blocks take turns, the last one first, and wait in one of five ways.
__device__ void wait_for(int mine, int* turn, int way) {
  __shared__ int shared;
  int seen = -1;
  unsigned ns = 8;
  if (way == 4) {  // the whole block
    for (;;) {
      if (threadIdx.x == 0) shared = *(volatile int*)turn;
      __syncthreads();
      if (shared == mine) return;
      __syncthreads();
    }
  }
  if (threadIdx.x != 0) return;
  if (way == 0) while (atomicAdd(turn, 0) != mine) {}
  if (way == 1) while (*(volatile int*)turn != mine) {}
  while (way == 2 && *(volatile int*)turn != mine) {
    __nanosleep(ns);
    if (ns < 256) ns *= 2;
  }
  while (way == 3 && seen != mine)
    asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(seen) : "l"(turn));
}

extern "C" __global__ void k(int way, int* turn, unsigned* out) {
  wait_for(gridDim.x - 1 - blockIdx.x, turn, way);
  __threadfence();
  __syncthreads();
  out[threadIdx.x] = out[threadIdx.x] * 3 + blockIdx.x;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(turn, 1);
}
