"""The arrays that sgemm takes: where they are, and in which order their elements lie."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

import numpy as np

from worklog.errors import BadSetting
from worklog.problem import FLOAT_BYTES

MAX_SIZE = 2**31 - 1  # the kernels' parameters are int
FLOAT32 = np.dtype(np.float32)

# An array without its address: "numpy", "cupy" or "torch"; the number of its GPU, None for the
# host; its sizes; its strides, in elements for PyTorch and in bytes for the other libraries.
Layout = tuple[str, int | None, tuple[int, ...], tuple[int, ...]]


@lru_cache(maxsize=64)
def library_of(kind: type) -> str:
    """Return the library of an array's type, "" for types of other objects."""
    library = kind.__module__.partition(".")[0]
    is_array = library in ("numpy", "cupy", "torch") and hasattr(kind, "dtype")
    return library if is_array and hasattr(kind, "T") else ""


def read(name: str, array: Any) -> tuple[int, Layout]:
    """Return the address of a float32 array's first element, and the array's layout.

    Raises BadSetting for anything else.
    """
    library = library_of(array.__class__)
    if not library:
        raise BadSetting(
            f"sgemm: {name} is {type(array).__name__}: give a NumPy or CuPy array or a PyTorch "
            "tensor"
        )
    torch = sys.modules["torch"] if library == "torch" else None
    if array.dtype != (torch.float32 if torch else FLOAT32):
        dtype = str(array.dtype).removeprefix("torch.")
        raise BadSetting(
            f"sgemm: {name} is {dtype}, and the kernels compute in float32: convert it"
        )
    if library == "numpy":
        return array.ctypes.data, (library, None, array.shape, array.strides)
    if torch is None:
        return array.data.ptr, (library, array.device.id, array.shape, array.strides)
    if not array.is_cuda:
        raise BadSetting(
            f"sgemm: {name} is a tensor on the {array.device}: move it to a GPU with .cuda()"
        )
    if array.requires_grad and torch.is_grad_enabled():
        raise BadSetting(
            f"sgemm: {name} requires a gradient, and the kernels have none: use "
            "worklog.pytorch.sgemm, or torch.no_grad()"
        )
    return array.data_ptr(), (library, array.get_device(), array.shape, array.stride())


def orders(name: str, layout: Layout) -> tuple[bool, bool]:
    """Return whether a matrix is row-major, and whether it is column-major.

    Raises BadSetting if the array isn't a matrix, or has gaps.
    """
    library, _, shape, strides = layout
    if len(shape) != 2:
        raise BadSetting(f"sgemm: {name} has {len(shape)} dimensions: give a matrix")
    rows, columns = shape
    row_stride, column_stride = strides
    if max(rows, columns) > MAX_SIZE:
        raise BadSetting(
            f"sgemm: {name} is {rows} x {columns}: kernels take sizes up to {MAX_SIZE}"
        )
    unit = 1 if library == "torch" else FLOAT_BYTES
    if not (rows and columns):
        return True, True
    # The stride of a dimension of size 1 is arbitrary.
    steps_by_unit = columns == 1 or column_stride == unit
    by_rows = steps_by_unit and (rows == 1 or row_stride == columns * unit)
    steps_by_unit = rows == 1 or row_stride == unit
    by_columns = steps_by_unit and (columns == 1 or column_stride == rows * unit)
    if not (by_rows or by_columns):
        advice = "multiply into a new matrix and copy that: C[...] = worklog.sgemm(A, B)"
        if name != "C" and library == "torch":
            advice = f"give {name}.contiguous()"
        elif name != "C":
            advice = f"give {library}.ascontiguousarray({name})"
        raise BadSetting(
            f"sgemm: {name} has gaps, as a view of a larger one, and kernels take none: {advice}"
        )
    return by_rows, by_columns
