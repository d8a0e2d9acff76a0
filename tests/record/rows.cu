// Reads B once, and does nothing else: the floor of the time of few rows (rows.py).
// Sums what it reads, so that nothing is left out. No sum is that number.
extern "C" __global__ void __launch_bounds__(512) read(const float4* b, size_t count, float* out) {
  const size_t step = (size_t)gridDim.x * blockDim.x;
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  float sum = 0.0f;
  for (; i + 7 * step < count; i += 8 * step) {
    float4 loaded[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) loaded[j] = __ldcs(&b[i + j * step]);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += loaded[j].x + loaded[j].y + loaded[j].z + loaded[j].w;
  }
  for (; i < count; i += step) sum += b[i].x + b[i].y + b[i].z + b[i].w;
  if (sum == 12345.678f) *out = sum;
}
