// A variable that each launch counts up.
__device__ unsigned times = 1;
__global__ void counts(float* out) { out[0] = times++; }
