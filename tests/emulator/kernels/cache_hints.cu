extern "C" __global__ void k(const float* in, float* out) {
  unsigned long long policy;
  float x, y;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.f32 %0, [%1], %2;"
               : "=f"(x) : "l"(in + threadIdx.x), "l"(policy));
  asm volatile("ld.global.nc.L2::256B.f32 %0, [%1];" : "=f"(y) : "l"(in + threadIdx.x + 1));
  asm volatile("prefetch.global.L2 [%0]; prefetchu.L1 [%0];" :: "l"(in));
  asm volatile("griddepcontrol.wait;");
  __nanosleep(100);
  asm volatile("st.global.L2::cache_hint.f32 [%0], %1, %2;"
               :: "l"(out + threadIdx.x), "f"(x + y), "l"(policy));
}
