// A matrix times a vector
// Run:     worklog run best --size 1x4096x4096
//          It isn't a rung: best takes it where C has one row or one column.
//
// Why:     each number of the matrix is used once. We believe that the time is that of reading it;
//          none is recorded yet. Neighbouring threads read neighbouring floats, 16 bytes each where
//          rows begin at multiples of that. A block keeps its sums to itself, so one launch is
//          enough, and their order is always the same.
// Domain:  M = 1 or N = 1.
// Tile:    LANES=8 ROWS=8 WIDTH=4
// Launch:  grid (M * N + LANES * WIDTH - 1) / (LANES * WIDTH)   block 1024
//
// The matrix is B where M is 1, else A; the other is the vector. WIDTH: floats per load, 4 or 1.

constexpr unsigned ALL = 0xffffffff;  // lanes

struct Factors {
  int size;  // of C
  const float *matrix, *vector;
  __device__ Factors(int M, int N, const float* A, const float* B)
      : size(M == 1 ? N : M), matrix(M == 1 ? B : A), vector(M == 1 ? A : B) {}
};

template <int WIDTH>
__device__ __forceinline__ void load(float (&to)[WIDTH], const float* from) {
  if (WIDTH == 4) {
    *(float4*)to = *(const float4*)from;
  } else {
    to[0] = *from;
  }
}

__device__ __forceinline__ void store(float* c, float alpha, float sum, float beta) {
  *c = alpha * sum + (beta == 0.0f ? 0.0f : beta * *c);  // with beta == 0, C is not read
}

// Neighbours in memory belong to neighbouring elements of C: a block sums LANES * WIDTH of these,
// and its 1024 / LANES groups of threads take one k after the other.
template <int LANES, int WIDTH>
__global__ void __launch_bounds__(1024) across(int M, int N, int K, float alpha, const float* A,
                                               const float* B, float beta, float* C) {
  constexpr int COLUMNS = LANES * WIDTH, WARPS = 32;
  __shared__ __align__(16) float sums[WARPS][COLUMNS];
  const Factors of(M, N, A, B);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const size_t first = (size_t)blockIdx.x * COLUMNS, place = first + threadIdx.x % LANES * WIDTH;
  const unsigned depth = alpha == 0.0f ? 0 : K;
  float sum[WIDTH] = {};
  if (place < of.size) {
#pragma unroll 4
    for (unsigned k = threadIdx.x / LANES; k < depth; k += 1024 / LANES) {
      float x[WIDTH];
      load(x, of.matrix + (size_t)k * of.size + place);
      for (int i = 0; i < WIDTH; ++i) sum[i] += of.vector[k] * x[i];
    }
  }
  for (int i = 0; i < WIDTH; ++i) {
    for (int other = 16; other >= LANES; other /= 2) sum[i] += __shfl_xor_sync(ALL, sum[i], other);
    if (lane < LANES) sums[warp][lane * WIDTH + i] = sum[i];
  }
  __syncthreads();  // wait: the sums of all warps must be complete
  if (threadIdx.x < COLUMNS && first + threadIdx.x < of.size) {
    float total = 0.0f;
    for (int w = 0; w < WARPS; ++w) total += sums[w][threadIdx.x];
    store(&C[first + threadIdx.x], alpha, total, beta);
  }
}

// Neighbours in memory are neighbours along K: a block of 256 threads sums ROWS elements of C.
template <int ROWS, int WIDTH>
__global__ void __launch_bounds__(256) along(int M, int N, int K, float alpha, const float* A,
                                             const float* B, float beta, float* C) {
  constexpr int THREADS = 256 / ROWS;  // of an element
  static_assert(ROWS == 8 || ROWS == 1, "a warp or a block sums an element");
  __shared__ float sums[8];
  const Factors of(M, N, A, B);
  const size_t place = (size_t)blockIdx.x * ROWS + threadIdx.x / THREADS;
  const size_t depth = alpha == 0.0f || place >= of.size ? 0 : K;
  float sum[WIDTH] = {};
#pragma unroll 4
  for (size_t k = threadIdx.x % THREADS * WIDTH; k < depth; k += THREADS * WIDTH) {
    float x[WIDTH], y[WIDTH];
    load(x, of.matrix + place * K + k);
    load(y, of.vector + k);
    for (int i = 0; i < WIDTH; ++i) sum[i] += x[i] * y[i];
  }
  float total = sum[0];
  for (int i = 1; i < WIDTH; ++i) total += sum[i];
  for (int other = 16; other > 0; other /= 2) total += __shfl_xor_sync(ALL, total, other);
  if (THREADS > 32) {
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = total;
    __syncthreads();  // wait: the sums of all warps must be complete
    total = 0.0f;
    for (int w = 0; w < 8; ++w) total += sums[w];
  }
  if (threadIdx.x % THREADS == 0 && place < of.size) store(&C[place], alpha, total, beta);
}
