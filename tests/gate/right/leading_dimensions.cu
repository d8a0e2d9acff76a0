// Rows with leading dimensions, in a library's order of parameters
// domain: any
template <typename T, size_t BLOCK_X, size_t BLOCK_Y>
__global__ void gemm_v01(size_t m, size_t n, size_t k, T alpha, T const* A, size_t lda, T const* B,
                         size_t ldb, T beta, T* C, size_t ldc) {
  size_t const C_col_idx{blockIdx.x * BLOCK_X + threadIdx.x};
  size_t const C_row_idx{blockIdx.y * BLOCK_Y + threadIdx.y};
  if (C_row_idx < m && C_col_idx < n) {
    T sum{static_cast<T>(0)};
    for (size_t k_idx{0U}; k_idx < k; ++k_idx) {
      sum += A[C_row_idx * lda + k_idx] * B[k_idx * ldb + C_col_idx];
    }
    T const old{beta == static_cast<T>(0) ? static_cast<T>(0) : C[C_row_idx * ldc + C_col_idx]};
    C[C_row_idx * ldc + C_col_idx] = alpha * sum + beta * old;
  }
}

template <typename T>
void launch_gemm_kernel_v01(size_t m, size_t n, size_t k, T const* alpha, T const* A, size_t lda,
                            T const* B, size_t ldb, T const* beta, T* C, size_t ldc) {
  dim3 const block_dim{32U, 8U, 1U};
  dim3 const grid_dim{(static_cast<unsigned int>(n) + block_dim.x - 1U) / block_dim.x,
                      (static_cast<unsigned int>(m) + block_dim.y - 1U) / block_dim.y, 1U};
  gemm_v01<T, 32U, 8U><<<grid_dim, block_dim>>>(m, n, k, *alpha, A, lda, B, ldb, *beta, C, ldc);
}

template void launch_gemm_kernel_v01<float>(size_t, size_t, size_t, float const*, float const*,
                                            size_t, float const*, size_t, float const*, float*,
                                            size_t);
