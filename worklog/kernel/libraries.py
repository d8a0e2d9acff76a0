"""Products of libraries as host functions, to compare kernels with: `worklog run RUNG --against torch,cublaslt`.

Each is gated like a user's. Libraries are imported in the child process that measures.
"""

from __future__ import annotations

from typing import Any

from worklog.kernel.kernel import Kernel

ARRAYS = "torch"
NAMES = ("torch", "cublaslt")


def libraries() -> dict[str, Kernel]:
    """A record of each library's product, by name."""
    return {name: Kernel.from_function(f"{__name__}:{name}") for name in NAMES}


def torch(alpha: float, a: Any, b: Any, beta: float, c: Any) -> None:
    """PyTorch's product with its own choice of library, without TF32."""
    _product("default", alpha, a, b, beta, c)


def cublaslt(alpha: float, a: Any, b: Any, beta: float, c: Any) -> None:
    """The product by cuBLASLt, whose heuristics choose the kernel, as PyTorch calls it, without TF32."""
    _product("cublaslt", alpha, a, b, beta, c)


def _product(library: str, alpha: float, a: Any, b: Any, beta: float, c: Any) -> None:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.preferred_blas_library(library)
    torch.addmm(c, a, b, beta=beta, alpha=alpha, out=c)
