// 26 · Splitting passes
// Run:     worklog run split
//          main.cu launches one kernel, and here two or three launches share a workspace.
//
// Before:  each block split its rows of A and columns of B, as all the other blocks in its row and
//          column of blocks did.
// Now:     a first kernel splits each number once. It writes the halves to a workspace in the
//          order in which the product needs them: a stage of an operand is contiguous, and one bulk
//          copy fetches it. The product's blocks stay on their SM and take one tile of C after the
//          other.
// Why:     with a thread that only issues two copies per stage, tensor cores are 75 % busy. A row's
//          scale is known before its product starts, so C is divided by it only once.
//          Where tiles are few, they share out K: each part of K is a product of its own, with its
//          own scales, and a third kernel adds these in the order of K.
// Costs:   a workspace as large as A and B, and the time to read both and to write it. What lies
//          beyond the first 4096 of a line is read twice. Parts of K are written and read once.
// Domain:  any M, N, K, any data. A number below 2^-17 of its line's largest loses bits as a
//          half. Pass 1 counts these, and pass 2 sums each element of C for which they might matter
//          again with FFMAs; so too each one that isn't finite. If most elements of C need this,
//          then the kernel is slower than the plain ones.
// Tile:    BM=128 BN=128 STAGES=6 GROUP=8 PARTS=1
// Launch:  grid SMS   block 384   shared 196704
//
// A line is a row of A or a column of B. Per stage of 32 k it has 128 bytes: 32 hi, then 32 lo. Its
// 16-byte parts are swizzled, so that 8 lines fill 8 x 128 bytes without bank conflicts. One block
// computes BM x BN tiles of C: one warp group copies, and two multiply BM / 2 rows each.

#include "split_lines.cuh"
#include "wgmma.cuh"

