extern "C" __global__ void k(unsigned count, unsigned* out) {
  unsigned n = blockIdx.x * blockDim.x + threadIdx.x + 1, steps = 0;
  while (n != 1 && steps < 200) {
    if (n % 2) n = 3 * n + 1;
    else if (n % 4) n /= 2;
    else { n /= 4; ++steps; }
    ++steps;
  }
  const unsigned number = blockIdx.x * blockDim.x + threadIdx.x;
  if (number < count) out[number] = steps;
}
