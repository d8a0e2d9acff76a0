extern "C" __global__ void k(const float* in, int which, float* out) {
  __shared__ float tile[32];
  float local[2] = {in[threadIdx.x], 2.0f};
  tile[threadIdx.x] = -1.0f;
  __syncthreads();
  float* where = which == 0 ? tile + threadIdx.x : which == 1 ? out : local;
  asm volatile("{ .reg .f32 x; ld.f32 x, [%0]; add.f32 x, x, 0f3F800000; st.f32 [%0], x; }"
               :: "l"(where) : "memory");
  out[threadIdx.x + 1] = tile[threadIdx.x] + local[0];
}
