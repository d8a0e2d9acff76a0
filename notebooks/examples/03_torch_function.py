"""Time a PyTorch function with the harness of the ladder. This needs a GPU and PyTorch."""

import worklog

try:
    worklog.require_gpu()
except worklog.WorklogError as error:
    raise SystemExit(f"this example needs a GPU: {error}") from None

import torch

A, B = (torch.rand(4096, 4096, device="cuda") for _ in range(2))
print(worklog.time(torch.mm, A, B, flops=worklog.Shape.of(4096).flops))
