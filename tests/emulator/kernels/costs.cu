// Iteration i reads floats i + lane, then every i-th float: each iteration has its own costs.
extern "C" __global__ void k(const float* in, float* out) {
  float sum = 0.0f;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {
    sum += in[i + threadIdx.x];
    sum += in[i * threadIdx.x];
  }
  out[threadIdx.x] = sum;
}
