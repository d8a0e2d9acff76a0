"""Two declared benchmarks. `worklog bench 06_benchmarks.py` measures them; with `--list` it needs no GPU."""

import worklog


@worklog.bench("N[pow2]=8:12", "dtype[str]=float32,bfloat16")
def matmul(state):
    import torch

    a, b = (
        torch.rand(state.N, state.N, device="cuda", dtype=getattr(torch, state.dtype))
        for _ in range(2)
    )
    state.flops(2 * state.N**3)
    state.run(torch.mm, a, b)


@worklog.bench("rows=4096", "columns[pow2]=8:14")
def softmax(state):
    import torch

    x = torch.randn(state.rows, state.columns, device="cuda")
    state.elements(x.numel())
    state.reads(x.nbytes)
    state.writes(x.nbytes)
    return lambda: torch.softmax(x, 1)
