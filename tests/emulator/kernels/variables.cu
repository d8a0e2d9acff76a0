// Which memory generic addresses belong to, variables that hold the addresses of others, and a
// parameter that is read at an address in a register.
struct Table {
  int numbers[32];
};
__device__ float table[4] = {1, 2, 3, 4};
__device__ float* cursor = table + 2;
__constant__ const float* both[2] = {table + 1, table};

extern "C" __global__ void k(const __grid_constant__ Table given, int n, float* out) {
  __shared__ int tile[1];
  int own[2] = {n, n + 1};
  out[4 + threadIdx.x] = given.numbers[threadIdx.x ^ 3];
  out[0] = *cursor;
  out[1] = *both[n];
  out[2] = cursor[1];
  out[3] = __isShared(tile) + 2 * __isShared(out) + 4 * __isLocal(own + n) + 8 * __isLocal(tile);
}
