// C = A * B with tiles of 32 x 32, a step of 16 in K, three buffers and 128 threads.
__device__ __forceinline__ void copy(float* to, const float* from) {
  unsigned target = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(target), "l"(from) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wait() {
  asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
}

extern "C" __global__ void k(int M, int N, int K, const float* A, const float* B, float* C) {
  __shared__ __align__(16) float As[3][32][16];
  __shared__ __align__(16) float Bs[3][16][32];
  const int t = threadIdx.x, row = blockIdx.y * 32, col = blockIdx.x * 32;
  float acc[8] = {};
  copy(&As[0][t / 4][t % 4 * 4], &A[(row + t / 4) * K + t % 4 * 4]);
  copy(&Bs[0][t / 8][t % 8 * 4], &B[t / 8 * N + col + t % 8 * 4]);
  commit();
  for (int k0 = 0; k0 < K; k0 += 16) {
    const int now = k0 / 16 % 3, next = (now + 1) % 3;
    if (k0 + 16 < K) {
      copy(&As[next][t / 4][t % 4 * 4], &A[(row + t / 4) * K + k0 + 16 + t % 4 * 4]);
      copy(&Bs[next][t / 8][t % 8 * 4], &B[(k0 + 16 + t / 8) * N + col + t % 8 * 4]);
    }
    commit();
    wait<1>();
    __syncthreads();
    for (int k = 0; k < 16; ++k)
      for (int i = 0; i < 8; ++i) acc[i] += As[now][t / 32 * 8 + i][k] * Bs[now][k][t % 32];
  }
  for (int i = 0; i < 8; ++i) C[(row + t / 32 * 8 + i) * N + col + t % 32] = acc[i];
}
