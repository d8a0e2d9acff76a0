"""Attention's products as batches: `worklog bench 11_attention.py --filter sgemm --against bmm` times 24 shapes."""

import worklog

AXES = ("product[str]=QK,PV", "heads=16,128", "length=128,512,2048", "size=64,128")


def batches(state):
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    Q, K, V = (torch.rand(state.heads, state.length, state.size, device="cuda") for _ in range(3))
    state.flops(2 * state.heads * state.length**2 * state.size)
    if state.product == "QK":
        return Q, K.transpose(1, 2)
    return torch.rand(state.heads, state.length, state.length, device="cuda"), V


@worklog.bench(*AXES)
def sgemm(state):
    A, B = batches(state)
    return lambda: worklog.sgemm(A, B)


@worklog.bench(*AXES)
def bmm(state):
    A, B = batches(state)
    return lambda: A.bmm(B)
