#include <cuda_bf16.h>
// The layer F.linear: out = relu(x weight^T + bias).   epilogue: relu
// grid: (N + 15) / 16, (M + 15) / 16   block: 16, 16
__global__ void linear(const __nv_bfloat16* x, const __nv_bfloat16* weight, const float* bias, __nv_bfloat16* out, int M, int N, int K) {
  int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  if (row >= M || col >= N) return;
  float sum = bias[col];
  for (int k = 0; k < K; ++k) sum += __bfloat162float(x[row * K + k]) * __bfloat162float(weight[col * K + k]);
  out[row * N + col] = __float2bfloat16(fmaxf(sum, 0.0f));
}
