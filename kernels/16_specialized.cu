// 16 · Copying warps
// Run:     worklog run specialized
//          or: nvcc -gencode arch=compute_90a,code=sm_90a -DRUNG=16 main.cu && ./a.out 4096
//
// Before:  every warp copied its part of each tile between its multiply-adds.
// Now:     four warps copy, the others multiply. Copying warps give 64 of 168 registers a thread to
//          the multiplying ones. With one block per SM, its tile is 128 x 256.
// Why:     addresses and copies leave the loop of multiply-adds, and its warps issue little else.
//          A tile of 128 x 256 needs 25 % fewer bytes per multiply-add than 128 x 128.
// Costs:   four warps that don't multiply, and sm_90a: registers move by setmaxnreg. How many
//          multiply-adds read two operands from one register bank depends on what ptxas allocates
//          for a count of registers: `worklog inspect specialized` counts them. Tiles still follow
//          the order of the grid: rasterisation, an order that shares L2, comes with rung 18.
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0, B, C % 16 bytes. Needs sm_90a.
// Tile:    BM=128 BN=256 BK=8 WM=64 WN=64 STAGES=8 COPY_REGISTERS=104 MULTIPLY_REGISTERS=200
// Launch:  grid N / BN, M / BM   block BM * BN / (WM * WN) * 32 + 128   shared 99328
//
// One block computes a BM x BN tile of C with one warp per WM x WN tile. Lane (row, col) owns the
// quads whose corners are (row + 4 * i * ROWS, col + 4 * j * COLS).

namespace cutlass { struct KeepOrder; }  // in the symbol, it keeps the order written: rung 11

template <int BYTES>
__device__ __forceinline__ void copy(float* to, const float* from) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(to);
  if (BYTES == 16) {  // past L1
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(from) : "memory");
  }
}

__device__ __forceinline__ unsigned address(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void init(unsigned long long& bar, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address(&bar)), "r"(count) : "memory");
}
__device__ __forceinline__ void arrive(unsigned long long& bar) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(
                   address(&bar))
               : "memory");
}
// This thread arrives once its copies so far are complete.
__device__ __forceinline__ void arrive_after_copies(unsigned long long& bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(address(&bar)) : "memory");
}
__device__ __forceinline__ void wait(unsigned long long& bar, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra AGAIN;\n}" ::"r"(address(&bar)),
      "r"(parity)
      : "memory");
}

constexpr int COPIERS = 128;  // a warp group, since setmaxnreg (sm_90a) counts per warp group

template <int BM, int BN, int BK, int WM, int WN, int STAGES, int COPY_REGISTERS,
          int MULTIPLY_REGISTERS, class = cutlass::KeepOrder>