// Pass 2: the product, by any number of blocks; one per SM is best.
template <int BM, int BN, int STAGES, int GROUP, int PARTS>
__global__ void __launch_bounds__(384, 1) sgemm_split(
    int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C,
    void* workspace) {
  static_assert(BM == 128, "two warp groups multiply 64 rows each");
  constexpr int A_BYTES = BM * LINE_BYTES, B_BYTES = BN * LINE_BYTES;
  constexpr int PROMOTE = 4;  // stages
  constexpr unsigned INFINITE = 0x7f800000;
  extern __shared__ __align__(1024) unsigned char buffers[];
  unsigned char(*a_stage)[A_BYTES] = (unsigned char(*)[A_BYTES])buffers;
  unsigned char(*b_stage)[B_BYTES] = (unsigned char(*)[B_BYTES])(buffers + STAGES * A_BYTES);
  unsigned long long* full = (unsigned long long*)(buffers + STAGES * (A_BYTES + B_BYTES));
  unsigned long long* empty = full + STAGES;
  const Workspace<BM, BN, PARTS> work(M, N, K, workspace);
  const int tiles = work.row_tiles * work.column_tiles;

  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      init(full[s], 1);
      init(empty[s], 8);  // a lane of each multiplying warp
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();  // wait: the mbarriers must be initialised before any thread uses them

  // GROUP rows of tiles are walked column by column, so that the blocks at work share them in L2.
  auto row_and_column = [&](int tile, int& row, int& column) {
    const int first = tile / (GROUP * work.column_tiles) * GROUP;
    const int rows = min(GROUP, work.row_tiles - first);
    const int rest = tile - first * work.column_tiles;
    row = first + rest % rows;
    column = rest / rows;
  };

  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");  // needs sm_90a, as wgmma does
    if (threadIdx.x != 0) return;
    for (int item = blockIdx.x, step = 0; item < tiles * PARTS; item += gridDim.x) {
      const int part = PARTS == 1 ? 0 : item / tiles;
      const int first = work.first(part), stages = work.first(part + 1) - first;
      int row, column;
      row_and_column(item - part * tiles, row, column);
      const unsigned char* a = work.a + ((size_t)row * work.stages + first) * A_BYTES;
      const unsigned char* b = work.b + ((size_t)column * work.stages + first) * B_BYTES;
      for (int end = step + stages; step < end; ++step) {
        const int slot = step % STAGES;
        wait(empty[slot], step / STAGES % 2 ^ 1);
        expect(full[slot], A_BYTES + B_BYTES);
        copy(a_stage[slot], a, A_BYTES, full[slot]);
        copy(b_stage[slot], b, B_BYTES, full[slot]);
        a += A_BYTES, b += B_BYTES;
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  // Of a lane of the warp: the compiler needs to know that a warp doesn't diverge at its wgmmas.
  const int warp = __shfl_sync(ALL, threadIdx.x / 32, 0) - 4, group = warp / 4;
  const int lane = threadIdx.x % 32;
  for (int item = blockIdx.x, step = 0; item < tiles * PARTS; item += gridDim.x) {
    const int part = PARTS == 1 ? 0 : item / tiles;
    const int stages = work.first(part + 1) - work.first(part);
    float acc[BN / 2], sum[BN / 2] = {};
    bool add = false, held = false;  // held: the slot of the step before is still in use
    auto release = [&](int done) {
      __syncwarp();
      if (lane == 0) arrive(empty[done % STAGES]);
    };
    for (int s = 0; s < stages; ++s, ++step) {
      const int slot = step % STAGES;
      wait(full[slot], step / STAGES % 2);
      const unsigned long long a = descriptor(a_stage[slot] + group * 64 * LINE_BYTES);
      const unsigned long long b = descriptor(b_stage[slot]);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      // 2 units of 16 bytes are 16 k; lo is 4 units behind hi. The small products first.
      multiply(acc, a + 4, b, add);
      multiply(acc, a + 6, b + 2, true);
      multiply(acc, a, b + 4, true);
      multiply(acc, a + 2, b + 6, true);
      multiply(acc, a, b, true);
      multiply(acc, a + 2, b + 2, true);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      add = true;
      // The two groups promote at different times: one multiplies while the other adds.
      if ((s + group * PROMOTE / 2) % PROMOTE == PROMOTE - 1 || s + 1 == stages) {
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (held) release(step - 1);
        release(step);
        held = add = false;
#pragma unroll
        for (int i = 0; i < BN / 2; ++i) {
          asm volatile("" : "+f"(acc[i])::"memory");  // not before the wait
          sum[i] += acc[i];
        }
      } else {
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (held) release(step - 1);
        held = true;
      }
    }

    int row, column;
    row_and_column(item - part * tiles, row, column);
    float* into = PARTS == 1 ? C : work.sums + (size_t)part * M * N;
    const float factor = PARTS == 1 ? alpha : 1.0f, keep = PARTS == 1 ? beta : 0.0f;
    const bool whole = (row + 1) * BM <= M && (column + 1) * BN <= N;
    const bool pairs = whole && keep == 0.0f && N % 2 == 0 && (size_t)into % 8 == 0;
    row = row * BM + warp * 16 + lane / 4;
    column = column * BN + lane % 4 * 2;
    const Line* rows = work.rows + (size_t)part * work.row_tiles * BM + row;
    const Line* columns = work.columns + (size_t)part * work.column_tiles * BN;
    const Line of_rows[2] = {rows[0], rows[8]};
    auto row_of = [&](int i) { return row + i % 4 / 2 * 8; };
    auto column_of = [&](int i) { return column + i / 4 * 8 + i % 2; };
    auto inside = [&](int i) { return row_of(i) < M && column_of(i) < N; };
    auto store = [&](int i, float x) {  // with beta == 0, C is not read: it may hold NaN
      float* to = &into[(size_t)row_of(i) * N + column_of(i)];
      *to = factor * x + (keep == 0.0f ? 0.0f : keep * *to);
    };
    unsigned again[BN / 64] = {};  // elements to be summed again
    auto unscaled = [&](int i) {
      const Line a = of_rows[i % 4 / 2];
      const float4 b = __ldg((const float4*)&columns[column_of(i)]);  // a Line
      const float x = sum[i] * a.unscale[0] * b.x * a.unscale[1] * b.y;
      const bool precise = fabsf(sum[i]) >= a.least + b.z && magnitude(x) < INFINITE;
      again[i / 32] |= (unsigned)!precise << i % 32;
      return x;
    };
    if (pairs) {  // without a branch
#pragma unroll
      for (int i = 0; i < BN / 2; i += 2) {
        float2* to = (float2*)&into[(size_t)row_of(i) * N + column_of(i)];
        *to = make_float2(factor * unscaled(i), factor * unscaled(i + 1));
      }
    } else {
#pragma unroll
      for (int from = 0; from < BN / 2; from += 8) {
#pragma unroll
        for (int i = from; i < from + 8; ++i) sum[i] = unscaled(i);
#pragma unroll
        for (int i = from; i < from + 8; ++i) {
          if (inside(i) && (again[i / 32] >> i % 32 & 1) == 0) store(i, sum[i]);
        }
      }
    }
#pragma unroll
    for (int word = 0; word < BN / 64; ++word) {
      // The warp sums one element after the other, of one lane after the other.
      for (unsigned lanes = __ballot_sync(ALL, again[word] != 0); lanes != 0; lanes &= lanes - 1) {
        const int whose = __ffs(lanes) - 1;
        const bool mine = lane == whose;
        for (unsigned left = __shfl_sync(ALL, again[word], whose); left != 0; left &= left - 1) {
          const int i = 32 * word + __ffs(left) - 1;
          const int r = __shfl_sync(ALL, row_of(i), whose);
          const int c = __shfl_sync(ALL, column_of(i), whose);
          if (r >= M || c >= N) continue;
          const int k = work.first(part) * STAGE_K, length = min(K - k, stages * STAGE_K);
          const float x = dot(&A[(size_t)r * K + k], &B[(size_t)k * N + c], length, N, lane);
          if (mine) store(i, x);
        }
      }
    }
  }
}

// Pass 3, of several parts: C = alpha * (their sums, in order) + beta * C.
template <int BM, int BN, int PARTS>
__global__ void __launch_bounds__(128) add_parts(int M, int N, int K, float alpha, const float* A,
                                                 const float* B, float beta, float* C,
                                                 void* workspace) {
  const Workspace<BM, BN, PARTS> work(M, N, K, workspace);
  constexpr int AT_ONCE = PARTS <= 32 ? PARTS : 32;  // loads on their way
  static_assert(PARTS % AT_ONCE == 0, "each round adds the same number of parts");
  const size_t size = (size_t)M * N;
  for (size_t i = (size_t)blockIdx.x * 128 + threadIdx.x; i < size; i += (size_t)gridDim.x * 128) {
    const float* from = work.sums + i;
    float sum = 0.0f, part[AT_ONCE];
    const float old = beta == 0.0f ? 0.0f : C[i];
    for (int p = 0; p < PARTS; p += AT_ONCE) {
      for (int q = 0; q < AT_ONCE; ++q) part[q] = from[(p + q) * size];
      for (int q = 0; q < AT_ONCE; ++q) sum += part[q];
    }
    C[i] = alpha * sum + beta * old;
  }
}
