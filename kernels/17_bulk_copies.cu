// 17 · Bulk copies
// Run:     worklog run bulk_copies
//          or: nvcc -gencode arch=compute_90a,code=sm_90a -DRUNG=17 main.cu && ./a.out 4096
//
// Before:  a copying thread issued 12 cp.async per tile, with an address each. 8 of them moved four
//          bytes, since they transposed A.
// Now:     one instruction copies a row of B's tile. A passes through registers: a thread reads
//          four quads, a tile ahead, and stores them transposed. Half of the copying warps do a
//          tile.
// Why:     89 % of the issue slots are taken in rung 16, so an instruction of a copying warp may
//          take one from the multiplying warps. 1.03 times as fast at 2048, 4096 and 8192.
// Costs:   16 registers per copying thread. The copies of B need rows of whole 16 bytes.
// Domain:  M % BM == 0, N % BN == 0, K % BK == 0, A, B, C % 16 bytes. Needs sm_90a.
// Tile:    BM=128 BN=256 BK=8 WM=64 WN=64 STAGES=8 COPY_REGISTERS=104 MULTIPLY_REGISTERS=200
// Launch:  grid N / BN, M / BM   block BM * BN / (WM * WN) * 32 + 128   shared 99328
//
// One block computes a BM x BN tile of C with one warp per WM x WN tile. Lane (row, col) owns the
// quads whose corners are (row + 4 * i * ROWS, col + 4 * j * COLS).

namespace cutlass { struct KeepOrder; }  // in the symbol, it keeps the order written: rung 11

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
// One arrival, and so many bytes of copies before the phase ends.
__device__ __forceinline__ void expect(unsigned long long& bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&bar)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void wait(unsigned long long& bar, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nAGAIN:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra AGAIN;\n}" ::"r"(address(&bar)),
      "r"(parity)
      : "memory");
}

// Whether this is the lane that the warp chose. The compiler knows that it is one.
__device__ __forceinline__ bool elected() {
  int chosen;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.b32 %0, 1, 0, p;\n}"
               : "=r"(chosen));
  return chosen != 0;
}
// One instruction copies a row of a tile.
__device__ __forceinline__ void copy(float* to, const float* from, int bytes,
                                     unsigned long long& bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(address(to)),
      "l"(from), "r"(bytes), "r"(address(&bar))
      : "memory");
}

constexpr int COPIERS = 128;  // a warp group, since setmaxnreg (sm_90a) counts per warp group

template <int BM, int BN, int BK, int WM, int WN, int STAGES, int COPY_REGISTERS,
          int MULTIPLY_REGISTERS, class = cutlass::KeepOrder>
__global__ void __launch_bounds__(BM * BN / (WM * WN) * 32 + COPIERS, 1) sgemm_bulk_copies(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C) {
  constexpr int ROWS = 8, COLS = 4, TM = WM / ROWS, TN = WN / COLS;
  // Each copying thread moves 4 x 4 elements of A per tile. That takes a part of the warps, and the
  // others copy the next tiles meanwhile.
  constexpr int WARPS = BM * BK / 16 / 32, TEAMS = COPIERS / 32 / WARPS;
  static_assert(BM * BK % 512 == 0 && COPIERS / 32 % WARPS == 0, "whole warps copy a tile of A");
  static_assert(BK % (4 * WARPS) == 0, "its warps copy the same number of rows of B");
  static_assert(TM % 4 == 0 && TN % 4 == 0, "a thread tile consists of quads of float4");
  static_assert(BK % 2 == 0, "the two fragments alternate");
  // 4 floats of padding: eight neighbouring threads then store to 32 banks.
  extern __shared__ __align__(16) float memory[];
  auto As = (float(*)[BK][BM + 4])memory;
  auto Bs = (float(*)[BK][BN])(memory + STAGES * BK * (BM + 4));
  __shared__ unsigned long long full[STAGES], empty[STAGES];

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(full[stage], WARPS);  // a lane of each of its copying warps
      init(empty[stage], BM * BN / (WM * WN));  // a lane of each multiplying warp
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // bulk copies use them, too
  }
  __syncthreads();  // wait: the mbarriers must be initialised before any thread uses them

  // Move to this block's rows of A, columns of B and tile of C.
  A += (size_t)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (size_t)blockIdx.y * BM * N + blockIdx.x * BN;

  const int tiles = K / BK;
  if (threadIdx.x < COPIERS) {  // global memory -> shared memory
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COPY_REGISTERS));
    const int team = threadIdx.x / (32 * WARPS), thread = threadIdx.x % (32 * WARPS);
    const int a_row = thread / (BK / 4) * 4, a_col = thread % (BK / 4) * 4;
    constexpr int B_ROWS = BK / WARPS;
    const int b_row = thread / 32 * B_ROWS;
    A += (size_t)a_row * K + team * BK + a_col;
    B += (size_t)(team * BK + b_row) * N;
    float a[4][4];
    auto load = [&](int tile) {  // a tile ahead: its data has time to arrive
      if (tile >= tiles) return;
      for (int i = 0; i < 4; ++i) *(float4*)a[i] = *(const float4*)&A[(size_t)i * K];
      A += TEAMS * BK;
    };
    load(team);
    for (int tile = team; tile < tiles; tile += TEAMS) {
      const int stage = tile % STAGES;
      wait(empty[stage], tile / STAGES % 2 ^ 1);  // the first round passes at once
      for (int k = 0; k < 4; ++k) {
        *(float4*)&As[stage][a_col + k][a_row] = make_float4(a[0][k], a[1][k], a[2][k], a[3][k]);
      }
      load(tile + TEAMS);
      __syncwarp();
      if (elected()) {
        expect(full[stage], B_ROWS * BN * 4);
        for (int r = 0; r < B_ROWS; ++r) {
          copy(Bs[stage][b_row + r], &B[(size_t)r * N], BN * 4, full[stage]);
        }
      }
      B += (size_t)TEAMS * BK * N;
    }
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
      if (k == 1) {  // no lane needs the tile before any more
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
