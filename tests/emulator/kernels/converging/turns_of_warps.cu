// The last warp starts; each of the others counts how often it looks until its turn comes.
extern "C" __global__ void k(const int* in, int* out) {
  __shared__ int turn;
  int t = threadIdx.x, looks = 0;
  if (t == 0) turn = blockDim.x / 32 - 1;
  __syncthreads();
  while (*(volatile int*)&turn != t / 32) ++looks;
  out[t] = (looks >= 0) + in[t];
  __syncwarp();
  if (t % 32 == 0) *(volatile int*)&turn = t / 32 - 1;
}
