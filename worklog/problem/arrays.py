"""Arrays of NumPy, CuPy and PyTorch as bytes and as numbers of the host, and how far one is from another."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray


def each(values: Any) -> tuple[Any, ...]:
    """Several values as a tuple, or the only one."""
    return tuple(values) if isinstance(values, tuple | list) else (values,)


def is_array(value: Any) -> bool:
    """Whether it is an array of NumPy or CuPy, or a tensor of PyTorch."""
    return all(hasattr(value, name) for name in ("dtype", "shape", "nbytes"))


def nbytes(value: Any) -> int:
    """Bytes of all elements."""
    return int(value.nbytes)


def dtype_of(value: Any) -> str:
    """The name of an array's elements, such as "float32"."""
    return str(value.dtype).removeprefix("torch.")


def raw(value: Any) -> bytes:
    """The elements of an array in row-major order, as bytes of the host."""
    if hasattr(value, "detach"):  # PyTorch's, whose bfloat16 NumPy doesn't have
        flat = value.detach().contiguous().cpu().reshape(-1)
        return bytes(flat.view(sys.modules["torch"].uint8).numpy().data) if flat.numel() else b""
    return bytes((value.get() if hasattr(value, "get") else np.asarray(value)).tobytes())


def rebuilt(like: Any, data: bytes) -> Any:
    """An array of the same kind, shape and place from its bytes."""
    if hasattr(like, "detach"):
        torch = sys.modules["torch"]
        flat = torch.frombuffer(bytearray(data), dtype=like.dtype) if data else torch.empty(0, dtype=like.dtype)
        return flat.reshape(like.shape).to(like.device)
    host = np.frombuffer(data, str(like.dtype)).reshape(like.shape)
    return type(like)(host) if hasattr(like, "get") else host


def values_of(value: Any) -> NDArray[np.float64]:
    """The elements in float64, as a NumPy array of the same shape."""
    if hasattr(value, "detach"):
        value = value.detach().double().cpu().numpy()
    host: NDArray[np.float64] = np.asarray(value.get() if hasattr(value, "get") else value).astype(np.float64)
    return host


def excess(expected: Any, actual: Any, tolerance: tuple[float, float]) -> NDArray[np.float64]:
    """Each element's error over what is tolerated, (relative, absolute): at most 1 where it is right. Infinite for NaN,
    and where only one of them is infinite.
    """
    right, values, (relative, absolute) = values_of(expected), values_of(actual), tolerance
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        excess = np.abs(values - right) / (absolute + relative * np.abs(right))
    excess[~np.isfinite(excess) | ~np.isfinite(right)] = np.inf
    excess[(values == right) | (np.isnan(values) & np.isnan(right))] = 0.0
    return excess
