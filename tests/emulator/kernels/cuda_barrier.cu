// The box of 32 x 32 at (4, 8) of a matrix, through libcu++: its barrier and its tensor copy.
#include <cuda/barrier>
using Barrier = cuda::barrier<cuda::thread_scope_block>;
namespace device = cuda::device::experimental;
struct __align__(64) TensorMap { unsigned long long opaque[16]; };

extern "C" __global__ void k(const __grid_constant__ TensorMap map, float* out) {
  __shared__ __align__(128) float tile[32][32];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ Barrier bar;
  if (threadIdx.x == 0) {
    init(&bar, blockDim.x);
    device::fence_proxy_async_shared_cta();
  }
  __syncthreads();
  Barrier::arrival_token token;
  if (threadIdx.x == 0) {
    device::cp_async_bulk_tensor_2d_global_to_shared(&tile, (const CUtensorMap*)&map, 4, 8, bar);
    token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(tile));
  } else {
    token = bar.arrive();
  }
  bar.wait(std::move(token));
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) out[i] = tile[i / 32][i % 32];
}
