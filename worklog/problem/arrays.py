"""Arrays of NumPy, CuPy and PyTorch, as a problem's cases have them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["dtype_of", "each", "excess", "is_array", "raw", "rebuilt", "values_of"]


def each(values: Any) -> tuple[Any, ...]:
    """Return a tuple or a list as a tuple, and any other value as a tuple of one."""
    return tuple(values) if isinstance(values, tuple | list) else (values,)


def is_array(value: Any) -> bool:
    """Return whether a value is an array of NumPy or CuPy, or a tensor of PyTorch."""
    return all(hasattr(value, name) for name in ("dtype", "shape", "nbytes"))


def dtype_of(value: Any) -> str:
    """Return the name of the type of an array's elements, such as "float32"."""
    return str(value.dtype).removeprefix("torch.")


def raw(value: Any) -> bytes:
    """Return the elements of an array in row-major order, as bytes of the host."""
    if hasattr(value, "detach"):  # a tensor of PyTorch, since NumPy has no bfloat16
        flat = value.detach().contiguous().cpu().reshape(-1)
        return bytes(flat.view(sys.modules["torch"].uint8).numpy().data) if flat.numel() else b""
    return _on_host(value).tobytes()


def rebuilt(model: Any, data: bytes) -> Any:
    """Return an array with a model's library, shape and device, from its bytes."""
    if hasattr(model, "detach"):
        torch = sys.modules["torch"]
        flat = torch.empty(0, dtype=model.dtype)
        if data:
            flat = torch.frombuffer(bytearray(data), dtype=model.dtype)
        return flat.reshape(model.shape).to(model.device)
    host = np.frombuffer(data, str(model.dtype)).reshape(model.shape)
    return type(model)(host) if hasattr(model, "get") else host


def values_of(value: Any) -> NDArray[np.float64]:
    """Return the elements of an array in float64, as a NumPy array of the same shape."""
    if hasattr(value, "detach"):
        value = value.detach().double().cpu().numpy()
    return _on_host(value).astype(np.float64)


def _on_host(value: Any) -> NDArray[Any]:
    """Return an array of NumPy or CuPy as an array of NumPy."""
    return np.asarray(value.get() if hasattr(value, "get") else value)


def excess(expected: Any, actual: Any, tolerance: tuple[float, float]) -> NDArray[np.float64]:
    """Return the error of each element in units of the tolerance.

    It's at most 1 if the element is right, and infinite for NaN.

    tolerance: relative and absolute
    """
    right = values_of(expected)
    values = values_of(actual)
    (relative, absolute) = tolerance
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        excess = np.abs(values - right) / (absolute + relative * np.abs(right))
    excess[~np.isfinite(excess) | ~np.isfinite(right)] = np.inf
    excess[(values == right) | (np.isnan(values) & np.isnan(right))] = 0.0
    return excess
