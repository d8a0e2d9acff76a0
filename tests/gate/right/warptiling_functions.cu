// A blog's warp tiling: a namespace of functions that load from global and compute from shared
// domain: M % 64 == 0, N % 64 == 0, K % 16 == 0
#define CEIL_DIV(M, N) (((M) + (N) - 1) / (N))
const int WARPSIZE = 32;

namespace wt {
template <const int BM, const int BN, const int BK, const int THREADS>
__device__ void loadFromGmem(int N, int K, const float *A, const float *B, float *As, float *Bs) {
  for (int i = threadIdx.x * 4; i < BM * BK; i += THREADS * 4) {
    const int r = i / BK, c = i % BK;
    const float4 tmp = reinterpret_cast<const float4 *>(&A[r * K + c])[0];
    As[(c + 0) * BM + r] = tmp.x;
    As[(c + 1) * BM + r] = tmp.y;
    As[(c + 2) * BM + r] = tmp.z;
    As[(c + 3) * BM + r] = tmp.w;
  }
  for (int i = threadIdx.x * 4; i < BK * BN; i += THREADS * 4)
    reinterpret_cast<float4 *>(&Bs[i])[0] =
        reinterpret_cast<const float4 *>(&B[(i / BN) * N + i % BN])[0];
}

template <const int BM, const int BN, const int BK, const int WM, const int WN, const int TM,
          const int TN>
__device__ void processFromSmem(float *regM, float *regN, float *threadResults, const float *As,
                                const float *Bs, int warpRow, int warpCol, int rowInWarp,
                                int colInWarp) {
  for (int dotIdx = 0; dotIdx < BK; ++dotIdx) {
    for (int i = 0; i < TM; ++i)
      regM[i] = As[dotIdx * BM + warpRow * WM + rowInWarp * TM + i];
    for (int i = 0; i < TN; ++i)
      regN[i] = Bs[dotIdx * BN + warpCol * WN + colInWarp * TN + i];
    for (int m = 0; m < TM; ++m)
      for (int n = 0; n < TN; ++n) threadResults[m * TN + n] += regM[m] * regN[n];
  }
}
}  // namespace wt

template <const int BM, const int BN, const int BK, const int WM, const int WN, const int TM,
          const int TN, const int NUM_THREADS>
__global__ void __launch_bounds__(NUM_THREADS)
    sgemmWarptiling(int M, int N, int K, float alpha, float *A, float *B, float beta, float *C) {
  const int warpIdx = threadIdx.x / WARPSIZE;
  const int warpCol = warpIdx % (BN / WN), warpRow = warpIdx / (BN / WN);
  const int lane = threadIdx.x % WARPSIZE;
  const int colInWarp = lane % (WN / TN), rowInWarp = lane / (WN / TN);
  __shared__ float As[BM * BK];
  __shared__ float Bs[BK * BN];
  A += blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (blockIdx.y * BM + warpRow * WM) * N + blockIdx.x * BN + warpCol * WN;
  float threadResults[TM * TN] = {0.0};
  float regM[TM] = {0.0};
  float regN[TN] = {0.0};
  for (int bkIdx = 0; bkIdx < K; bkIdx += BK) {
    wt::loadFromGmem<BM, BN, BK, NUM_THREADS>(N, K, A, B, As, Bs);
    __syncthreads();
    wt::processFromSmem<BM, BN, BK, WM, WN, TM, TN>(
        regM, regN, threadResults, As, Bs, warpRow, warpCol, rowInWarp, colInWarp);
    A += BK;
    B += BK * N;
    __syncthreads();
  }
  for (int m = 0; m < TM; ++m) {
    for (int n = 0; n < TN; n += 4) {
      float4 *c = reinterpret_cast<float4 *>(&C[(rowInWarp * TM + m) * N + colInWarp * TN + n]);
      float4 tmp = c[0];
      const float *r = &threadResults[m * TN + n];
      tmp.x = alpha * r[0] + beta * tmp.x;
      tmp.y = alpha * r[1] + beta * tmp.y;
      tmp.z = alpha * r[2] + beta * tmp.z;
      tmp.w = alpha * r[3] + beta * tmp.w;
      c[0] = tmp;
    }
  }
}

void runSgemmWarptiling(int M, int N, int K, float alpha, float *A, float *B, float beta,
                        float *C) {
  dim3 blockDim(128);
  dim3 gridDim(CEIL_DIV(N, 64), CEIL_DIV(M, 64));
  sgemmWarptiling<64, 64, 16, 32, 32, 8, 4, 128>
      <<<gridDim, blockDim>>>(M, N, K, alpha, A, B, beta, C);
}
