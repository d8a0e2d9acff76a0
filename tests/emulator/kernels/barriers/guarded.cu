// A predicated barrier waits for the threads that execute it: those of warps 0 and 1.
extern "C" __global__ void k(const int* in, int* out) {
  __shared__ int tile[64];
  int t = threadIdx.x;
  if (t < 64) tile[t] = in[t];
  asm volatile("{.reg .pred %p; setp.lt.s32 %p, %0, 64; @%p bar.sync 3, 64;}" ::"r"(t) : "memory");
  out[t] = t < 64 ? tile[63 - t] : 5;
}
