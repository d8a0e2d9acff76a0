"""Right kernels that aren't rungs, as users write them."""

from worklog.kernel import Kernel

GRID = "(N + 15) / 16, (M + 15) / 16"
SIGNATURE = "int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C"

# Tiles with guards, for any shape: the copy writes zeros past the end of a matrix.
GUARDED = f"""
__global__ void guarded({SIGNATURE}) {{
  __shared__ float As[16][16];
  __shared__ float Bs[16][16];
  const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  float acc = 0.0f;
  for (int t = 0; t < (K + 15) / 16; ++t) {{
    const int k_a = t * 16 + threadIdx.x, k_b = t * 16 + threadIdx.y;
    As[threadIdx.y][threadIdx.x] = row < M && k_a < K ? A[(size_t)row * K + k_a] : 0.0f;
    Bs[threadIdx.y][threadIdx.x] = k_b < K && col < N ? B[(size_t)k_b * N + col] : 0.0f;
    __syncthreads();
    for (int k = 0; k < 16; ++k) acc += As[threadIdx.y][k] * Bs[k][threadIdx.x];
    __syncthreads();
  }}
  if (row < M && col < N) {{
    float* c = &C[(size_t)row * N + col];
    *c = beta == 0.0f ? alpha * acc : alpha * acc + beta * *c;
  }}
}}
"""

# The inner loop stays a loop, and the buffers alternate.
ROLLED = f"""
__global__ void rolled({SIGNATURE}) {{
  __shared__ float As[2][16][16];
  __shared__ float Bs[2][16][16];
  const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  float acc = 0.0f;
  int buffer = 0;
  for (int k0 = 0; k0 < K; k0 += 16) {{
    As[buffer][threadIdx.y][threadIdx.x] = A[(size_t)row * K + k0 + threadIdx.x];
    Bs[buffer][threadIdx.y][threadIdx.x] = B[(size_t)(k0 + threadIdx.y) * N + col];
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < 16; ++k) acc += As[buffer][threadIdx.y][k] * Bs[buffer][k][threadIdx.x];
    buffer = 1 - buffer;
  }}
  float* c = &C[(size_t)row * N + col];
  *c = beta == 0.0f ? alpha * acc : alpha * acc + beta * *c;
}}
"""

# Indices of 32 bits, which overflow if a matrix has 2**31 elements.
NARROW = f"""
__global__ void narrow({SIGNATURE}) {{
  const int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
  if (row >= M || col >= N) return;
  float acc = 0.0f;
  for (int k = 0; k < K; ++k) acc += A[row * K + k] * B[k * N + col];
  C[row * N + col] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col];
}}
"""


def guarded() -> Kernel:
    """Return the kernel of tiles with guards."""
    return Kernel.from_source(GUARDED, grid=GRID, block="16, 16")


def rolled() -> Kernel:
    """Return the kernel with an inner loop and two buffers."""
    domain = "M % 16 == 0, N % 16 == 0, K % 16 == 0"
    return Kernel.from_source(ROLLED, grid="N / 16, M / 16", block="16, 16", domain=domain)


def narrow() -> Kernel:
    """Return the kernel with indices of 32 bits."""
    return Kernel.from_source(NARROW, grid=GRID, block="16, 16")
