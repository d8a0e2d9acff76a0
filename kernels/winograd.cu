// Fewer multiplications
// Run:     worklog run winograd --size 8192
//          It isn't a rung: only the class fp32-norm admits its error. Notebook 09 has its time.
//
// Before:  each rung multiplies M * N * K pairs of numbers, so the FP32 units limit its rate.
// Now:     Winograd's form of Strassen's algorithm: A, B and C are split into quadrants, and seven
//          products of sums of quadrants replace eight. With LEVELS = 2, each product is split
//          again: 49 products replace 64.
//          A first kernel reads A and B once, forms all sums, and writes them in the order in which
//          the product needs them. A stage of a sum is contiguous, and A's is transposed, so one
//          bulk copy fetches it. The product's blocks stay on their SM. A block takes one place of
//          a tile in all quadrants, and computes the products for it one after the other.
// Why:     no two blocks write the same element, so there are no atomics, and one order of sums. A
//          sum that several quadrants of C share continues in the registers from product to
//          product, so 7 products store 7 tiles and load 3. Meanwhile the next stages arrive.
// Costs:   a workspace of 7/4 of A and B (49/16 with LEVELS = 2), and 2 (10) tiles per block. The
//          largest numbers of A and B bound an element's error, not its row and column. NaN and
//          infinity spread to the rows and columns at the same place in the other quadrants. A
//          small C has fewer places than there are SMs: 32 at 2048.
// Claims:  fp32-norm
// Domain:  M % 256 == 0, N % 512 == 0, K % 16 == 0, A, B, C % 16 bytes. Needs sm_90a. With
//          LEVELS = 2, twice these multiples.
// Tile:    BM=128 BN=256 BK=8 WM=64 WN=64 STAGES=8 COPY_REGISTERS=24 MULTIPLY_REGISTERS=240
//          GROUP=8 LEVELS=1
// Launch:  grid SMS   block BM * BN / (WM * WN) * 32 + 128   shared STAGES * BK * (BM + BN) * 4
//
// One block computes BM x BN tiles of C with one warp per WM x WN tile. Lane (row, col) owns the
// quads whose corners are (row + 4 * i * ROWS, col + 4 * j * COLS).
//
// With quadrants 11, 12, 21 and 22, the sums and the products in their order are:
//   S1 = A21 + A22, S2 = S1 - A11, S3 = A11 - A21, S4 = A12 - S2
//   T1 = B12 - B11, T2 = B22 - T1, T3 = B22 - B12, T4 = B21 - T2
//   P1 = A11 B11, P2 = A12 B21, P6 = S2 T2, P7 = S3 T3, P4 = A22 T4, P5 = S1 T1, P3 = S4 B22
//   C11 = P1 + P2, C21 = P1 + P6 + P7 + P4, C22 = P1 + P6 + P7 + P5, C12 = P1 + P6 + P5 + P3

namespace cutlass { struct KeepOrder; }  // in the symbol, it keeps the order written: rung 11

constexpr int COPIERS = 128;  // a warp group, since setmaxnreg (sm_90a) counts per warp group
// The places of products in their order. A quadrant of C is complete after four of them.
constexpr int P1 = 0, P2 = 1, P6 = 2, P7 = 3, P4 = 4, P5 = 5, P3 = 6;

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
__device__ __forceinline__ void copy(float* to, const float* from, int bytes,
                                     unsigned long long& bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(address(to)),
      "l"(from), "r"(bytes), "r"(address(&bar))
      : "memory");
}

__device__ __forceinline__ float4 operator+(float4 x, float4 y) {
  return make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}
__device__ __forceinline__ float4 operator-(float4 x, float4 y) {
  return make_float4(x.x - y.x, x.y - y.y, x.z - y.z, x.w - y.w);
}

// The sizes of the smallest quadrants, and the workspace: the sums of A, then of B, product by
// product, each as tiles of all steps along K; then the tiles that a block keeps.
template <int BM, int BN, int BK, int LEVELS>
struct Workspace {
  static constexpr int PRODUCTS = LEVELS == 1 ? 7 : 49, KEPT = LEVELS == 1 ? 2 : 10;
  int m, n, k;
  float* a;

  __device__ Workspace(int M, int N, int K, void* start) : m(M >> LEVELS), n(N >> LEVELS) {
    k = K >> LEVELS;
    a = (float*)start;
  }
  // The stages of a sum for a row or a column of tiles.
  __device__ float* stages_of_a(int product, int row) const {
    return a + ((size_t)product * m + row * BM) * k;
  }
  __device__ float* stages_of_b(int product, int column) const {
    return a + ((size_t)PRODUCTS * m + (size_t)product * n + column * BN) * k;
  }
  __device__ float* tiles_of(int block) const {
    return a + (size_t)PRODUCTS * k * (m + n) + (size_t)block * KEPT * BM * BN;
  }
};

