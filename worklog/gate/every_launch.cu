// The kernels of the stage "every timed launch" (every_launch.py): new inputs before each timed
// launch, and C checked after it. The hash is the finaliser of SplitMix64 (Steele, Lea, Flood:
// Fast splittable pseudorandom number generators, 2014).

typedef unsigned long long u64;

// Formats of 16 bits, without CUDA's headers, which take a second to compile.
struct float16 {
  unsigned short bits;
  __device__ explicit float16(float value) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  }
  __device__ operator float() const {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
};

struct bfloat16 {
  unsigned short bits;
  __device__ explicit bfloat16(float value) {  // finite numbers: the nearest, ties to even
    const unsigned word = __float_as_uint(value);
    bits = (word + 0x7fff + (word >> 16 & 1)) >> 16;
  }
  __device__ operator float() const { return __uint_as_float((unsigned)bits << 16); }
};

// A format of 8 bits: 1 sign, the exponent, the fraction. Finite numbers up to 1 in size.
template <int FRACTION, int BIAS>
struct eight {
  unsigned char bits;
  __device__ explicit eight(float value) {
    const float size = fabsf(value);
    int exponent = (int)(__float_as_uint(size) >> 23) - 127;
    exponent = exponent < 1 - BIAS ? 1 - BIAS : exponent;
    const float unit = __uint_as_float((unsigned)(exponent - FRACTION + 127) << 23);
    const unsigned units = (unsigned)rintf(size / unit);  // ties to even; carries into the exponent
    const unsigned code = units + ((unsigned)(exponent + BIAS - 1) << FRACTION);
    bits = code | (value < 0 ? 0x80 : 0);
  }
  __device__ operator float() const {
    const int exponent = (bits & 0x7f) >> FRACTION;
    const unsigned fraction = bits & ((1 << FRACTION) - 1);
    const unsigned units = exponent ? fraction | 1 << FRACTION : fraction;
    const int power = (exponent ? exponent : 1) - BIAS - FRACTION;
    const float size = units * __uint_as_float((unsigned)(power + 127) << 23);
    return bits & 0x80 ? -size : size;
  }
};
using float8_e4m3fn = eight<3, 7>;
using float8_e5m2 = eight<2, 15>;

// Integers, from floats that are in range.
template <typename T>
struct integer {
  T value;
  __device__ explicit integer(float number) : value((T)rintf(number)) {}
  __device__ operator float() const { return (float)value; }
};
using int8 = integer<signed char>;
using int32 = integer<int>;

#ifndef TYPE_A
#define TYPE_A float
#define TYPE_B float
#define TYPE_C float
#endif
#ifndef SIZE_A  // up to which numbers are drawn
#define SIZE_A 1.0f
#define SIZE_B 1.0f
#endif

__device__ unsigned hashed(u64 key, u64 index) {
  u64 x = key + index * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return (unsigned)(x >> 32);
}

// Uniform in -1 ... 1 without 0, all 24 bits of the significand in use.
__device__ float content(u64 key, u64 index) {
  const unsigned bits = hashed(key, index);
  const float magnitude = ((bits & 0xffffff) + 1) * 5.9604644775390625e-8f;
  return bits >> 31 ? -magnitude : magnitude;
}

__device__ float sign(u64 key, int index) { return hashed(key, index) >> 31 ? -1.0f : 1.0f; }

__device__ double sum_of_warp(double value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
  return value;
}

// The places of elements in memory, in the matrices of one product.
#ifdef A_BY_COLUMNS
#define PLACE_A(row, k) ((long long)(k) * M + (row))
#else
#define PLACE_A(row, k) ((long long)(row) * K + (k))
#endif
#ifdef B_BY_COLUMNS
#define PLACE_B(k, column) ((long long)(column) * K + (k))
#else
#define PLACE_B(k, column) ((long long)(k) * N + (column))
#endif

__device__ TYPE_A element_of_a(u64 key, u64 index) {
  return (TYPE_A)(SIZE_A * content(key, index));
}
__device__ TYPE_B element_of_b(u64 key, u64 index) {
  return (TYPE_B)(SIZE_B * content(~key, index));
}

