// Lanes of a warp wait for a flag that one of them sets.
extern "C" __global__ void k(int* c, int* d) {
  int t = threadIdx.x;
  if (t == 0) atomicExch(c, 1); else while (*(volatile int*)c == 0) {}
  d[t] = 1;
}
