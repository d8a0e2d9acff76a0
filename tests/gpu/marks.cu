// Reads n words of x with the hint to evict their lines from L2 last.
extern "C" __global__ void marks(const unsigned* x, int n, unsigned* out) {
  unsigned long long policy;
  unsigned sum = 0;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    unsigned value;
    asm volatile("ld.global.L2::cache_hint.u32 %0, [%1], %2;" : "=r"(value) : "l"(x + i), "l"(policy));
    sum += value;
  }
  if (sum == 12345) *out = sum;  // practically never
}
