// A textbook's tiles: Mds, Nds and Pvalue, with each phase guarded
#define TILE_WIDTH 16

__global__ void MatrixMulKernel(float* M, float* N, float* P, int j, int k, int l) {
  __shared__ float Mds[TILE_WIDTH][TILE_WIDTH];
  __shared__ float Nds[TILE_WIDTH][TILE_WIDTH];
  int bx = blockIdx.x; int by = blockIdx.y;
  int tx = threadIdx.x; int ty = threadIdx.y;
  int Row = by * TILE_WIDTH + ty;
  int Col = bx * TILE_WIDTH + tx;
  float Pvalue = 0;
  for (int ph = 0; ph < ceilf(k / (float)TILE_WIDTH); ++ph) {
    if ((Row < j) && (ph * TILE_WIDTH + tx) < k)
      Mds[ty][tx] = M[Row * k + ph * TILE_WIDTH + tx];
    else
      Mds[ty][tx] = 0.0f;
    if ((ph * TILE_WIDTH + ty) < k && Col < l)
      Nds[ty][tx] = N[(ph * TILE_WIDTH + ty) * l + Col];
    else
      Nds[ty][tx] = 0.0f;
    __syncthreads();
    for (int i = 0; i < TILE_WIDTH; ++i) Pvalue += Mds[ty][i] * Nds[i][tx];
    __syncthreads();
  }
  if ((Row < j) && (Col < l)) P[Row * l + Col] = Pvalue;
}

void matrixMul(float* M_d, float* N_d, float* P_d, int j, int k, int l) {
  dim3 dimBlock(TILE_WIDTH, TILE_WIDTH, 1);
  dim3 dimGrid((l + TILE_WIDTH - 1) / TILE_WIDTH, (j + TILE_WIDTH - 1) / TILE_WIDTH, 1);
  MatrixMulKernel<<<dimGrid, dimBlock>>>(M_d, N_d, P_d, j, k, l);
}