// The factors of the seven products, of quads at one place in the four quadrants.
template <bool OF_A>
__device__ __forceinline__ void seven(const float4 (&x)[4], float4 (&factors)[7]) {
  if (OF_A) {
    const float4 s1 = x[2] + x[3], s2 = s1 - x[0];
    factors[P1] = x[0], factors[P2] = x[1], factors[P6] = s2, factors[P7] = x[0] - x[2];
    factors[P4] = x[3], factors[P5] = s1, factors[P3] = x[1] - s2;
  } else {
    const float4 t1 = x[1] - x[0], t2 = x[3] - t1;
    factors[P1] = x[0], factors[P2] = x[2], factors[P6] = t2, factors[P7] = x[3] - x[1];
    factors[P4] = x[2] - t2, factors[P5] = t1, factors[P3] = x[3];
  }
}

// Reads a quad at one place in all quadrants, and stores the sums. from: the quad in the first
// quadrant; down, across: from a quadrant to the next one.
template <bool OF_A, int LEVELS, class Store>
__device__ __forceinline__ void form(const float* from, size_t down, size_t across, Store store) {
  constexpr int SIDES = 1 << LEVELS;
  float4 x[SIDES * SIDES];
  for (int r = 0; r < SIDES; ++r) {
    for (int c = 0; c < SIDES; ++c) {
      x[r * SIDES + c] = *(const float4*)&from[r * down + c * across];
    }
  }
  float4 factors[7];
  if (LEVELS == 1) {
    seven<OF_A>({x[0], x[1], x[2], x[3]}, factors);
    for (int p = 0; p < 7; ++p) store(p, factors[p]);
    return;
  }
  float4 outer[4][7];  // of each inner quadrant
  for (int q = 0; q < 4; ++q) {
    const int place = q / 2 * SIDES + q % 2;
    seven<OF_A>({x[place], x[place + 2], x[place + 2 * SIDES], x[place + 2 * SIDES + 2]}, outer[q]);
  }
  for (int p = 0; p < 7; ++p) {
    seven<OF_A>({outer[0][p], outer[1][p], outer[2][p], outer[3][p]}, factors);
    for (int i = 0; i < 7; ++i) store(7 * p + i, factors[i]);
  }
}

// Each thread takes one quad of each quadrant: first A's blocks, then B's.
template <int BM, int BN, int BK, int LEVELS>
__global__ void __launch_bounds__(256) form_sums(int M, int N, int K, float alpha, const float* A,
                                                 const float* B, float beta, float* C,
                                                 void* workspace) {
  const Workspace<BM, BN, BK, LEVELS> work(M, N, K, workspace);
  const int of_a = work.m / 16 * (work.k / 8);  // warps: each takes 16 rows and 8 columns
  const int warp = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp < of_a) {
    // 2 lanes read a sector of a row, and 16 lanes store neighbours of a column.
    const int row = warp / (work.k / 8) * 16 + lane / 2;
    const int k = warp % (work.k / 8) * 8 + lane % 2 * 4;
    const size_t place = (size_t)(k / BK * BK) * BM + k % BK * BM + row % BM;
    form<true, LEVELS>(&A[(size_t)row * K + k], (size_t)work.m * K, work.k,
                       [&](int product, float4 sum) {
                         float* to = work.stages_of_a(product, row / BM) + place;
                         to[0] = sum.x, to[BM] = sum.y, to[2 * BM] = sum.z, to[3 * BM] = sum.w;
                       });
  } else {
    const size_t quad = (size_t)(warp - of_a) * 32 + lane;
    const int k = quad / (work.n / 4), column = quad % (work.n / 4) * 4;
    const size_t place = (size_t)k * BN + column % BN;
    form<false, LEVELS>(&B[(size_t)k * N + column], (size_t)work.k * N, work.n,
                        [&](int product, float4 sum) {
                          *(float4*)&work.stages_of_b(product, column / BN)[place] = sum;
                        });
  }
}

template <int BM, int BN, int BK, int WM, int WN, int STAGES, int COPY_REGISTERS,
          int MULTIPLY_REGISTERS, int GROUP, int LEVELS, class = cutlass::KeepOrder>
