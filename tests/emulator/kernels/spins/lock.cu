// Lanes of a warp wait for a lock that one of them holds.
extern "C" __global__ void k(int* c, int* d) {
  while (atomicCAS(c, 0, 1) != 0) {}
  __threadfence();
  *d += 1;
  __threadfence();
  atomicExch(c, 0);
}
