// They are passed as words.
__device__ __noinline__ int f(bool b, signed char c, unsigned char u, short s, unsigned short w) {
  return (b ? 1 : 0) + 2 * c + 1000 * u + 3 * s + 5 * w;
}
extern "C" __global__ void k(int* out) {
  int k = 70000 * threadIdx.x - 9;
  out[threadIdx.x] = f(k & 4, k, k, k, k);
}
