// Each half of the block waits at its own __syncthreads(), as kernel 11 of SGEMM_CUDA does: two
// buffers, of which one half reads the one while the other half writes the other.
extern "C" __global__ void k(const int* in, int* out) {
  __shared__ int tile[2][64];
  int t = threadIdx.x, sum = 0;
  if (t < 64) tile[0][t] = in[t];
  __syncthreads();
  for (int i = 0; i < 4; ++i) {
    if (t < 64) {
      sum += tile[i % 2][63 - t];
      __syncthreads();
      sum *= 3;
      __syncthreads();
    } else {
      tile[1 - i % 2][t - 64] = in[t] + i;
      __syncthreads();
      sum -= tile[1 - i % 2][127 - t];
      __syncthreads();
    }
  }
  out[t] = sum;
}
