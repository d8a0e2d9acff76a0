// OFFSET and FETCH_FLOAT4, unaligned tiles and a double buffer of registers
// domain: M % 64 == 0, N % 64 == 0, K % 8 == 0
#define OFFSET(row, col, ld) ((row) * (ld) + (col))
#define FETCH_FLOAT4(pointer) (reinterpret_cast<float4*>(&(pointer))[0])
#define FETCH_CONST_FLOAT4(pointer) (reinterpret_cast<const float4*>(&(pointer))[0])

__global__ void mySgemmV3(
    float* __restrict__ a, float* __restrict__ b, float* __restrict__ c, const int M, const int N,
    const int K) {
  const int BM = 64, BN = 64, BK = 8, TM = 8, TN = 8;
  const int bx = blockIdx.x, by = blockIdx.y, tx = threadIdx.x, ty = threadIdx.y;
  const int tid = ty * blockDim.x + tx;
  __shared__ float s_a[2][BK][BM];
  __shared__ float s_b[2][BK][BN];
  float r_load_a[2][4], r_load_b[2][4], r_comp_a[TM], r_comp_b[TN], r_c[TM][TN] = {0.0};
  auto load = [&](int bk) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int at = 4 * (tid + 64 * i);
      FETCH_FLOAT4(r_load_a[i]) =
          FETCH_FLOAT4(a[OFFSET(by * BM + at / BK, bk * BK + at % BK, K)]);
      FETCH_FLOAT4(r_load_b[i]) =
          FETCH_FLOAT4(b[OFFSET(bk * BK + at / BN, bx * BN + at % BN, N)]);
    }
  };
  auto store = [&](int sel) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int at = 4 * (tid + 64 * i);
      for (int j = 0; j < 4; j++) s_a[sel][at % BK + j][at / BK] = r_load_a[i][j];
      FETCH_FLOAT4(s_b[sel][at / BN][at % BN]) = FETCH_FLOAT4(r_load_b[i]);
    }
  };
  load(0);
  store(0);
  __syncthreads();
  for (int bk = 0; bk < K / BK; bk++) {
    int smem_sel = bk & 1, smem_sel_next = (bk + 1) & 1;
    if (bk + 1 < K / BK) load(bk + 1);
#pragma unroll
    for (int tk = 0; tk < BK; tk++) {
      FETCH_FLOAT4(r_comp_a[0]) = FETCH_FLOAT4(s_a[smem_sel][tk][ty * TM / 2]);
      FETCH_FLOAT4(r_comp_a[4]) = FETCH_FLOAT4(s_a[smem_sel][tk][ty * TM / 2 + BM / 2]);
      FETCH_FLOAT4(r_comp_b[0]) = FETCH_FLOAT4(s_b[smem_sel][tk][tx * TN / 2]);
      FETCH_FLOAT4(r_comp_b[4]) = FETCH_FLOAT4(s_b[smem_sel][tk][tx * TN / 2 + BN / 2]);
#pragma unroll
      for (int tm = 0; tm < TM; tm++) {
#pragma unroll
        for (int tn = 0; tn < TN; tn++) r_c[tm][tn] += r_comp_a[tm] * r_comp_b[tn];
      }
    }
    if (bk + 1 < K / BK) store(smem_sel_next);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < TM; i++) {
    int row = by * BM + ty * TM / 2 + i % 4 + i / 4 * (BM / 2);
    int col = bx * BN + tx * TN / 2;
    FETCH_FLOAT4(c[OFFSET(row, col, N)]) = FETCH_FLOAT4(r_c[i][0]);
    FETCH_FLOAT4(c[OFFSET(row, col + BN / 2, N)]) = FETCH_FLOAT4(r_c[i][4]);
  }
}

void test(float* d_a, float* d_b, float* d_c, int M, int N, int K) {
  const int BM = 64, BN = 64, TM = 8, TN = 8;
  dim3 blockDim(BN / TN, BM / TM);
  dim3 gridDim((N + BN - 1) / BN, (M + BM - 1) / BM);
  mySgemmV3<<<gridDim, blockDim>>>(d_a, d_b, d_c, M, N, K);
}
