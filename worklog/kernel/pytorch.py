"""PyTorch's product as a host function: `worklog run RUNG --against torch`.

It is gated like a user's. PyTorch is imported in the child process that measures.
"""

from __future__ import annotations

from typing import Any

ARRAYS = "torch"


def torch(alpha: float, a: Any, b: Any, beta: float, c: Any) -> None:
    """PyTorch's product with its own choice of library, without TF32."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    if c.dim() == 3:
        torch.baddbmm(c, a, b, beta=beta, alpha=alpha, out=c)
    else:
        torch.addmm(c, a, b, beta=beta, alpha=alpha, out=c)
