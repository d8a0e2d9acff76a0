// Cooperative groups: a tile of 32 threads sums each element with a reduction
// grid: (N + 7) / 8, M
// block: 32, 8
// domain: any
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

__global__ void sgemm_cg(int M, int N, int K, float alpha, const float* A, const float* B,
                         float beta, float* C) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  const int row = block.group_index().y;
  const int col = block.group_index().x * warp.meta_group_size() + warp.meta_group_rank();
  if (col >= N) return;
  float partial = 0.0f;
  for (int k = warp.thread_rank(); k < K; k += warp.size())
    partial += A[row * K + k] * B[k * N + col];
  const float sum = cg::reduce(warp, partial, cg::plus<float>());
  if (warp.thread_rank() == 0) {
    float& c = C[row * N + col];
    c = beta == 0.0f ? alpha * sum : alpha * sum + beta * c;
  }
}
