// Two buffers of asynchronous copies, one warp.
#define SHARED(p) (unsigned)__cvta_generic_to_shared(p)
#define COPY(to, from) \
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"(SHARED(to)), "l"(from))
#define COMMIT asm volatile("cp.async.commit_group;")
#define WAIT(n) asm volatile("cp.async.wait_group %0;" :: "n"(n) : "memory")

extern "C" __global__ void k(const float* in, float* out, int n) {
  __shared__ __align__(16) float tile[2][128];
  int t = threadIdx.x;
  float sum = 0.0f;
  COPY(&tile[0][4 * t], in + 4 * t);
  COMMIT;
  for (int i = 0; i < n; ++i) {
    if (i + 1 < n) COPY(&tile[(i + 1) % 2][4 * t], in + 128 * (i + 1) + 4 * t);
    COMMIT;
    WAIT(1);  // the copy
    __syncthreads();  // for all
    sum += tile[i % 2][4 * (31 - t)];
    __syncthreads();  // before it is overwritten
  }
  out[t] = sum;
}
