"""FP32 products by Triton: three TF32, and six BF16. `worklog run 10_triton_fp32.py:triton_tf32x3 --class tf32`."""

import triton
import triton.language as tl

ARRAYS = "torch"  # and --domain 'M % 128 == 0, N % 128 == 0, K % 32 == 0'


@triton.jit
def tiles(A, B, C, N, K, alpha, beta, READ_C: tl.constexpr, PRECISION: tl.constexpr):
    side, depth, total = tl.arange(0, 128), tl.arange(0, 32), tl.zeros((128, 128), tl.float32)
    row, column = tl.program_id(1) * 128 + side[:, None], tl.program_id(0) * 128 + side[None, :]
    for k in range(0, K, 32):
        left, right = tl.load(A + row * K + k + depth[None, :]), tl.load(B + (k + depth[:, None]) * N + column)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    tl.store(C + row * N + column, alpha * total + (beta * tl.load(C + row * N + column) if READ_C else 0.0))


def triton_tf32x3(alpha, A, B, beta, C, precision="tf32x3"):
    at, sizes = (C.shape[1] // 128, C.shape[0] // 128), B.shape[::-1]
    tiles[at](A, B, C, *sizes, alpha, beta, beta != 0, precision, num_warps=8, num_stages=3)


def triton_bf16x6(alpha, A, B, beta, C):
    triton_tf32x3(alpha, A, B, beta, C, "bf16x6")
