// Loops that templates unroll, with if constexpr and a fold over a pack
// grid: (N + 31) / 32, (M + 31) / 32
// block: 32, 8
// domain: any
template <int... I>
struct Sequence {};
template <int N, int... I>
struct MakeSequence : MakeSequence<N - 1, N - 1, I...> {};
template <int... I>
struct MakeSequence<0, I...> {
  using type = Sequence<I...>;
};

template <int Step, int End, typename F>
__device__ __forceinline__ void static_for(F&& f) {
  if constexpr (Step < End) {
    f(Step);
    static_for<Step + 1, End>(f);
  }
}

template <int... I>
__device__ __forceinline__ float sum_of(const float* a, const float (*b)[32], int x,
                                        Sequence<I...>) {
  return (... + (a[I] * b[I][x]));
}

__global__ void sgemm_static(int M, int N, int K, float alpha, const float* A, const float* B,
                             float beta, float* C) {
  __shared__ float As[32][33], Bs[32][32];
  const int x = threadIdx.x, y = threadIdx.y, row0 = blockIdx.y * 32, col = blockIdx.x * 32 + x;
  float acc[4] = {};
  for (int k0 = 0; k0 < K; k0 += 32) {
    static_for<0, 4>([&](int i) {
      const int r = y + 8 * i;
      As[r][x] = row0 + r < M && k0 + x < K ? A[(row0 + r) * K + k0 + x] : 0.0f;
      Bs[r][x] = k0 + r < K && col < N ? B[(k0 + r) * N + col] : 0.0f;
    });
    __syncthreads();
    static_for<0, 4>(
        [&](int i) { acc[i] += sum_of(As[y + 8 * i], Bs, x, typename MakeSequence<32>::type{}); });
    __syncthreads();
  }
  static_for<0, 4>([&](int i) {
    const int row = row0 + y + 8 * i;
    if (row >= M || col >= N) return;
    float* c = &C[row * N + col];
    *c = beta == 0.0f ? alpha * acc[i] : alpha * acc[i] + beta * *c;
  });
}
