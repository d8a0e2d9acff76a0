// A lane waits for a flag, which is set behind a vote of the others in two branches.
extern "C" __global__ void k(int* c, int* d) {
  int t = threadIdx.x;
  if (t == 5) while (*(volatile int*)c == 0) {}
  else if (t < 16) d[t] = __ballot_sync(~32u, t % 3);
  else d[t] = 2 + __ballot_sync(~32u, t & 1);
  if (t == 0) atomicExch(c, 1);
}
