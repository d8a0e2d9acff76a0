// One warp group releases registers, the others ask for more.
extern "C" __global__ void __launch_bounds__(384, 1) k(float* out, int n, int by) {
  if (threadIdx.x < 128)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 104;");
  else asm volatile("setmaxnreg.inc.sync.aligned.u32 200;");
  out[threadIdx.x + by] = n;
}
