// A cluster of two blocks, each of which loads half of B's tile for both
// grid: N / 32 * 2, (M + 15) / 16
// block: 32, 8
// domain: N % 32 == 0, K % 16 == 0
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void __cluster_dims__(2, 1, 1)
    gemm_cluster(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                 float* C) {
  __shared__ float half[8][32];
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned rank = cluster.block_rank();
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * 16 + rank * 8 + y, col = blockIdx.x / 2 * 32 + x;
  const float* first = cluster.map_shared_rank(&half[0][0], 0);
  const float* second = cluster.map_shared_rank(&half[0][0], 1);
  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += 16) {
    half[y][x] = B[(k0 + rank * 8 + y) * N + col];
    cluster.sync();
    if (row < M) {
      for (int k = 0; k < 8; ++k) {
        acc += A[row * K + k0 + k] * first[32 * k + x];
        acc += A[row * K + k0 + 8 + k] * second[32 * k + x];
      }
    }
    cluster.sync();
  }
  if (row < M)
    C[row * N + col] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col];
}
