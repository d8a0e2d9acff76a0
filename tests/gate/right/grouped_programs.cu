// Programs in groups of rows of tiles, with masks, as block languages write them
// domain: any
constexpr int BLOCK_M = 32, BLOCK_N = 32, BLOCK_K = 16, GROUP_M = 3;

__host__ __device__ constexpr int cdiv(int a, int b) { return (a + b - 1) / b; }

__global__ void __launch_bounds__(128) matmul_kernel(
    const float* a_ptr, const float* b_ptr, float* c_ptr, int M, int N, int K) {
  const int pid = blockIdx.x;
  const int num_pid_m = cdiv(M, BLOCK_M), num_pid_n = cdiv(N, BLOCK_N);
  const int num_pid_in_group = GROUP_M * num_pid_n;
  const int group_id = pid / num_pid_in_group;
  const int first_pid_m = group_id * GROUP_M;
  const int group_size_m = min(num_pid_m - first_pid_m, GROUP_M);
  const int pid_m = first_pid_m + (pid % num_pid_in_group) % group_size_m;
  const int pid_n = (pid % num_pid_in_group) / group_size_m;
  __shared__ float a[BLOCK_M][BLOCK_K], b[BLOCK_K][BLOCK_N];
  const int offs_n = threadIdx.x % BLOCK_N, offs_m = threadIdx.x / BLOCK_N;
  float accumulator[BLOCK_M / 4] = {};
  for (int k = 0; k < cdiv(K, BLOCK_K); ++k) {
    for (int i = threadIdx.x; i < BLOCK_M * BLOCK_K; i += 128) {
      const int m = pid_m * BLOCK_M + i / BLOCK_K, kk = k * BLOCK_K + i % BLOCK_K;
      const bool mask = m < M && kk < K;
      a[i / BLOCK_K][i % BLOCK_K] = mask ? a_ptr[m * K + kk] : 0.0f;
    }
    for (int i = threadIdx.x; i < BLOCK_K * BLOCK_N; i += 128) {
      const int kk = k * BLOCK_K + i / BLOCK_N, n = pid_n * BLOCK_N + i % BLOCK_N;
      const bool mask = kk < K && n < N;
      b[i / BLOCK_N][i % BLOCK_N] = mask ? b_ptr[kk * N + n] : 0.0f;
    }
    __syncthreads();
    for (int kk = 0; kk < BLOCK_K; ++kk)
      for (int i = 0; i < BLOCK_M / 4; ++i) accumulator[i] += a[offs_m + 4 * i][kk] * b[kk][offs_n];
    __syncthreads();
  }
  for (int i = 0; i < BLOCK_M / 4; ++i) {
    const int m = pid_m * BLOCK_M + offs_m + 4 * i, n = pid_n * BLOCK_N + offs_n;
    if (m < M && n < N) c_ptr[m * N + n] = accumulator[i];
  }
}

void matmul(const float* a, const float* b, float* c, int M, int N, int K) {
  matmul_kernel<<<cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N), 128>>>(a, b, c, M, N, K);
}