__global__ void __launch_bounds__(BM * BN / (WM * WN) * 32 + COPIERS, 1) sgemm_winograd(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C,
    void* workspace) {
  static_assert(LEVELS == 1 || LEVELS == 2, "the tiles that a block keeps are for these");
  static_assert(BK % 8 == 0 && BM % 16 == 0, "form_sums takes 16 rows and 8 columns of A");
  constexpr int ROWS = 8, COLS = 4, TM = WM / ROWS, TN = WN / COLS;
  constexpr int THREADS = BM * BN / (WM * WN) * 32;
  static_assert(TM % 4 == 0 && TN % 4 == 0, "a thread tile consists of quads of float4");
  extern __shared__ __align__(16) float memory[];
  auto As = (float(*)[BK][BM])memory;
  auto Bs = (float(*)[BK][BN])(memory + STAGES * BK * BM);
  __shared__ unsigned long long full[STAGES], empty[STAGES];
  using Work = Workspace<BM, BN, BK, LEVELS>;
  const Work work(M, N, K, workspace);
  const int tile_rows = work.m / BM, tile_columns = work.n / BN, steps = work.k / BK;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      init(full[stage], 1);
      init(empty[stage], THREADS / 32);  // a lane of each multiplying warp
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // bulk copies use them, too
  }
  __syncthreads();  // wait: the mbarriers must be initialised before any thread uses them

  // GROUP rows of tiles are walked column by column, so that the blocks at work share them in L2.
  auto row_and_column = [&](int tile, int& row, int& column) {
    const int first = tile / (GROUP * tile_columns) * GROUP;
    const int rows = min(GROUP, tile_rows - first);
    const int rest = tile - first * tile_columns;
    row = first + rest % rows;
    column = rest / rows;
  };

  if (threadIdx.x < COPIERS) {  // global memory -> shared memory
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COPY_REGISTERS));
    if (threadIdx.x != 0) return;
    int step = 0;
    for (int tile = blockIdx.x; tile < tile_rows * tile_columns; tile += gridDim.x) {
      int row, column;
      row_and_column(tile, row, column);
      for (int product = 0; product < Work::PRODUCTS; ++product) {
        const float* a = work.stages_of_a(product, row);
        const float* b = work.stages_of_b(product, column);
        for (const int end = step + steps; step < end; ++step) {
          const int stage = step % STAGES;
          wait(empty[stage], step / STAGES % 2 ^ 1);  // the first round passes at once
          expect(full[stage], BK * (BM + BN) * 4);
          copy(As[stage][0], a, BK * BM * 4, full[stage]);
          copy(Bs[stage][0], b, BK * BN * 4, full[stage]);
          a += BK * BM;
          b += BK * BN;
        }
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MULTIPLY_REGISTERS));
  const int thread = threadIdx.x - COPIERS, warp = thread / 32, lane = thread % 32;
  const int row = warp / (BN / WN) * WM + lane / COLS * 4;
  const int col = warp % (BN / WN) * WN + lane % COLS * 4;

  float a[2][TM], b[2][TN], acc[TM][TN];
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

  // Tiles that the block keeps, each as quads of all threads. A thread reads only what it wrote.
  float4* kept = (float4*)work.tiles_of(blockIdx.x) + thread;
  constexpr int AT_ONCE = LEVELS == 1 ? 2 : 1;  // rows of a thread's tile whose loads overlap
  constexpr int QUADS = AT_ONCE * TN / 4;
  const float4 zeros[QUADS] = {};
  auto take = [&](int i, float4 (&sums)[QUADS]) {
    for (int q = 0; q < QUADS; ++q) {
      const float* of_row = &acc[i + q / (TN / 4)][q % (TN / 4) * 4];
      sums[q] = make_float4(of_row[0], of_row[1], of_row[2], of_row[3]);
    }
  };
  auto set = [&](int i, const float4 (&sums)[QUADS]) {
    for (int q = 0; q < QUADS; ++q) {
      float* of_row = &acc[i + q / (TN / 4)][q % (TN / 4) * 4];
      of_row[0] = sums[q].x, of_row[1] = sums[q].y, of_row[2] = sums[q].z, of_row[3] = sums[q].w;
    }
  };
  auto place = [&](int tile, int i, int quad) {
    return &kept[tile * (BM * BN / 4) + (i * (TN / 4) + quad) * THREADS];
  };
  auto keep = [&](int tile, int i, const float4 (&sums)[QUADS]) {
    for (int q = 0; q < QUADS; ++q) *place(tile, i, q) = sums[q];
  };
  auto add_kept = [&](int tile, int i, float4 (&sums)[QUADS]) {
    float4 old[QUADS];
    for (int q = 0; q < QUADS; ++q) old[q] = *place(tile, i, q);
    for (int q = 0; q < QUADS; ++q) sums[q] = sums[q] + old[q];
  };
  // C of a quadrant, from row i of the thread's tile on. With beta == 0, C is not read: it may hold
  // NaN.
  auto store = [&](float* c, int i, const float4 (&sums)[QUADS]) {
    float4 old[QUADS];
    auto at = [&](int q) {
      const int of_tile = i + q / (TN / 4);
      return (float4*)&c[(size_t)(of_tile / 4 * 4 * ROWS + of_tile % 4) * N +
                         q % (TN / 4) * 4 * COLS];
    };
    for (int q = 0; q < QUADS; ++q) old[q] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (beta != 0.0f) {
      for (int q = 0; q < QUADS; ++q) old[q] = *at(q);
    }
    for (int q = 0; q < QUADS; ++q) {
      *at(q) = make_float4(alpha * sums[q].x + beta * old[q].x, alpha * sums[q].y + beta * old[q].y,
                           alpha * sums[q].z + beta * old[q].z,
                           alpha * sums[q].w + beta * old[q].w);
    }
  };
  auto is_below = [](int product) { return product == P4 || product == P5; };
  auto is_right = [](int product) { return product == P5 || product == P3; };

  int step = 0;
  auto release = [&] {  // no lane needs the stage of the step before any more
    __syncwarp();
    if (lane == 0) arrive(empty[(step - 1) % STAGES]);
  };
  for (int tile = blockIdx.x; tile < tile_rows * tile_columns; tile += gridDim.x) {
    int tile_row, tile_column;
    row_and_column(tile, tile_row, tile_column);
    float* c_tile = C + ((size_t)tile_row * BM + row) * N + tile_column * BN + col;
    for (int i = 0; i < TM; ++i) {
      for (int j = 0; j < TN; ++j) acc[i][j] = 0.0f;
    }
#pragma unroll 1
    for (int product = 0; product < Work::PRODUCTS; ++product) {
      for (int i = 0; i < TM; ++i) a[1][i] = 0.0f;
      for (int j = 0; j < TN; ++j) b[1][j] = 0.0f;
      for (int s = 0; s < steps; ++s, ++step) {
        wait(full[step % STAGES], step / STAGES % 2);
#pragma unroll
        for (int k = 0; k < BK; ++k) {
          read(step % STAGES, k);
          multiply(k + 1);  // the fragments before: at first zeros, then the last ones of a step
          if (k == 1 && s > 0) release();
        }
      }
      multiply(BK - 1);
      release();

      const int inner = product % 7, outer = product / 7;
      // Of the inner quadrant, and then of the outer one: tiles 2 to 5 keep what tile 0 is for the
      // inner products, and tiles 6 to 9 what tile 1 is.
      const int quadrant = 2 * is_below(inner) + is_right(inner);
      const int shared_sum = 2 + quadrant, longer_sum = 6 + quadrant;
      float* c = c_tile + (is_below(inner) ? (size_t)work.m * N : 0) + is_right(inner) * work.n;
      if (LEVELS == 2) {
        c += (is_below(outer) ? (size_t)2 * work.m * N : 0) + is_right(outer) * 2 * work.n;
      }
#pragma unroll  // else acc would need addresses, and be in memory
      for (int i = 0; i < TM; i += AT_ONCE) {
        float4 sums[QUADS];
        take(i, sums);
        if (inner == P5) add_kept(1, i, sums);
        if (inner == P1 || inner == P6) {
          keep(0, i, sums);
        } else if (inner == P7) {
          keep(1, i, sums);
        } else if (LEVELS == 1) {
          store(c, i, sums);
        } else {
          if (outer == P5) {
            float4 longer[QUADS];
            for (int q = 0; q < QUADS; ++q) longer[q] = sums[q];
            add_kept(longer_sum, i, longer);
            store(c, i, longer);
          }
          if (outer != P1) add_kept(outer == P4 ? longer_sum : shared_sum, i, sums);
          if (outer == P1 || outer == P6 || outer == P5) {
            keep(shared_sum, i, sums);
          } else if (outer == P7) {
            keep(longer_sum, i, sums);
          } else {
            store(c, i, sums);
          }
        }
        // What the next product is added to.
        if (inner == P4 || inner == P2 || inner == P3) set(i, zeros);
        if (inner == P2 || inner == P5) {
          take(i, sums);
          add_kept(0, i, sums);
          set(i, sums);
        }
      }
    }
  }
}