// Short on purpose: code that runs between two timed launches evicts the kernel from the
// instruction caches.
__global__ void refill(u64 key, long long in_a, TYPE_A* A, long long in_b, TYPE_B* B,
                       long long in_c, TYPE_C* C, float sentinel) {
  const long long most = in_a > in_b ? (in_a > in_c ? in_a : in_c) : (in_b > in_c ? in_b : in_c);
#pragma unroll 1
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < most;
       i += (long long)gridDim.x * BLOCK) {
    if (i < in_a) A[i] = element_of_a(key, i);
    if (i < in_b) B[i] = element_of_b(key, i);
    if (i < in_c) C[i] = (TYPE_C)sentinel;
  }
}

// C x, right after the launch: what is written later was not written in time. The matrices of a
// batch lie behind each other, so that M rows are those of all products here.
__global__ void observe(u64 signs, int M, int N, const TYPE_C* C, double* Cx, unsigned* found) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (blockIdx.x == 0 && threadIdx.x < 12) found[threadIdx.x] = 0;
  if (row >= M) return;
  double sum = 0;
  for (int j = lane; j < N; j += 32) {
    sum += (double)(float)C[(long long)row * N + j] * sign(signs, j);
  }
  sum = sum_of_warp(sum);
  if (lane == 0) Cx[row] = sum;
}

// found: of one launch, the largest error (bits of a float), rows off, inputs changed, rows
// compared, 2^32 - 1 - the number of the launch if a row is off (else 0), unused, then as doubles
// the sums of the errors' squares, of error times product, and of the products' squares.
// record: the same over all launches, then as doubles the largest mean square of a launch's errors,
// and the largest without what a shrinking factor explains.
__global__ void project(u64 key, u64 signs, int products, int N, int K, const TYPE_B* B, double* Bx,
                        double* gauges, unsigned* found) {
  const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= products * K) return;
  const int k = row % K;
  const long long start = (long long)(row / K) * K * N;
  double sum = 0, squares = 0;
  unsigned changed = 0;
  for (int j = lane; j < N; j += 32) {
    const long long i = start + PLACE_B(k, j);
    const float b = (float)element_of_b(key, i);
    changed += __float_as_uint((float)B[i]) != __float_as_uint(b);
    sum += (double)b * sign(signs, j);
    squares += (double)b * b;
  }
  if (changed) atomicAdd(found + 2, changed);
  sum = sum_of_warp(sum);
  squares = sum_of_warp(squares);
  if (lane == 0) {
    Bx[row] = sum;
    gauges[row] = squares;
  }
}

__global__ void compare(u64 key, int products, int M, int K, const TYPE_A* A, const double* Cx,
                        const double* Bx, const double* gauges, float alpha, float limit,
                        unsigned launch, unsigned* found) {
  const int place = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (place >= products * M) return;
  const int row = place % M, number = place / M;
  const long long start = (long long)number * M * K;
  Bx += (long long)number * K;
  gauges += (long long)number * K;
  double product = 0, square = 0;
  unsigned changed = 0;
  for (int k = lane; k < K; k += 32) {
    const long long i = start + PLACE_A(row, k);
    const float a = (float)element_of_a(key, i);
    changed += __float_as_uint((float)A[i]) != __float_as_uint(a);
    product += (double)a * Bx[k];
    square += (double)a * a * gauges[k];
  }
  if (changed) atomicAdd(found + 2, changed);
  product = sum_of_warp(product);
  square = sum_of_warp(square);
  if (lane != 0) return;
  const double unit = UNIT_ROUNDOFF * sqrt(square), right = alpha * product / unit;
  const double difference = Cx[place] / unit - right, error = fabs(difference);
  double* sums = (double*)(found + 6);
  atomicAdd(sums, error * error);
  atomicAdd(sums + 1, difference * right);
  atomicAdd(sums + 2, right * right);
  atomicAdd(found + 3, 1u);
  atomicMax(found, error <= 3e38 ? __float_as_uint((float)error) : 0x7f800000u);
  if (!(error <= limit)) {
    atomicAdd(found + 1, 1u);
    atomicMax(found + 4, 0xffffffffu - launch);
  }
}

// One thread: adds what one launch left to the record.
__global__ void fold(int M, const unsigned* found, unsigned* record) {
  record[0] = max(record[0], found[0]);
  for (int i = 1; i < 4; ++i) record[i] += found[i];
  record[4] = max(record[4], found[4]);
  const double* sums = (const double*)(found + 6);
  double* worst = (double*)(record + 6);
  worst[0] = fmax(worst[0], sums[0] / M);
  const double explained = sums[1] < 0 ? sums[1] * sums[1] / sums[2] : 0;
  worst[1] = fmax(worst[1], (sums[0] - explained) / M);
}
