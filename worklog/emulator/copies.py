"""Tensor maps, which say what a bulk copy moves.

A driver's encoding of tensor maps (CUtensorMap) is not public: here they have the emulator's own, and it understands
only those that tensor_map() describes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from worklog.emulator.findings import BadLaunch
from worklog.emulator.globalmem import Pointer
from worklog.emulator.ptx import Array

_MAGIC, _ENCODING = b"worklog ", struct.Struct("<8sQQ104x")
SIZE = _ENCODING.size  # bytes of a CUtensorMap
# Bits of a byte's address in shared memory that each swizzle xors with the bits three higher (as CUTLASS's Swizzle).
SWIZZLES = {0: 0, 32: 1 << 4, 64: 3 << 4, 128: 7 << 4}


@dataclass(frozen=True)
class TensorMap:
    """An argument of a kernel: a tensor in global memory, and the box of it that one copy moves. See tensor_map()."""

    pointer: Pointer
    layout: Layout

    def encoded(self, address: int) -> bytes:
        """The parameter's bytes for a tensor at this address."""
        if self.layout not in LAYOUTS:
            LAYOUTS.append(self.layout)
        return _ENCODING.pack(_MAGIC, address, LAYOUTS.index(self.layout))


class Layout(NamedTuple):
    """Of a tensor with up to five dimensions, the innermost first. strides: bytes, from dimension 1 on. item: bytes of
    an element. fill: whether elements outside of the tensor are NaN, not zero.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    item: int
    swizzle: int
    fill: bool

    @property
    def counts(self) -> tuple[int, ...]:
        """Elements of a box per dimension. CUDA Driver API, cuTensorMapEncodeTiled: ceil(box / step)."""
        return tuple(-(-size // step) for size, step in zip(self.box, self.steps, strict=True))


LAYOUTS: list[Layout] = []  # of this process's tensor maps, whose bytes give the number of one of these
RECORD = np.dtype([  # as in core.h
    *((name, "i4") for name in ("dimensions", "item", "swizzle", "nan")),
    *((name, "i8", 5) for name in ("shape", "strides", "counts", "steps")),
])  # fmt: skip


def records() -> Array:
    """The tensor maps of this process, for the core."""
    out = np.zeros(len(LAYOUTS), RECORD)
    for record, layout in zip(out, LAYOUTS, strict=True):
        count = len(layout.shape)
        record["dimensions"], record["item"], record["swizzle"] = count, layout.item, layout.swizzle
        record["nan"], record["shape"], record["counts"], record["steps"] = layout.fill, 1, 1, 1
        record["shape"][:count], record["counts"][:count] = layout.shape, layout.counts
        record["steps"][:count], record["strides"][:count] = layout.steps, (layout.item, *layout.strides)
    return out


def tensor_map(
    data: Array | Pointer,
    box: Sequence[int],
    *,
    shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    item: int = 4,
    swizzle: int = 0,
    nan: bool = False,
) -> TensorMap:
    """An argument for a parameter `const __grid_constant__ CUtensorMap`, as cuTensorMapEncodeTiled would make it.

    data: a contiguous array, or a Pointer to one, whose elements have `item` bytes. All sequences begin with the
    innermost dimension. box: elements per copy, up to 256 per dimension. shape: elements of the tensor (default: the
    array's); strides: bytes from one element to the next in dimensions 1 and up (default: of a contiguous tensor).
    steps: element strides. swizzle: 0, 32, 64 or 128, which the innermost dimension of the box must have in bytes.
    nan: elements outside of the tensor become NaN (of 2, 4 or 8 bytes), not zero. Interleaved layouts and im2col are
    not emulated. Raises BadLaunch where cuTensorMapEncodeTiled gives an error.
    """
    pointer = data if isinstance(data, Pointer) else Pointer(data, data.nbytes)
    if isinstance(data, np.ndarray):
        item, shape = data.itemsize, shape or data.shape[::-1]
    if shape is None:
        raise BadLaunch("a tensor map of a Pointer needs a shape")
    sizes = tuple(map(int, shape))
    pitches = [item * int(np.prod(sizes[: k + 1], dtype=np.int64)) for k in range(len(sizes) - 1)]
    layout = Layout(sizes, tuple(strides or pitches), tuple(box), tuple(steps or (1,) * len(sizes)), item, swizzle, nan)
    inner = layout.box[0] * item if layout.box else 0
    rules = {
        "a tensor has 1 to 5 dimensions": 1 <= len(sizes) <= 5,
        "box, steps and strides must fit the shape": len(sizes) == len(layout.box) == len(layout.steps)
        and len(layout.strides) == len(sizes) - 1,
        "a box has 1 to 256 elements per dimension": all(1 <= size <= 256 for size in layout.box),
        "a tensor has 1 to 2**32 elements per dimension": all(1 <= size <= 2**32 for size in sizes),
        "steps are 1 to 8, and 1 in dimension 0": all(1 <= n <= 8 for n in layout.steps) and layout.steps[:1] == (1,),
        "strides are multiples of 16 below 2**40": all(n % 16 == 0 and 0 < n < 2**40 for n in layout.strides),
        "elements have 1, 2, 4 or 8 bytes, and 2, 4 or 8 with nan": item in (2, 4, 8) or (item == 1 and not nan),
        "the innermost dimension of a box is a multiple of 16 bytes": inner % 16 == 0,
        "swizzle is 0, or 32, 64 or 128 and as many bytes as a box's innermost dimension": swizzle == 0
        or (swizzle in SWIZZLES and inner == swizzle),
        "the tensor must start at a multiple of 16 bytes": pointer.skew % 16 == 0,
    }
    for rule, holds in rules.items():
        if not holds:
            raise BadLaunch(f"invalid tensor map: {rule}")
    return TensorMap(pointer, layout)
