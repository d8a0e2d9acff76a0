// A grid-stride loop over the elements of C, with a fixed grid
// domain: any
__global__ void sgemm_grid_stride(
    const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, size_t M,
    size_t N, size_t K) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < M * N; i += blockDim.x * gridDim.x) {
    const size_t row = i / N;
    const size_t col = i - row * N;
    float sum = 0.f;
    for (size_t k = 0; k < K; k++) sum = __fmaf_rn(A[row * K + k], B[k * N + col], sum);
    C[i] = sum;
  }
}

void solve(const float* A, const float* B, float* C, size_t M, size_t N, size_t K) {
  sgemm_grid_stride<<<48, 128>>>(A, B, C, M, N, K);
}
