// Pass 1 of rung 26: each number of A and B is split once, and written in the order in which pass 2
// needs it. And the workspace where that lies.
#pragma once

#include "halves.cuh"

constexpr int STAGE_K = 32, SPLITTERS = 512;  // numbers of a line per stage; threads per block

// How to take a sum of its halves back: by two powers of two, whose product may be too large for a
// float. And how large the sum must be, so that the bits lost in the line don't matter.
struct __align__(16) Line {
  float unscale[2], least;
};

// The workspace: C of each part, unless there is only one; stages of all tiles of A, then of B; the
// lines of A's parts, then of B's. A part has `each` stages, or what is left of them.
template <int BM, int BN, int PARTS>
struct Workspace {
  int stages, each, row_tiles, column_tiles;
  float* sums;
  unsigned char *a, *b;
  Line *rows, *columns;

  __device__ Workspace(int M, int N, int K, void* start) {
    stages = (K + STAGE_K - 1) / STAGE_K;
    each = (stages + PARTS - 1) / PARTS;
    row_tiles = (M + BM - 1) / BM;
    column_tiles = (N + BN - 1) / BN;
    sums = (float*)start;
    a = (unsigned char*)start + (PARTS == 1 ? 0 : ((size_t)M * N * PARTS + 3) / 4 * 16);
    b = a + (size_t)row_tiles * stages * BM * LINE_BYTES;
    rows = (Line*)(b + (size_t)column_tiles * stages * BN * LINE_BYTES);
    columns = rows + (size_t)row_tiles * BM * PARTS;
  }
  __device__ int first(int part) const {
    return PARTS == 1 ? part * stages : min(part * each, stages);
  }
};

__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float((unsigned)(exponent + 127) << 23);
}
// By 2^exponent, which a float need not hold: in two steps.
__device__ __forceinline__ float scaled(float x, int exponent) {
  return x * power_of_two(exponent / 2) * power_of_two(exponent - exponent / 2);
}
// Brings the largest number of a line, given as bits, to 2^14 to 2^15.
__device__ __forceinline__ int exponent_of(unsigned largest) { return 141 - (int)(largest >> 23); }

// A number that loses bits is off by 2^-25 at most, and its partner is below 2^15. All these errors
// of a line together must be below 2^-24 of the sum, an FP32 rounding.
__device__ __forceinline__ Line line_of(int exponent, unsigned small) {
  const int half = -exponent / 2;
  return {{power_of_two(half), power_of_two(-exponent - half)}, 16384.0f * (float)small};
}

__device__ __forceinline__ unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffff; }
__device__ __forceinline__ bool loses_bits(float x, float x_scaled) {
  return x != 0.0f && fabsf(x_scaled) < 0.125f;
}

// Pass 1: a block splits a part of 8 rows of A or columns of B, with 64 threads each; or of 32,
// with 16 each. 8 columns of B fill the 32 bytes of a sector. A thread keeps HELD times eight
// numbers, so as to read them once.
template <int BM, int BN, int PARTS, int HELD, int THREADS>
__global__ void __launch_bounds__(SPLITTERS) split_lines(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C,
    void* workspace) {
  constexpr int LINES = SPLITTERS / THREADS;
  const Workspace<BM, BN, PARTS> work(M, N, K, workspace);
  const int part = blockIdx.y, row_blocks = work.row_tiles * BM / LINES;
  const bool of_a = blockIdx.x < row_blocks;
  // Neighbouring threads read neighbouring floats: along a row of A, across columns of B.
  const int place = of_a ? threadIdx.x / THREADS : threadIdx.x % LINES;
  const int own = of_a ? threadIdx.x % THREADS : threadIdx.x / LINES;
  const int line = (of_a ? blockIdx.x : blockIdx.x - row_blocks) * LINES + place;
  constexpr int STEP = 8 * THREADS;
  const int begin = work.first(part) * STAGE_K + 8 * own, end = work.first(part + 1) * STAGE_K;
  const int length = line < (of_a ? M : N) ? min(K, end) : 0;  // lines that fill up a tile are zero
  const float* from = of_a ? A + (size_t)line * K : B + line;
  const size_t step = of_a ? 1 : N;
  auto at = [&](int k) { return k < length ? from[k * step] : 0.0f; };

  __shared__ unsigned largest_of[LINES], small_of[LINES];
  if (threadIdx.x < LINES) largest_of[threadIdx.x] = small_of[threadIdx.x] = 0;
  __syncthreads();  // wait: they must be zero before any thread raises them
  const bool quads = of_a && K % 4 == 0 && (size_t)A % 16 == 0;
  auto load = [&](int k, float (&x)[8]) {
    if (quads) {
      const float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      *(float4*)&x[0] = k < length ? *(const float4*)&from[k] : none;
      *(float4*)&x[4] = k + 4 < length ? *(const float4*)&from[k + 4] : none;
    } else {
      for (int i = 0; i < 8; ++i) x[i] = at(k + i);
    }
  };
  unsigned largest = 0, small = 0;
  float held[HELD][8];
#pragma unroll
  for (int h = 0; h < HELD; ++h) {
    load(begin + h * STEP, held[h]);
    for (int i = 0; i < 8; ++i) largest = max(largest, magnitude(held[h][i]));
  }
  for (int k = begin + HELD * STEP; k < end; k += STEP) {
    float x[8];
    load(k, x);
    for (int i = 0; i < 8; ++i) largest = max(largest, magnitude(x[i]));
  }
  atomicMax(&largest_of[place], largest);
  __syncthreads();  // wait: the largest magnitudes must be complete
  const int exponent = exponent_of(largest_of[place]);

  const int tile = of_a ? BM : BN;  // lines
  unsigned char* to = (of_a ? work.a : work.b) +
                      ((size_t)(line / tile) * work.stages * tile + line % tile) * LINE_BYTES;
  auto store = [&](int k, const float (&numbers)[8]) {
    unsigned hi[4], lo[4];
    for (int i = 0; i < 4; ++i) {
      const float x = numbers[2 * i], y = numbers[2 * i + 1];
      const float x_scaled = scaled(x, exponent), y_scaled = scaled(y, exponent);
      small += loses_bits(x, x_scaled) + loses_bits(y, y_scaled);
      split(x_scaled, y_scaled, hi[i], lo[i]);
    }
    unsigned char* stage = to + (size_t)(k / STAGE_K) * tile * LINE_BYTES;
    const int unit = k % STAGE_K / 8;
    *(uint4*)&stage[(unit ^ line % 8) * 16] = make_uint4(hi[0], hi[1], hi[2], hi[3]);
    *(uint4*)&stage[((unit + 4) ^ line % 8) * 16] = make_uint4(lo[0], lo[1], lo[2], lo[3]);
  };
#pragma unroll
  for (int h = 0; h < HELD; ++h) {
    if (begin + h * STEP < end) store(begin + h * STEP, held[h]);
  }
  for (int k = begin + HELD * STEP; k < end; k += STEP) {
    float x[8];
    load(k, x);
    store(k, x);
  }
  atomicAdd(&small_of[place], small);
  __syncthreads();  // wait: the counts must be complete
  if (own == 0) {
    const size_t lines = of_a ? work.row_tiles * BM : work.column_tiles * BN;
    (of_a ? work.rows : work.columns)[part * lines + line] = line_of(exponent, small_of[place]);
  }
}
