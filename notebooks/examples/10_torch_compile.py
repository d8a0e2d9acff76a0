"""Multiply in a PyTorch model: with gradients, and compiled as one graph. This needs a GPU and PyTorch."""

import worklog

try:
    worklog.require_gpu()
except worklog.WorklogError as error:
    raise SystemExit(f"this example needs a GPU: {error}") from None

import torch


@torch.compile(fullgraph=True)
def layer(x, weights):
    return torch.relu(worklog.pytorch.sgemm(x, weights))


x, weights = (torch.rand(1024, 1024, device="cuda", requires_grad=True) for _ in range(2))
layer(x, weights).sum().backward()
(expected,) = torch.autograd.grad(torch.relu(x @ weights).sum(), weights)
print("largest difference from torch:", float((weights.grad - expected).abs().max()))
