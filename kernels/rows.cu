// Few rows
// Run:     worklog run best --size 1x4096x4096
//          It isn't a rung: best takes it where A has up to four rows.
//
// Why:     a product of few rows reads each number of B once, and its time is that of this reading.
//          Registers hold what a warp has asked for, so few of them are under way at once. Here
//          STAGES - 1 batches of B are, for each warp, in shared memory. A lane reads what it
//          copied itself, so that no thread waits for another one before the end.
//          The blocks of a cluster take PARTS of K, and add them without a second launch.
// Domain:  N % 4 == 0, K % 4 == 0, A, B, C % 16 bytes. Needs sm_90.
// Tile:    ROWS=4 PARTS=2 STAGES=3
// Launch:  grid (M + ROWS - 1) / ROWS * ((N + 127) / 128) * PARTS   block 256   shared STAGES * 16384
//
// A cluster computes 128 columns of ROWS rows, and each of its blocks a part of K. A batch is 4 k, of which
// a warp copies 512 bytes each; the warps of a block take the batches in turn.

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

template <int ROWS, int PARTS, int STAGES>
__global__ void __cluster_dims__(PARTS, 1, 1) __launch_bounds__(WARPS * LANES)
    sgemm_rows(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
               float* C) {
  constexpr int SUMS = ROWS * COLUMNS, OWNED = (SUMS + PARTS - 1) / PARTS;  // by a block
  static_assert(WARPS * SUMS <= WARPS * STAGES * BATCH * COLUMNS, "sums take the place of B");
  extern __shared__ __align__(16) float memory[];
  __shared__ float received[PARTS][OWNED];
  const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const int part = blockIdx.x % PARTS, tile = blockIdx.x / PARTS;
  const int tiles_across = (N + COLUMNS - 1) / COLUMNS;
  const int i0 = tile / tiles_across * ROWS, j0 = tile % tiles_across * COLUMNS;
  const int col = j0 + lane * 4;
  if (PARTS > 1) asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");

  const int batches = alpha == 0.0f ? 0 : K / BATCH;
  const int first = (int)((long long)batches * part / PARTS) + warp;
  const int end = (int)((long long)batches * (part + 1) / PARTS);
  float4* ring = (float4*)memory + warp * STAGES * BATCH * LANES + lane;
  const float* from = B + (col < N ? col : 0);
  auto fetch = [&](int slot, int batch) {
    const bool valid = batch < end && col < N;
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const size_t k = valid ? batch * BATCH + i : 0;
      copy(&ring[(slot * BATCH + i) * LANES], &from[k * N], valid);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) fetch(s, first + s * WARPS);

  float sum[ROWS][4] = {};
  int slot = 0;
#pragma unroll 1
  for (int batch = first; batch < end; batch += WARPS) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    fetch(slot == 0 ? STAGES - 1 : slot - 1, batch + (STAGES - 1) * WARPS);
    float4 b[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) b[i] = ring[(slot * BATCH + i) * LANES];
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
      const size_t line = i0 + row < M ? i0 + row : M - 1;
      const float4 a4 = *(const float4*)&A[line * K + batch * BATCH];
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

  __syncthreads();  // wait: the warps must have read B before their sums take its place
#pragma unroll
  for (int row = 0; row < ROWS; ++row) {
    float4* to = (float4*)&memory[warp * SUMS + row * COLUMNS + lane * 4];
    *to = make_float4(sum[row][0], sum[row][1], sum[row][2], sum[row][3]);
  }
  __syncthreads();  // wait: the sums of all warps must be complete
  // Each block owns some sums of the cluster. The others send it their parts of them.
  if (PARTS > 1) asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
  for (int n = threadIdx.x; n < SUMS; n += WARPS * LANES) {
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) total += memory[w * SUMS + n];
    store_at(n / OWNED, &received[part][n % OWNED], total);
  }
  if (PARTS > 1) {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
  } else {
    __syncthreads();  // wait: the sums of all threads must be there
  }
  const int owned = min(OWNED, SUMS - part * OWNED);
  for (int n = threadIdx.x; n < owned; n += WARPS * LANES) {
    const int i = i0 + (part * OWNED + n) / COLUMNS, j = j0 + (part * OWNED + n) % COLUMNS;
    if (i >= M || j >= N) continue;
    float total = 0.0f;
#pragma unroll
    for (int p = 0; p < PARTS; ++p) total += received[p][n];
    float* c = &C[(size_t)i * N + j];
    *c = alpha * total + (beta == 0.0f ? 0.0f : beta * *c);  // with beta == 0, C is not read
  }
}
