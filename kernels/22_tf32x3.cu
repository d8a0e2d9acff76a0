// 22 · Three products
// Run:     worklog run tf32x3     or: nvcc -arch=native -DRUNG=22 main.cu && ./a.out 4096
//
// Before:  each factor was rounded to the 11 bits of TF32.
// Now:     each factor is the sum of two numbers of TF32, hi + lo. Three products are summed:
//          lo * hi + hi * lo + hi * hi.
// Why:     hi + lo keeps 22 bits or more, so a product is as precise as FP32's to the last bits. A
//          third of an H200's TF32 rate is 2.7 times FP32's. What came: 0.93 times cuBLAS at 4096.
// Costs:   the sum isn't as precise as FP32's: on an H200, tensor cores truncate it toward zero, so
//          the error grows with K, and FP32's with its root. Beyond K = 128 it isn't FP32's class.
//          Three products can be: where the sum of each few steps is added in FP32, as rung 24 does
//          (Ootomo and Yokota 2022, arXiv 2203.03341).
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0, A, B % 16 bytes, C % 8 bytes. Finite numbers:
//          0 * infinity, of a lo and a hi, is NaN. Below 2^-100 in magnitude, lo may lose bits.
// Tile:    BM=128 BN=128 BK=16 WM=64 WN=32
// Launch:  grid N / BN, M / BM   block BM * BN / (WM * WN) * 32
// Claims:  fp32-emulated
//
// One block computes a BM x BN tile of C with one warp per WM x WN tile. The fragments are those of
// 21.

__device__ __forceinline__ void copy_16_bytes(float* to, const float* from) {
  const unsigned place = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
}

__device__ __forceinline__ unsigned to_tf32(float x) {
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return rounded;
}

__device__ __forceinline__ void split(float x, unsigned& hi, unsigned& lo) {
  hi = to_tf32(x);
  lo = to_tf32(x - __uint_as_float(hi));  // the difference is exact
}

__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <int BM, int BN, int BK, int WM, int WN>
__global__ void __launch_bounds__(BM * BN / (WM * WN) * 32) sgemm_tf32x3(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  constexpr int THREADS = BM * BN / (WM * WN) * 32, TM = WM / 16, TN = WN / 8;
  static_assert(BM * BK % (4 * THREADS) == 0 && BK * BN % (4 * THREADS) == 0,
                "every thread copies the same number of float4");
  // Rows are longer by 4 and 8 floats: the lanes' fragments are then in 32 different banks.
  __shared__ __align__(16) float As[2][BM][BK + 4], Bs[2][BK][BN + 8];

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

  float acc[TM][TN][4] = {};
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
    for (int k = 0; k < BK; k += 8) {
      unsigned a_hi[TM][4], a_lo[TM][4], b_hi[TN][2], b_lo[TN][2];
      for (int i = 0; i < TM; ++i) {
        for (int r = 0; r < 4; ++r) {
          const int a_row = row + 16 * i + g + r % 2 * 8;
          split(As[buffer][a_row][k + t + r / 2 * 4], a_hi[i][r], a_lo[i][r]);
        }
      }
      for (int j = 0; j < TN; ++j) {
        for (int r = 0; r < 2; ++r) {
          split(Bs[buffer][k + t + r * 4][col + 8 * j + g], b_hi[j][r], b_lo[j][r]);
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
    __syncthreads();  // wait: the next copies overwrite this tile
  }

  // With beta == 0, C is not read: it may hold NaN.
  for (int i = 0; i < TM; ++i) {
    for (int j = 0; j < TN; ++j) {
      for (int r = 0; r < 4; r += 2) {
        const int c_row = row + 16 * i + g + r * 4;
        float2* c = (float2*)&C[(size_t)c_row * N + col + 8 * j + 2 * t];
        const float2 old = beta == 0.0f ? make_float2(0.0f, 0.0f) : *c;
        *c = make_float2(alpha * acc[i][j][r] + beta * old.x,
                         alpha * acc[i][j][r + 1] + beta * old.y);
      }
    }
  }
}
