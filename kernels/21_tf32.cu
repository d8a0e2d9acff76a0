// 21 · Tensor cores
// Run:     worklog run tf32     or: nvcc -arch=native -DRUNG=21 main.cu && ./a.out 4096
//
// Before:  every multiply-add is an FFMA: an H200's SM computes 128 of them per clock.
// Now:     a warp multiplies 16 x 8 by 8 x 8 numbers with one instruction, mma.sync, on its tensor
//          core.
// Why:     the tensor cores of an H200's SM compute 1024 multiply-adds of TF32 per clock.
// Costs:   the result isn't FP32: TF32 keeps 11 of the 24 bits of each factor. Rounded so, they
//          leave errors of 4300 u*D, on sums of any length: 230 times cuBLAS's at K = 4096.
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0, A, B % 16 bytes, C % 8 bytes. Needs sm_80.
// Tile:    BM=128 BN=128 BK=16 WM=64 WN=32
// Launch:  grid N / BN, M / BM   block BM * BN / (WM * WN) * 32
// Claims:  tf32
//
// One block computes a BM x BN tile of C with one warp per WM x WN tile. Lane (g, t), its number
// divided by 4 and the rest, holds the fragments as PTX gives them ("Matrix Fragments for
// mma.m16n8k8"): of A rows g and g + 8 at k = t and t + 4, of B column g, of C columns 2 t and
// 2 t + 1.

__device__ __forceinline__ void copy_16_bytes(float* to, const float* from) {
  const unsigned place = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
}

__device__ __forceinline__ unsigned to_tf32(float x) {
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return rounded;
}

__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4],
                                         const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <int BM, int BN, int BK, int WM, int WN>
__global__ void __launch_bounds__(BM * BN / (WM * WN) * 32) sgemm_tf32(
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
      unsigned a[TM][4], b[TN][2];
      for (int i = 0; i < TM; ++i) {
        for (int r = 0; r < 4; ++r) {
          const int a_row = row + 16 * i + g + r % 2 * 8;
          a[i][r] = to_tf32(As[buffer][a_row][k + t + r / 2 * 4]);
        }
      }
      for (int j = 0; j < TN; ++j) {
        for (int r = 0; r < 2; ++r) {
          b[j][r] = to_tf32(Bs[buffer][k + t + r * 4][col + 8 * j + g]);
        }
      }
      for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; ++j) multiply(acc[i][j], a[i], b[j]);
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
