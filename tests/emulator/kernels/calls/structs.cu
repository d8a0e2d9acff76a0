// Structs are passed by value.
struct P { float x; double y; short z; float4 v; };
__device__ __noinline__ P f(P a, int k) { return {a.v.y + k, a.y * k, (short)(a.z - k), {a.x, a.v.w, a.v.z, a.v.x}}; }
__device__ __noinline__ void put(float* o, P a) { *o = a.x + (float)a.y + a.z + a.v.x + 2 * a.v.y; }
extern "C" __global__ void k(float* out) {
  P a = {1.5f, 2.5, 7, {1, 2, 3, 4}};
  put(out + threadIdx.x, f(a, threadIdx.x));
}
