// Each warp computes one element at a time, with shuffles.
extern "C" __global__ void k(int M, int N, int K, const float* A, const float* B, float* C) {
  const int t = threadIdx.y * 16 + threadIdx.x, lane = t % 32;
  for (int i = 0; i < 32; ++i) {
    const int element = t / 32 * 32 + i;
    const int row = blockIdx.y * 16 + element / 16, col = blockIdx.x * 16 + element % 16;
    float acc = 0;
    for (int k = lane; k < K; k += 32) acc += A[row * K + k] * B[k * N + col];
    for (int d = 16; d; d /= 2) acc += __shfl_xor_sync(0xffffffffu, acc, d);
    if (lane == 0) C[row * N + col] = acc;
  }
}
