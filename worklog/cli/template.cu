// A kernel to start from: C = alpha * A * B + beta * C, row-major FP32, of any size.
// Check:    worklog check FILE             right or wrong, races; needs no GPU
// Look:     worklog inspect FILE           registers and memory requests by line; needs no GPU
// Time:     worklog run FILE shared        beside a rung of the ladder and cuBLAS, on a GPU
//
// The launch. worklog reads it here; --grid and --block replace it.
// grid: (N + 15) / 16, (M + 15) / 16   block: 16, 16
//
// One block computes a TILE x TILE tile of C, one thread one element. blockIdx.x walks the columns
// of C, blockIdx.y its rows.

constexpr int TILE = 16;

__global__ void sgemm(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                      float* C) {
  __shared__ float As[TILE][TILE], Bs[TILE][TILE];
  const int y = threadIdx.y, x = threadIdx.x;
  const int row = blockIdx.y * TILE + y, col = blockIdx.x * TILE + x;

  float acc = 0.0f;
  for (int k = 0; k < K; k += TILE) {
    // Outside of A and B: zeros, which add nothing.
    As[y][x] = row < M && k + x < K ? A[row * K + k + x] : 0.0f;
    Bs[y][x] = k + y < K && col < N ? B[(k + y) * N + col] : 0.0f;
    __syncthreads();  // the tiles are complete
    for (int i = 0; i < TILE; ++i) acc += As[y][i] * Bs[i][x];
    __syncthreads();  // no thread reads them any more
  }

  if (row >= M || col >= N) return;
  float& c = C[row * N + col];
  c = beta == 0.0f ? alpha * acc : alpha * acc + beta * c;  // with beta == 0, C is not read
}
