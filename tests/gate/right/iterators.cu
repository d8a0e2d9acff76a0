// A library's layers: fragments, tile iterators, a mainloop and an epilogue functor
// entry: sgemm_kernel
// domain: any
namespace gemm {
template <typename T, int N>
struct Array {
  T storage[N];
  __device__ T& operator[](int i) { return storage[i]; }
  __device__ T const& operator[](int i) const { return storage[i]; }
  __device__ void clear() {
    for (int i = 0; i < N; ++i) storage[i] = T(0);
  }
};

template <int Rows, int Columns, int Threads>
class PredicatedTileIterator {
 public:
  using Fragment = Array<float, Rows * Columns / Threads>;
  __device__ PredicatedTileIterator(
      float const* ptr, int ld, int rows, int columns, int row, int column, int thread)
      : ptr_(ptr), ld_(ld), rows_(rows), columns_(columns), row_(row), column_(column),
        thread_(thread) {}
  __device__ void load(Fragment& frag) const {
#pragma unroll
    for (int i = 0; i < Rows * Columns / Threads; ++i) {
      int const r = row_ + (thread_ + i * Threads) / Columns;
      int const c = column_ + (thread_ + i * Threads) % Columns;
      frag[i] = (r < rows_ && c < columns_) ? ptr_[r * ld_ + c] : 0.f;
    }
  }
  __device__ void add_tile_offset(int rows, int columns) {
    row_ += rows * Rows;
    column_ += columns * Columns;
  }

 private:
  float const* ptr_;
  int ld_, rows_, columns_, row_, column_, thread_;
};

template <int M_, int N_, int K_>
struct GemmShape {
  static int const kM = M_, kN = N_, kK = K_;
};

struct LinearCombination {
  float alpha, beta;
  __device__ bool is_source_needed() const { return beta != 0.f; }
  __device__ float operator()(float accumulator, float source) const {
    return alpha * accumulator + beta * source;
  }
  __device__ float operator()(float accumulator) const { return alpha * accumulator; }
};

template <typename Shape, int Threads>
struct Kernel {
  using IteratorA = PredicatedTileIterator<Shape::kM, Shape::kK, Threads>;
  using IteratorB = PredicatedTileIterator<Shape::kK, Shape::kN, Threads>;
  struct SharedStorage {
    float a[Shape::kK][Shape::kM + 1];
    float b[Shape::kK][Shape::kN];
  };
  static int const kRows = Shape::kM / 16, kColumns = Shape::kN / (Threads / 16);

  __device__ void operator()(int m, int n, int k, float const* A, float const* B, float* C,
                             LinearCombination epilogue, SharedStorage& shared) {
    int const tx = threadIdx.x % (Threads / 16), ty = threadIdx.x / (Threads / 16);
    int const row = blockIdx.x * Shape::kM, column = blockIdx.y * Shape::kN;
    IteratorA iterator_a(A, k, m, k, row, 0, threadIdx.x);
    IteratorB iterator_b(B, n, k, n, 0, column, threadIdx.x);
    typename IteratorA::Fragment frag_a;
    typename IteratorB::Fragment frag_b;
    Array<Array<float, kColumns>, kRows> accumulators;
    for (int i = 0; i < kRows; ++i) accumulators[i].clear();
    for (int left = k; left > 0; left -= Shape::kK) {
      iterator_a.load(frag_a);
      iterator_b.load(frag_b);
      iterator_a.add_tile_offset(0, 1);
      iterator_b.add_tile_offset(1, 0);
      __syncthreads();
      for (int i = 0; i < Shape::kM * Shape::kK / Threads; ++i) {
        int const at = threadIdx.x + i * Threads;
        shared.a[at % Shape::kK][at / Shape::kK] = frag_a[i];
      }
      for (int i = 0; i < Shape::kK * Shape::kN / Threads; ++i) {
        int const at = threadIdx.x + i * Threads;
        shared.b[at / Shape::kN][at % Shape::kN] = frag_b[i];
      }
      __syncthreads();
#pragma unroll
      for (int kk = 0; kk < Shape::kK; ++kk)
        for (int i = 0; i < kRows; ++i)
          for (int j = 0; j < kColumns; ++j)
            accumulators[i][j] +=
                shared.a[kk][ty + 16 * i] * shared.b[kk][tx + Threads / 16 * j];
    }
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kColumns; ++j) {
        int const r = row + ty + 16 * i, c = column + tx + Threads / 16 * j;
        if (r < m && c < n) {
          float* d = C + r * n + c;
          *d = epilogue.is_source_needed() ? epilogue(accumulators[i][j], *d)
                                           : epilogue(accumulators[i][j]);
        }
      }
  }
};
}  // namespace gemm

using Sgemm = gemm::Kernel<gemm::GemmShape<32, 32, 8>, 128>;

__global__ void sgemm_kernel(int m, int n, int k, float alpha, float const* A, float const* B,
                             float beta, float* C) {
  __shared__ Sgemm::SharedStorage shared;
  Sgemm op;
  op(m, n, k, A, B, C, gemm::LinearCombination{alpha, beta}, shared);
}

void sgemm(int m, int n, int k, float alpha, float const* A, float const* B, float beta, float* C) {
  dim3 grid((m + 31) / 32, (n + 31) / 32);
  sgemm_kernel<<<grid, 128>>>(m, n, k, alpha, A, B, beta, C);
}
