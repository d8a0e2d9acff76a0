"""The driver's tensor maps: a map's layout and address become the bytes that a kernel takes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.errors import LaunchFailed
from worklog.kernel.nvrtc import nvidia_library
from worklog.kernel.tensor_map import (
    DRIVER_TYPES,
    PROMOTIONS,
    SWIZZLES,
    BoundMap,
    MapLayout,
)

BYTES = 128
ALIGNMENT = 64
STRUCT = np.dtype([("opaque", "u8", (BYTES // 8,))])  # which CuPy passes by value
NO_INTERLEAVE = 0


class DriverMaps:
    """The tensor maps of a device. A map depends on its layout and its address only.

    upload: copies bytes to the GPU's memory, also while a graph is recorded
    """

    def __init__(self, upload: Callable[[NDArray[np.uint8]], Any]) -> None:
        self._upload = upload
        self._encoded: dict[tuple[int, MapLayout], Any] = {}
        self._in_memory: dict[tuple[int, MapLayout], Any] = {}

    def argument(self, bound: BoundMap) -> Any:
        """Return the argument of a kernel: a struct, or an array with it.

        Raises LaunchFailed.
        """
        key = (int(bound.buffer.data.ptr), bound.layout)
        if key not in self._encoded:
            self._encoded[key] = encode(bound.layout, key[0], nvidia_library("cuda"))
        if not bound.is_pointer:
            return self._encoded[key]
        if key not in self._in_memory:
            data = np.frombuffer(self._encoded[key].tobytes(), np.uint8)
            self._in_memory[key] = self._upload(data)
        return self._in_memory[key]


def encode(layout: MapLayout, address: int, driver: Any) -> np.void:
    """Return what cuTensorMapEncodeTiled (cuda.h) writes. Raises LaunchFailed.

    driver: the library with this function
    """
    memory = np.zeros(BYTES + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    rank = len(layout.sizes)
    status = driver.cuTensorMapEncodeTiled(
        ctypes.c_void_p(memory.ctypes.data + start),
        ctypes.c_int(DRIVER_TYPES[layout.format.name]),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * rank)(*layout.sizes),
        (ctypes.c_uint64 * rank)(*layout.strides),
        (ctypes.c_uint32 * rank)(*layout.box),
        (ctypes.c_uint32 * rank)(*layout.steps),
        ctypes.c_int(NO_INTERLEAVE),
        ctypes.c_int(SWIZZLES.index(layout.swizzle)),
        ctypes.c_int(PROMOTIONS.index(layout.promotion)),
        ctypes.c_int(layout.has_nan),
    )
    if status:
        raise LaunchFailed(
            f"cuTensorMapEncodeTiled: error {status} for a box of {layout.box} in a tensor of "
            f"{layout.sizes}, innermost first, with strides of {layout.strides} bytes at "
            f"{address:#x}"
        )
    struct: np.void = memory[start : start + BYTES].view(STRUCT)[0]
    return struct
