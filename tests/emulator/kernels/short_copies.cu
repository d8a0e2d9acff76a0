// A copy reads no more than its size and fills up with zeros.
extern "C" __global__ void k(const float* in, float* out) {
  __shared__ __align__(16) float tile[128];
  unsigned to = (unsigned)__cvta_generic_to_shared(&tile[4 * threadIdx.x]);
  unsigned bytes = (31 - threadIdx.x) % 5 * 4;
  const float* from = in + 4 * threadIdx.x;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes));
  asm volatile("cp.async.wait_all;" ::: "memory");
  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = tile[4 * threadIdx.x + i];
}
