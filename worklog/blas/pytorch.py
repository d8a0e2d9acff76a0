"""`worklog.sgemm` as a PyTorch operator, with gradients and for `torch.compile`.

The first use of `worklog.pytorch` registers it, also as `torch.ops.worklog.sgemm`. It writes none
of its arguments and states the shape of its result, so that a compiled graph isn't broken around
it. Nothing else of this package imports PyTorch for it.
"""

from __future__ import annotations

from typing import Any

import torch

from worklog.blas import product
from worklog.errors import BadSetting

NAME = "worklog::sgemm"


@torch.library.custom_op(NAME, mutates_args=())
def sgemm(
    A: torch.Tensor,
    B: torch.Tensor,
    alpha: float = 1.0,
    mode: str = "fp32",
    max_error: float | None = None,
) -> torch.Tensor:
    """Compute alpha A B in float32 in a new tensor.

    The result is column-major if A and B are.

    A, B: tensors on one GPU, each row-major or column-major without gaps
    mode, max_error: as for worklog.sgemm, also in the gradients' products; a kernel can't be a mode

    The gradients are products by the same operator: alpha G B^T and alpha A^T G. Their factors have
    different orders, for which mode="split" takes best and warns. In a CUDA graph, call it once
    with the same shapes on the same stream before the capture.

    Raises BadSetting, NoGpu, OutOfMemory, LaunchFailed.
    """
    _require_product(A, B)
    result = _new(A, B)
    product.sgemm(A, B, result, alpha=alpha, mode=mode, max_error=max_error)  # type: ignore[arg-type]
    return result


@sgemm.register_fake
def _(
    A: torch.Tensor,
    B: torch.Tensor,
    alpha: float = 1.0,
    mode: str = "fp32",
    max_error: float | None = None,
) -> torch.Tensor:
    """Return a result without elements, for shapes and strides."""
    _require_product(A, B)
    return _new(A, B)


def _require_product(a: torch.Tensor, b: torch.Tensor) -> None:
    """Raise BadSetting for tensors whose product isn't defined here, before they have elements."""
    for name, tensor in (("A", a), ("B", b)):
        if tensor.dim() != 2:
            raise BadSetting(f"sgemm: {name} has {tensor.dim()} dimensions: give a matrix")
        if tensor.dtype != torch.float32:
            dtype = str(tensor.dtype).removeprefix("torch.")
            raise BadSetting(
                f"sgemm: {name} is {dtype}, and the kernels compute in float32: convert it"
            )
    if a.shape[1] != b.shape[0]:
        raise BadSetting(
            f"sgemm: A is {a.shape[0]} x {a.shape[1]} and B {b.shape[0]} x {b.shape[1]}: A needs "
            "as many columns as B has rows"
        )


def _new(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a new result, column-major if both factors are only that."""
    rows = a.shape[0]
    columns = b.shape[1]
    if _is_by_columns(a) and _is_by_columns(b):
        return a.new_empty((columns, rows)).T
    return a.new_empty((rows, columns))


def _is_by_columns(matrix: torch.Tensor) -> bool:
    """Return whether a matrix is column-major, and not also row-major."""
    return not matrix.is_contiguous() and matrix.T.is_contiguous()


def _without_gaps(matrix: torch.Tensor) -> torch.Tensor:
    """Return a matrix that kernels take: a gradient may be one number for all elements."""
    return matrix if _is_by_columns(matrix) else matrix.contiguous()


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    """Keep what the gradients need."""
    a, b, alpha, mode, max_error = inputs
    ctx.save_for_backward(a, b)
    ctx.options = (alpha, mode, max_error)


def _gradients(context: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    """Return the gradients of A and B; None for the other arguments, and where none is needed."""
    a, b = context.saved_tensors
    of_product = _without_gaps(gradient)
    needs_a, needs_b, *_ = context.needs_input_grad
    of_a = sgemm(of_product, b.T, *context.options) if needs_a else None
    of_b = sgemm(a.T, of_product, *context.options) if needs_b else None
    return of_a, of_b, None, None, None


sgemm.register_autograd(_gradients, setup_context=_keep)
