// The halves of each warp exchange values through shared memory, each with its own __syncwarp(),
// and then both.
extern "C" __global__ void k(const int* in, int* out) {
  __shared__ int tile[128];
  int t = threadIdx.x, value = in[t];
  unsigned half = t % 32 < 16 ? 0xffffu : 0xffff0000u;
  for (int i = 1; i < 16; i *= 2) {
    tile[t] = value;
    __syncwarp(half);
    value += tile[t ^ i];
    __syncwarp(half);
  }
  tile[t] = value;
  __syncwarp();
  out[t] = tile[t ^ 16];
}
