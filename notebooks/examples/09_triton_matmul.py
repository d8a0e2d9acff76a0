"""Matmul in Triton: `worklog bench 09_triton_matmul.py` measures it, with a GPU, PyTorch and Triton."""

import torch
import triton
import triton.language as tl

import worklog


@triton.jit
def tile_matmul(a, b, c, N, TILE: tl.constexpr, DEPTH: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(0, N, DEPTH):
        at = k + tl.arange(0, DEPTH)
        total = tl.dot(
            tl.load(a + rows * N + at[None, :]), tl.load(b + at[:, None] * N + columns), total
        )
    tl.store(c + rows * N + columns, total.to(tl.bfloat16))


@worklog.bench("N[pow2]=8:12")
def triton_matmul(state):
    a, b, c = (torch.rand(state.N, state.N, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    state.flops(2 * state.N**3)
    return lambda: tile_matmul[(state.N // 128, state.N // 128)](
        a, b, c, state.N, TILE=128, DEPTH=64, num_warps=8
    )
