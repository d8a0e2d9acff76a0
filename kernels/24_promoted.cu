// 24 · Promotion
// Run:     worklog run promoted     or: nvcc -arch=native -DRUNG=24 main.cu && ./a.out 4096
//
// Before:  an H200's tensor core summed all of K, and truncated each sum toward zero.
// Now:     it sums 128 k. Then it is added to a sum in a register by an FP32 addition, which rounds
//          to nearest, and starts again at zero.
// Why:     truncations all shrink the sum, so their error grows with the number of steps: 128 k
//          have few. This makes the result FP32, with less error than FFMAs' from K = 1024 on.
// Costs:   64 registers more per thread, and one addition per element and 128 k.
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0, A, B % 16 bytes, C % 8 bytes. Finite numbers. A
//          row or column with its largest magnitude below 2^-112 has fewer bits.
// Tile:    BM=128 BN=128 BK=16 WM=64 WN=32
// Launch:  grid N / BN, M / BM   block BM * BN / (WM * WN) * 32
//
// One block computes a BM x BN tile of C with one warp per WM x WN tile. The fragments are those of
// 23.

__device__ __forceinline__ void copy_16_bytes(float* to, const float* from) {
  const unsigned place = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
}

// Two floats as two halves each: hi + lo has 22 bits or more. x is in the low half of a register.
__device__ __forceinline__ void split(float x, float y, unsigned& hi, unsigned& lo) {
  float x_hi, y_hi;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(hi) : "f"(y), "f"(x));
  asm("{\n.reg .f16 x, y;\nmov.b32 {x, y}, %2;\ncvt.f32.f16 %0, x;\ncvt.f32.f16 %1, y;\n}"
      : "=f"(x_hi), "=f"(y_hi)
      : "r"(hi));
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(lo) : "f"(y - y_hi), "f"(x - x_hi));
}

// A line's largest magnitude, as the bits of a float, gives its scale: a power of two.
__device__ __forceinline__ unsigned exponent(unsigned largest) { return max(largest >> 23, 15u); }
__device__ __forceinline__ float scale(unsigned largest) {
  return __uint_as_float((268 - exponent(largest)) << 23);
}
__device__ __forceinline__ float unscale(unsigned largest) {
  return __uint_as_float((exponent(largest) - 14) << 23);
}

