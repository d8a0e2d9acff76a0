"""Softmax in Triton: `worklog bench 07_triton.py` measures it, with a GPU, PyTorch and Triton."""

import torch
import triton
import triton.language as tl

import worklog


@triton.jit
def rows_softmax(x, y, columns, BLOCK: tl.constexpr):
    at, row = tl.arange(0, BLOCK), tl.program_id(0) * columns
    values = tl.load(x + row + at, mask=at < columns, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + row + at, powers / tl.sum(powers, 0), mask=at < columns)


@worklog.bench("rows=4096", "columns[pow2]=8:14")
def triton_softmax(state):
    x = torch.randn(state.rows, state.columns, device="cuda")
    y = torch.empty_like(x)
    state.reads(x.nbytes)
    state.writes(x.nbytes)
    return lambda: rows_softmax[(state.rows,)](
        x, y, state.columns, BLOCK=triton.next_power_of_2(state.columns)
    )
