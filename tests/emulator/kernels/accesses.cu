// Shared loads and stores of every width, with registers and uniform registers as addresses.
extern "C" __global__ void k(float* out, const float* in, int n, short* h, double* d) {
  __shared__ float t[1024];
  __shared__ short s[64];
  __shared__ double e[64];
  extern __shared__ float4 q[];
  t[threadIdx.x] = in[threadIdx.x];
  t[512] = n;
  s[n] = h[n];
  e[n] = d[n];
  q[n] = make_float4(1, 2, 3, n);
  *(float2*)&t[2 * n] = *(float2*)&in[2 * n];
  __syncthreads();
  float a = t[0] + t[n] + t[blockIdx.x] + t[threadIdx.x + n];
  if (threadIdx.x == n) a += t[7];
  for (int i = 0; i < n; i++) a += t[i] * t[i + 32];
  a += s[n] + s[threadIdx.x] + e[threadIdx.x] + e[n] + q[n].x + q[threadIdx.x].y + q[threadIdx.x].z;
  atomicAdd(&t[n], a);
  __syncthreads();
  out[threadIdx.x] = a + t[threadIdx.x];
}
