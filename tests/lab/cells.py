"""Cells of CUDA C++ as a person types them: right, wrong, racy, and one that takes long."""

from __future__ import annotations

SIGNATURE = "int M, int N, int K, float alpha, const float* A, const float* B, float beta, float* C"
CELL = f"""\
%%rung mine
__global__ void plain({SIGNATURE}) {{
  const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || col >= N) return;
  float acc = 0.0f;
  for (int k = 0; k < K; ++k) acc += A[row * K + k] * B[k * N + col];
  C[row * N + col] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col];
}}
"""
WRONG = CELL.replace("col >= N", "col >= N - 1")
SLIP = CELL.replace("float acc = 0.0f;", "float acc = 0.0f")
SLOW = CELL.replace("for (int k = 0; k < K; ++k)", "for (int r = 0; r < 100000; ++r) for (int k = 0; k < K; ++k)")
RACY = f"""\
%%rung --block 8,8 --domain 'M % 8 == 0, N % 8 == 0, K % 8 == 0'
__global__ void racy({SIGNATURE}) {{
  __shared__ float As[8][8], Bs[8][8];
  const int y = threadIdx.y, x = threadIdx.x, row = blockIdx.y * 8 + y, col = blockIdx.x * 8 + x;
  float acc = 0.0f;
  for (int k0 = 0; k0 < K; k0 += 8) {{
    As[y][x] = A[row * K + k0 + x];
    Bs[y][x] = B[(k0 + y) * N + col];
    for (int k = 0; k < 8; ++k) acc += As[y][k] * Bs[k][x];
    __syncthreads();
  }}
  C[row * N + col] = beta == 0.0f ? alpha * acc : alpha * acc + beta * C[row * N + col];
}}
"""
