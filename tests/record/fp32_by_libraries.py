"""Record FP32 products by Triton and cuBLAS through tensor cores.

The figure of error and speed shows them beside the rungs.

They are host functions: `worklog run tests/record/fp32_by_libraries.py:triton_tf32x3 --class
fp32-emulated --domain "M % 128 == 0, N % 128 == 0, K % 32 == 0"`, triton_bf16x6 likewise, and
cublas_tf32 with --class tf32. They need PyTorch and Triton.
"""

import torch
import triton
import triton.language as tl

ARRAYS = "torch"


@triton.jit
def tiles(
    a, b, c, N, K, alpha, beta, TILE: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr
):
    rows = tl.program_id(1) * TILE + tl.arange(0, TILE)[:, None]
    columns = tl.program_id(0) * TILE + tl.arange(0, TILE)[None, :]
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(0, K, DEPTH):
        at = k + tl.arange(0, DEPTH)
        of_a = tl.load(a + rows * K + at[None, :])
        of_b = tl.load(b + at[:, None] * N + columns)
        total = tl.dot(of_a, of_b, total, input_precision=PRECISION)
    total *= alpha
    if beta != 0:
        total += beta * tl.load(c + rows * N + columns)
    tl.store(c + rows * N + columns, total)


def _multiply(precision, alpha, a, b, beta, c):
    (m, n) = c.shape
    k = a.shape[1]
    tiles[(n // 128, m // 128)](
        a,
        b,
        c,
        n,
        k,
        alpha,
        beta,
        TILE=128,
        DEPTH=32,
        PRECISION=precision,
        num_warps=8,
        num_stages=3,
    )


def triton_tf32x3(alpha, a, b, beta, c):
    _multiply("tf32x3", alpha, a, b, beta, c)


def triton_bf16x6(alpha, a, b, beta, c):
    _multiply("bf16x6", alpha, a, b, beta, c)


def cublas_tf32(alpha, a, b, beta, c):
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.addmm(c, a, b, beta=beta, alpha=alpha, out=c)
