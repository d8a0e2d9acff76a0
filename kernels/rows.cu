// Few rows
// Run:     worklog run best --size 1x4096x4096
//          It isn't a rung: best takes it where A has up to four rows.
//
// Why:     a product of few rows reads each number of B once, and its time is that of this reading.
//          A load holds its registers until it arrives, so that few of them are under way at once.
//          Here each warp has STAGES - 1 batches of A and B on their way to shared memory, and
//          waits for no other warp before the end. The blocks of a cluster take PARTS of K, and add
//          them without a second launch.
// Domain:  N % 4 == 0, K % 4 == 0, A, B, C % 16 bytes. Needs sm_90.
// Tile:    ROWS=4 PARTS=2 STAGES=4
// Launch:  grid (M + ROWS - 1) / ROWS * ((N + 127) / 128) * PARTS   block 256   shared STAGES * (16384 + ROWS * 128)
//
// A cluster computes 128 columns of ROWS rows, and each of its blocks a part of K. A batch is 4 k:
// 512 bytes of B for each of them, and 16 bytes of each row of A. The warps take batches in turn.

constexpr int WARPS = 8, COLUMNS = 128, BATCH = 4, LANES = 32;

__device__ __forceinline__ unsigned address(const void* p) {
  return (unsigned)__cvta_generic_to_shared(p);
}
// 16 bytes from global to shared memory, past the registers; zeros where they are not valid.
__device__ __forceinline__ void copy(float4* to, const float* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address(to)), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
// Stores at the same place of another block of the cluster.
__device__ __forceinline__ void store_at(unsigned block, float* to, float value) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "st.shared::cluster.f32 [there], %2;\n}" ::"r"(address(to)),
      "r"(block), "f"(value)
      : "memory");
}
// Waits for all threads of a cluster, and for their stores.
template <int PARTS>
__device__ __forceinline__ void wait_for_blocks() {
  if (PARTS == 1) {
    __syncthreads();
    return;
  }
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

template <int ROWS, int PARTS, int STAGES>
__global__ void __cluster_dims__(PARTS, 1, 1) __launch_bounds__(WARPS * LANES)
    sgemm_rows(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
               float* C) {
  constexpr int SUMS = ROWS * COLUMNS, OWNED = (SUMS + PARTS - 1) / PARTS;  // by a block
  constexpr int SLOT = BATCH * LANES + ROWS;  // float4 of a batch: B, then A
  static_assert(WARPS * SUMS + PARTS * OWNED <= WARPS * STAGES * SLOT * 4, "sums replace batches");
  extern __shared__ __align__(16) float memory[];
  const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const int part = blockIdx.x % PARTS, tile = blockIdx.x / PARTS;
  const int tiles_across = (N + COLUMNS - 1) / COLUMNS;
  const int i0 = tile / tiles_across * ROWS, j0 = tile % tiles_across * COLUMNS;
  const int col = j0 + lane * 4;

  const int batches = alpha == 0.0f ? 0 : K / BATCH;
  const int first = (int)((long long)batches * part / PARTS) + warp;
  const int end = (int)((long long)batches * (part + 1) / PARTS);
  float4* ring = (float4*)memory + warp * STAGES * SLOT;
  const float* from_b = B + (col < N ? col : 0);
  const float* from_a = A + (size_t)(i0 + lane < M ? i0 + lane : M - 1) * K;
  auto fetch = [&](int slot, int batch) {
    float4* to = &ring[slot * SLOT];
    const bool valid = batch < end;
    const size_t k = valid ? batch * BATCH : 0;
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      copy(&to[i * LANES + lane], &from_b[(k + i) * N], valid && col < N);
    }
    if (lane < ROWS) copy(&to[BATCH * LANES + lane], &from_a[k], valid);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) fetch(s, first + s * WARPS);

  float sum[ROWS][4] = {};
  int slot = 0;
#pragma unroll 1
  for (int batch = first; batch < end; batch += WARPS) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncwarp();  // wait: all lanes need A, and have read the slot that is filled next
    fetch(slot == 0 ? STAGES - 1 : slot - 1, batch + (STAGES - 1) * WARPS);
    const float4* at = &ring[slot * SLOT];
    float4 b[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) b[i] = at[i * LANES + lane];
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
      const float4 a4 = at[BATCH * LANES + row];
      const float a[BATCH] = {a4.x, a4.y, a4.z, a4.w};
#pragma unroll
      for (int i = 0; i < BATCH; ++i) {
        sum[row][0] += a[i] * b[i].x;
        sum[row][1] += a[i] * b[i].y;
        sum[row][2] += a[i] * b[i].z;
        sum[row][3] += a[i] * b[i].w;
      }
    }
    slot = slot + 1 == STAGES ? 0 : slot + 1;
  }
  asm volatile("cp.async.wait_all;" ::: "memory");

  __syncthreads();  // wait: all warps must be done with the batches, whose place the sums take
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    float4* to = (float4*)&memory[warp * SUMS + row * COLUMNS + lane * 4];
    *to = make_float4(sum[row][0], sum[row][1], sum[row][2], sum[row][3]);
  }
  // Wait: the sums of all warps must be there, and the other blocks be done with their batches.
  wait_for_blocks<PARTS>();
  // Each block owns some sums of the cluster. The others send it their parts of them.
  float* received = &memory[WARPS * SUMS];
  for (int n = threadIdx.x; n < SUMS; n += WARPS * LANES) {
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) total += memory[w * SUMS + n];
    store_at(n / OWNED, &received[part * OWNED + n % OWNED], total);
  }
  wait_for_blocks<PARTS>();  // wait: the parts of all blocks must be there
  const int owned = min(OWNED, SUMS - part * OWNED);
  for (int n = threadIdx.x; n < owned; n += WARPS * LANES) {
    const int i = i0 + (part * OWNED + n) / COLUMNS, j = j0 + (part * OWNED + n) % COLUMNS;
    if (i >= M || j >= N) continue;
    float total = 0.0f;
#pragma unroll
    for (int p = 0; p < PARTS; ++p) total += received[p * OWNED + n];
    float* c = &C[(size_t)i * N + j];
    *c = alpha * total + (beta == 0.0f ? 0.0f : beta * *c);  // with beta == 0, C is not read
  }
}
