// A union: the tiles' memory is the staging area of C at the end
// grid: (N + 31) / 32, (M + 31) / 32
// block: 256
// domain: any
union Storage {
  struct {
    float a[32][17], b[16][32];
  } mainloop;
  float c[32][33];
};

__global__ void gemm_staged(int M, int N, int K, float alpha, const float* A, const float* B,
                            float beta, float* C) {
  __shared__ Storage s;
  const int t = threadIdx.x, row0 = blockIdx.y * 32, col0 = blockIdx.x * 32;
  const int ty = t / 16 * 2, tx = t % 16 * 2;
  float acc[2][2] = {};
  for (int k0 = 0; k0 < K; k0 += 16) {
    for (int i = t; i < 512; i += 256) {
      const int ra = i / 16, ca = i % 16, rb = i / 32, cb = i % 32;
      s.mainloop.a[ra][ca] = row0 + ra < M && k0 + ca < K ? A[(row0 + ra) * K + k0 + ca] : 0.0f;
      s.mainloop.b[rb][cb] = k0 + rb < K && col0 + cb < N ? B[(k0 + rb) * N + col0 + cb] : 0.0f;
    }
    __syncthreads();
    for (int k = 0; k < 16; ++k)
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) acc[i][j] += s.mainloop.a[ty + i][k] * s.mainloop.b[k][tx + j];
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) s.c[ty + i / 2][tx + i % 2] = acc[i / 2][i % 2];
  __syncthreads();
  for (int i = t; i < 1024; i += 256) {  // neighbours write neighbours
    const int row = row0 + i / 32, col = col0 + i % 32;
    if (row >= M || col >= N) continue;
    float v = alpha * s.c[i / 32][i % 32];
    if (beta != 0.0f) v += beta * C[row * N + col];
    C[row * N + col] = v;
  }
}
