// A generic access counts as one of the memory that it is in: of the first lanes global memory, of the others shared.
extern "C" __global__ void k(const float* a, int which, float* c) {
  float x;
  __shared__ float tile[32];
  const float* p = threadIdx.x < which ? a + 8 * threadIdx.x : tile + 8 * (threadIdx.x % 4);
  tile[threadIdx.x] = 0;
  __syncwarp();
  asm volatile("ld.f32 %0, [%1];" : "=f"(x) : "l"(p));
  c[threadIdx.x] = x;
}
