// Each turn serves one lane; the others go around it and meet it again in the next ballot.
extern "C" __global__ void k(const int* in, int* out) {
  int t = threadIdx.x, lane = t % 32, left = in[t], sum = 0;
  unsigned todo;
  while ((todo = __ballot_sync(~0u, left > 0)) != 0) {
    if (lane == __ffs(todo) - 1) {
      for (int i = 0; i < left; ++i) out[64 + t] += i ^ left;
      left = 0;
    }
    sum += __popc(todo);
  }
  out[t] = sum;
}
