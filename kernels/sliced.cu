// Sliced K
// Run:     worklog run best --size 7x500x1000
//          It isn't a rung: best takes it where C is thin or small.
//
// Why:     a thin C has few tiles, and a tile of 30_best.cu takes one k after the other. Here the
//          threads of a block share out K, and one launch is enough. Each thread loads its part of
//          one k past shared memory, for AHEAD of them at a time. What a block reads once is marked
//          as such (__ldcs), and leaves the caches first.
// Domain:  N % WIDTH == 0.
// Tile:    BM=8 BN=32 BK=32 TN=4 WIDTH=4
// Launch:  grid (M + BM - 1) / BM * ((N + BN - 1) / BN)   block BK * BN / TN
//
// A block computes a BM x BN tile of C, and takes BK k at a time. For one k each, BN / TN lanes own
// TN columns and all rows. WIDTH: floats per load of B, 4 or 1.

constexpr unsigned ALL = 0xffffffff;  // lanes

template <int WIDTH>
__device__ __forceinline__ void load(float* to, const float* from) {
  if (WIDTH == 4) {
    *(float4*)to = __ldcs((const float4*)from);
  } else {
    *to = __ldcs(from);
  }
}

template <int BM, int BN, int BK, int TN, int WIDTH>
__global__ void __launch_bounds__(BK * BN / TN)
    sgemm_sliced(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                 float* C) {
  constexpr int LANES = BN / TN, WARPS = BK * LANES / 32, COUNT = BM * TN;
  constexpr int AHEAD = BM + TN > 8 ? 2 : BM == 1 && WIDTH == 4 ? 8 : 4;
  static_assert(32 % LANES == 0 && (COUNT & (COUNT - 1)) == 0, "lanes share out their sums evenly");
  __shared__ float sums[WARPS][BM * BN];
  const int columns = (N + BN - 1u) / BN, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const size_t i0 = blockIdx.x / columns * (size_t)BM, j0 = blockIdx.x % columns * (size_t)BN;
  auto column = [&](int j) {  // of the tile
    return (j / WIDTH * LANES + threadIdx.x % LANES) * WIDTH + j % WIDTH;
  };

  // Beyond the edges, the last row and the last columns are read instead. They are not stored.
  const unsigned slice = threadIdx.x / LANES, depth = alpha == 0.0f ? 0 : K;
  const float *from_a[BM], *from_b[TN];
  for (int i = 0; i < BM; ++i) from_a[i] = A + (i0 + i < M ? i0 + i : M - 1) * K;
  for (int j = 0; j < TN; j += WIDTH) {
    from_b[j] = B + (j0 + column(j) < N ? j0 + column(j) : N - WIDTH);
  }
  float sum[COUNT] = {};
  for (unsigned first = slice; first < depth; first += AHEAD * BK) {
    float a[AHEAD][BM] = {}, b[AHEAD][TN] = {};
    for (int s = 0; s < AHEAD; ++s) {
      const unsigned k = first + s * BK;
      if (k >= depth) continue;
      for (int i = 0; i < BM; ++i) {
        a[s][i] = LANES == 1 ? __ldcs(from_a[i] + k) : from_a[i][k];  // lanes share a number of A
      }
      for (int j = 0; j < TN; j += WIDTH) load<WIDTH>(&b[s][j], from_b[j] + (size_t)k * N);
    }
    for (int s = 0; s < AHEAD; ++s) {
      for (int n = 0; n < COUNT; ++n) sum[n] += a[s][n / TN] * b[s][n % TN];
    }
  }

  // Two lanes add their sums, each half of these, until a lane has one alone. Then both have it.
  int held = 0;  // the first of its sums
#pragma unroll
  for (int half = COUNT / 2, other = 16; other >= LANES; half /= 2, other /= 2) {
    const bool upper = lane & other;
    for (int n = 0; n < half; ++n) {
      const float given = upper ? sum[n] : sum[n + half], kept = upper ? sum[n + half] : sum[n];
      sum[n] = kept + __shfl_xor_sync(ALL, given, other);
    }
    if (half == 0) sum[0] += __shfl_xor_sync(ALL, sum[0], other);
    if (upper) held += half;
  }
  constexpr int HELD = COUNT * LANES >= 32 ? COUNT * LANES / 32 : 1;
  for (int n = 0; n < HELD; ++n) {
    sums[warp][(held + n) / TN * BN + column((held + n) % TN)] = sum[n];
  }
  __syncthreads();  // wait: the sums of all warps must be complete
  for (int n = threadIdx.x; n < BM * BN; n += BK * LANES) {
    const size_t row = i0 + n / BN, col = j0 + n % BN;
    if (row >= M || col >= N) continue;
    float total = 0.0f;
    for (int w = 0; w < WARPS; ++w) total += sums[w][n];
    float* c = &C[row * N + col];
    *c = alpha * total + (beta == 0.0f ? 0.0f : beta * *c);  // with beta == 0, C is not read
  }
}