__global__ void __launch_bounds__(BM * BN / (WM * WN) * 32 + COPIERS, 1) sgemm_specialized(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  constexpr int ROWS = 8, COLS = 4, TM = WM / ROWS, TN = WN / COLS;
  static_assert(BM * BK % COPIERS == 0 && BK * BN % (4 * COPIERS) == 0,
                "every copying thread copies the same number of elements");
  static_assert(COPIERS % BK == 0 && 4 * COPIERS % BN == 0,
                "a copy pass covers whole rows of a tile");
  static_assert(TM % 4 == 0 && TN % 4 == 0, "a thread tile consists of quads of float4");
  static_assert(BK % 2 == 0, "the two fragments alternate");
  // 4 floats of padding: the transposing copies then hit 32 banks, and rows stay 16-byte aligned.
  extern __shared__ __align__(16) float memory[];
  auto As = (float(*)[BK][BM + 4])memory;
  auto Bs = (float(*)[BK][BN])(memory + STAGES * BK * (BM + 4));
  __shared__ unsigned long long full[STAGES], empty[STAGES];

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(full[stage], COPIERS);
      init(empty[stage], BM * BN / (WM * WN));  // a lane of each multiplying warp
    }
  }
  __syncthreads();  // wait: the mbarriers must be initialised before any thread uses them

  // Move to this block's rows of A, columns of B and tile of C.
  A += (size_t)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (size_t)blockIdx.y * BM * N + blockIdx.x * BN;

  const int tiles = K / BK;
  if (threadIdx.x < COPIERS) {  // global memory -> shared memory
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COPY_REGISTERS));
    // A tile has more elements than there are threads: each copy pass moves a few of its rows.
    const int a_row = threadIdx.x / BK, a_col = threadIdx.x % BK;
    const int b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;
    constexpr int A_ROWS = COPIERS / BK, B_ROWS = 4 * COPIERS / BN;
    for (int tile = 0; tile < tiles; ++tile) {
      const int k0 = tile * BK, stage = tile % STAGES;
      wait(empty[stage], tile / STAGES % 2 ^ 1);  // the first round passes at once
      for (int r = 0; r < BM; r += A_ROWS) {
        copy<4>(&As[stage][a_col][a_row + r], &A[(size_t)(a_row + r) * K + k0 + a_col]);
      }
      for (int r = 0; r < BK; r += B_ROWS) {
        copy<16>(&Bs[stage][b_row + r][b_col], &B[(size_t)(k0 + b_row + r) * N + b_col]);
      }
      arrive_after_copies(full[stage]);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MULTIPLY_REGISTERS));
  const int warp = (threadIdx.x - COPIERS) / 32, lane = threadIdx.x % 32;
  const int row = warp / (BN / WN) * WM + lane / COLS * 4;
  const int col = warp % (BN / WN) * WN + lane % COLS * 4;

  float a[2][TM] = {}, b[2][TN] = {}, acc[TM][TN] = {};
  auto read = [&](int stage, int k) {  // shared memory -> the fragments for k
    const float *a_k = &As[stage][k][row], *b_k = &Bs[stage][k][col];
    for (int i = 0; i < TM; i += 4) *(float4*)&a[k % 2][i] = *(const float4*)&a_k[i * ROWS];
    for (int j = 0; j < TN; j += 4) *(float4*)&b[k % 2][j] = *(const float4*)&b_k[j * COLS];
  };
  auto multiply = [&](int k) {
    for (int j = 0; j < TN; j += 2) {
      for (int step = 0; step < TM; step += 2) {
        const int i = j % 4 == 0 ? step : TM - 2 - step;
        acc[i][j] += a[k % 2][i] * b[k % 2][j];
        acc[i + 1][j] += a[k % 2][i + 1] * b[k % 2][j];
        acc[i + 1][j + 1] += a[k % 2][i + 1] * b[k % 2][j + 1];
        acc[i][j + 1] += a[k % 2][i] * b[k % 2][j + 1];
      }
    }
  };

  for (int tile = 0; tile < tiles; ++tile) {
    wait(full[tile % STAGES], tile / STAGES % 2);
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      read(tile % STAGES, k);
      multiply(k + 1);  // the fragments before: at first zeros, then the last ones of a tile
      if (k == 0) {  // no lane needs the tile before any more
        __syncwarp();
        if (tile > 0 && lane == 0) arrive(empty[(tile - 1) % STAGES]);
      }
    }
  }
  multiply(BK - 1);

  // With beta == 0, C is not read: it may hold NaN.
  for (int i = 0; i < TM; ++i) {
    for (int j = 0; j < TN; j += 4) {
      const int c_row = row + i / 4 * 4 * ROWS + i % 4;
      float4* c = (float4*)&C[(size_t)c_row * N + col + j * COLS];
      const float4 old = beta == 0.0f ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : *c;
      *c = make_float4(alpha * acc[i][j + 0] + beta * old.x, alpha * acc[i][j + 1] + beta * old.y,
                       alpha * acc[i][j + 2] + beta * old.z, alpha * acc[i][j + 3] + beta * old.w);
    }
  }
}
