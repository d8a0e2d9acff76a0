"""Correct kernels in common styles: right results and no findings."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.helpers import integers
from worklog.emulator import launch, load
from worklog.kernel.nvrtc import compile_cuda

HEAD = 'extern "C" __global__ void k(int M, int N, int K, const float* A, const float* B, float* C) {\n'
PLACE = "  const int y = threadIdx.y, x = threadIdx.x, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;\n"
TILED = """  __shared__ float As[16][16], Bs[16][16];
  float acc = 0;
  for (int k0 = 0; k0 < K; k0 += 16) {
    As[y][x] = A[row * K + k0 + x];
    Bs[y][x] = B[(k0 + y) * N + col];
    __syncthreads();
    for (int k = 0; k < 16; ++k) acc += As[y][k] * Bs[k][x];
    __syncthreads();
  }
  C[row * N + col] = acc;
}
"""
TRANSPOSED = TILED.replace("As[y][x] =", "As[x][y] =").replace("As[y][k] *", "As[k][y] *")
KERNELS = {
    "tiles": HEAD + PLACE + TILED,
    "transposed and padded": HEAD + PLACE + TRANSPOSED.replace("As[16][16]", "As[16][17]"),
    "transposed and swizzled": HEAD
    + PLACE
    + TRANSPOSED.replace("[x][y]", "[x][y ^ x]").replace("[k][y]", "[k][y ^ k]"),
    "tiles in dynamic shared memory": HEAD
    + PLACE
    + TILED.replace(
        "__shared__ float As[16][16], Bs[16][16];",
        "extern __shared__ float tiles[];\n  float (*As)[16] = (float(*)[16])tiles, (*Bs)[16] = As + 16;",
    ),
    "64-bit indices": HEAD + PLACE.replace("int y", "long long y") + TILED,
    "two buffers": HEAD
    + PLACE
    + """  __shared__ float As[2][16][16], Bs[2][16][16];
  float acc = 0, a = 0, b = 0;
  int now = 0;
  As[0][y][x] = A[row * K + x];
  Bs[0][y][x] = B[y * N + col];
  __syncthreads();
  for (int k0 = 16; k0 <= K; k0 += 16) {
    if (k0 < K) {
      a = A[row * K + k0 + x];
      b = B[(k0 + y) * N + col];
    }
    for (int k = 0; k < 16; ++k) acc += As[now][y][k] * Bs[now][k][x];
    now ^= 1;
    if (k0 < K) {
      As[now][y][x] = a;
      Bs[now][y][x] = b;
    }
    __syncthreads();
  }
  C[row * N + col] = acc;
}
""",
    "halves of K added with atomics": HEAD
    + PLACE
    + """  for (int half = 0; half < 2; ++half) {
    float acc = 0;
    for (int k = half * K / 2; k < (half + 1) * K / 2; ++k) acc += A[row * K + k] * B[k * N + col];
    atomicAdd(&C[row * N + col], acc);
  }
}
""",
    "read-only loads": HEAD.replace(
        "const float* A, const float* B", "const float* __restrict__ A, const float* __restrict__ B"
    )
    + PLACE
    + """  float acc = 0;
#pragma unroll 8
  for (int k = 0; k < K; ++k) acc = fmaf(__ldg(A + row * K + k), __ldcg(B + k * N + col), acc);
  __stcs(C + row * N + col, acc);
}
""",
    "a warp an element": HEAD
    + """  const int t = threadIdx.y * 16 + threadIdx.x, lane = t % 32;
  for (int i = 0; i < 32; ++i) {
    const int element = t / 32 * 32 + i, row = blockIdx.y * 16 + element / 16, col = blockIdx.x * 16 + element % 16;
    float acc = 0;
    for (int k = lane; k < K; k += 32) acc += A[row * K + k] * B[k * N + col];
    for (int d = 16; d; d /= 2) acc += __shfl_xor_sync(0xffffffffu, acc, d);
    if (lane == 0) C[row * N + col] = acc;
  }
}
""",
}


@pytest.mark.parametrize(
    ("name", "arch"), [(n, a) for k, n in enumerate(KERNELS) for a in ("sm_90", ("sm_80", "sm_120")[k % 2])]
)
def test_a_right_kernel_is_right_and_clean(name: str, arch: str) -> None:
    out = compile_cuda(KERNELS[name], "k", arch=arch)
    kernel = load(out.ptx, out.symbol, out.shared_accesses)
    m, n, k = 32, 48, 96
    rng = np.random.default_rng(0)
    a, b, c = integers(rng, m, k), integers(rng, k, n), np.zeros((m, n), np.float32)
    dynamic = 2048 if "dynamic" in name else 0
    result = launch(kernel, (n // 16, m // 16), (16, 16), [m, n, k, a, b, c], shared_bytes=dynamic)
    np.testing.assert_array_equal(c, a @ b)
    assert result.findings == ()
    assert kernel.assembled
