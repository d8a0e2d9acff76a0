// Blocks that wait for the whole grid.
#include <cooperative_groups.h>
__global__ void meets(float* out, int* arrived) {
  if (threadIdx.x == 0) atomicAdd(arrived, 1);
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 0) out[blockIdx.x] = *(volatile int*)arrived;
}