__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <int BM, int BN, int BK, int WM, int WN>
__global__ void __launch_bounds__(BM * BN / (WM * WN) * 32) sgemm_promoted(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  constexpr int THREADS = BM * BN / (WM * WN) * 32, TM = WM / 16, TN = WN / 8;
  constexpr int PROMOTE = 128;  // k
  static_assert(BM * BK % (4 * THREADS) == 0 && BK * BN % (4 * THREADS) == 0,
                "every thread copies the same number of float4");
  // Rows are longer by 8 and 4 floats: the lanes' fragments are then in 32 different banks.
  __shared__ __align__(16) float As[2][BM][BK + 8], Bs[2][BK][BN + 4];
  __shared__ unsigned largest_a[BM], largest_b[BN];

  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int row = warp / (BN / WN) * WM, col = warp % (BN / WN) * WN;
  A += (size_t)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (size_t)blockIdx.y * BM * N + blockIdx.x * BN;

  auto fetch = [&](int k0, int buffer) {  // global memory -> shared memory, asynchronously
    for (int i = 4 * threadIdx.x; i < BM * BK; i += 4 * THREADS) {
      copy_16_bytes(&As[buffer][i / BK][i % BK], &A[(size_t)(i / BK) * K + k0 + i % BK]);
    }
    for (int i = 4 * threadIdx.x; i < BK * BN; i += 4 * THREADS) {
      copy_16_bytes(&Bs[buffer][i / BN][i % BN], &B[(size_t)(k0 + i / BN) * N + i % BN]);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  auto magnitude = [](float x) { return __float_as_uint(x) & 0x7fffffff; };
  for (int i = threadIdx.x; i < BN; i += THREADS) largest_b[i] = 0;
  for (int r = warp; r < BM; r += THREADS / 32) {
    unsigned most = 0;
    const float* a = &A[(size_t)r * K];
    for (int k = threadIdx.x % 32; k < K; k += 32) most = max(most, magnitude(a[k]));
    most = __reduce_max_sync(0xffffffff, most);
    if (threadIdx.x % 32 == 0) largest_a[r] = most;
  }
  __syncthreads();  // wait: largest_b must be zero before any thread raises it
  unsigned most = 0;
  for (int k = threadIdx.x / BN; k < K; k += THREADS / BN) {
    most = max(most, magnitude(B[(size_t)k * N + threadIdx.x % BN]));
  }
  atomicMax(&largest_b[threadIdx.x % BN], most);
  __syncthreads();  // wait: the largest magnitudes must be complete

  float a_scale[TM][2], b_scale[TN];
  for (int i = 0; i < TM; ++i) {
    for (int r = 0; r < 2; ++r) a_scale[i][r] = scale(largest_a[row + 16 * i + g + r * 8]);
  }
  for (int j = 0; j < TN; ++j) b_scale[j] = scale(largest_b[col + 8 * j + g]);

  float acc[TM][TN][4] = {}, sum[TM][TN][4] = {};
  fetch(0, 0);
  for (int k0 = 0, buffer = 0; k0 < K; k0 += BK, buffer ^= 1) {
    if (k0 + BK < K) {
      fetch(k0 + BK, buffer ^ 1);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();  // wait: this tile must be complete before any warp reads it

#pragma unroll
    for (int k = 0; k < BK; k += 16) {
      unsigned a_hi[TM][4], a_lo[TM][4], b_hi[TN][2], b_lo[TN][2];
      for (int i = 0; i < TM; ++i) {
        for (int r = 0; r < 4; ++r) {
          const int a_row = row + 16 * i + g + r % 2 * 8;
          const float2 a = *(const float2*)&As[buffer][a_row][k + 2 * t + r / 2 * 8];
          const float factor = a_scale[i][r % 2];
          split(factor * a.x, factor * a.y, a_hi[i][r], a_lo[i][r]);
        }
      }
      for (int j = 0; j < TN; ++j) {
        for (int r = 0; r < 2; ++r) {
          const float* b = &Bs[buffer][k + 2 * t + r * 8][col + 8 * j + g];
          split(b_scale[j] * b[0], b_scale[j] * b[BN + 4], b_hi[j][r], b_lo[j][r]);
        }
      }
      for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; ++j) {  // the small products first: the sum truncates them less
          multiply(acc[i][j], a_lo[i], b_hi[j]);
          multiply(acc[i][j], a_hi[i], b_lo[j]);
          multiply(acc[i][j], a_hi[i], b_hi[j]);
        }
      }
    }
    if ((k0 + BK) % PROMOTE == 0 || k0 + BK >= K) {
      for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; ++j) {
          for (int r = 0; r < 4; ++r) {
            sum[i][j][r] += acc[i][j][r];
            acc[i][j][r] = 0.0f;
          }
        }
      }
    }
    __syncthreads();  // wait: the next copies overwrite this tile
  }

  // With beta == 0, C is not read: it may hold NaN.
#pragma unroll
  for (int i = 0; i < TM; ++i) {
    for (int j = 0; j < TN; ++j) {
      for (int r = 0; r < 4; r += 2) {
        const int c_row = row + 16 * i + g + r * 4, c_col = col + 8 * j + 2 * t;
        const float by_row = unscale(largest_a[c_row]);
        const float x = sum[i][j][r] * by_row * unscale(largest_b[c_col]);
        const float y = sum[i][j][r + 1] * by_row * unscale(largest_b[c_col + 1]);
        float2* c = (float2*)&C[(size_t)c_row * N + c_col];
        const float2 old = beta == 0.0f ? make_float2(0.0f, 0.0f) : *c;
        *c = make_float2(alpha * x + beta * old.x, alpha * y + beta * old.y);
      }
    }
  }
}
