// Right: an expression template of policies, a tile struct with operator(), generic lambdas.
// grid: (N + 31) / 32, (M + 31) / 32
// block: 256
template <int R, int W> struct Tile { float at[R][W + 1]; __device__ float& operator()(int r, int c) { return at[r][c]; } };
template <class F, int... I> struct Each;
template <int I, int N> struct Loop { template <class F> __device__ static void run(F&& f) { f(I); Loop<I + 1, N>::run(f); } };
template <int N> struct Loop<N, N> { template <class F> __device__ static void run(F&&) {} };
struct View { const float* p; int rows, cols; __device__ float operator()(int r, int c) const { return r < rows && c < cols ? p[(size_t)r * cols + c] : 0.0f; } };
struct Epilogue { float alpha, beta; __device__ void operator()(float* c, float v) const { *c = beta == 0.0f ? alpha * v : fmaf(beta, *c, alpha * v); } };
template <int BM, int BN, int BK> __device__ void body(View a, View b, float* C, Epilogue e) {
  __shared__ Tile<BM, BK> as; __shared__ Tile<BK, BN> bs;
  const int t = threadIdx.x, r = t / 16 * 2, c = t % 16 * 2, row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
  float acc[2][2] = {};
  for (int k0 = 0; k0 < a.cols; k0 += BK) {
    for (int i = t; i < BM * BK; i += 256) as(i / BK, i % BK) = a(row0 + i / BK, k0 + i % BK);
    for (int i = t; i < BK * BN; i += 256) bs(i / BN, i % BN) = b(k0 + i / BN, col0 + i % BN);
    __syncthreads();
    Loop<0, BK>::run([&](int k) { Loop<0, 2>::run([&](int i) { Loop<0, 2>::run([&, i](int j) { acc[i][j] += as(r + i, k) * bs(k, c + j); }); }); });
    __syncthreads();
  }
  Loop<0, 2>::run([&](int i) { Loop<0, 2>::run([&](int j) { if (row0 + r + i < a.rows && col0 + c + j < b.cols) e(&C[(size_t)(row0 + r + i) * b.cols + col0 + c + j], acc[i][j]); }); });
}
extern "C" __global__ void g02_templates_and_lambdas(int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  body<32, 32, 16>(View{A, M, K}, View{B, K, N}, C, Epilogue{alpha, beta});
}
