"""The emulator against the GPU.

The same source on the same data gives the same results and verdicts.
"""

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.emulator.helpers import cuda
from tests.emulator.launches import KERNELS
from tests.emulator.test_tensor_maps import (
    BOXES,
    SOURCE,
    Box,
    arguments,
    begins_before,
    check,
    tensor,
)
from worklog.gpu.device import gpu_reason

if gpu_reason() is None:
    import cupy

    from tests.gpu import same_ptx


WAIT = [
    *(name for name in KERNELS if name.startswith(("converging/", "barriers/"))),
    *("mbarriers", "bulk_copies", "grid_barrier"),
]


@pytest.mark.parametrize("name", WAIT)
def test_threads_wait_for_each_other_as_on_the_gpu(name):
    given = KERNELS[name]
    given.check(same_ptx.launched(cuda(name), given.arguments, given.grid, (given.block,)))


def driver_map(array: Any, case: Box) -> np.void:
    """Return the driver's own encoding, as a struct that CuPy passes by value.

    cuda.h, cuTensorMapEncodeTiled.
    """
    kinds = {"u1": 0, "u2": 1, "u4": 2, "u8": 4, "f2": 6, "f4": 7, "f8": 8}
    swizzles = {0: 0, 32: 1, 64: 2, 128: 3}
    rank = len(case.shape)
    strides = [array.dtype.itemsize * int(np.prod(case.shape[: k + 1])) for k in range(rank - 1)]
    out = np.zeros(256, np.uint8)
    start = -out.ctypes.data % 64
    numbers = (
        (ctypes.c_uint64 * rank)(*case.shape),
        (ctypes.c_uint64 * rank)(*strides),
        (ctypes.c_uint32 * rank)(*case.box),
        (ctypes.c_uint32 * rank)(*(case.steps or (1,) * rank)),
    )
    status = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
        ctypes.c_void_p(out.ctypes.data + start),
        kinds[case.dtype],
        rank,
        ctypes.c_void_p(array.data.ptr),
        *numbers,
        0,  # no interleave
        swizzles[case.swizzle],
        0,  # no promotion in L2
        int(case.nan),
    )
    assert status == 0, f"cuTensorMapEncodeTiled: error {status}"
    struct: np.void = out[start : start + 128].view(np.dtype([("opaque", "u8", (16,))]))[0]
    return struct


@pytest.mark.parametrize("case", BOXES, ids=str)
def test_a_tensor_map_moves_the_same_bytes_on_the_gpu(case):
    """A store of a box that begins before its tensor is an illegal instruction on a GPU.

    On the emulator it is a finding.
    """
    middle, out = arguments(case, "NO_STORE" if begins_before(case) else "NONE")
    here = cupy.asarray(tensor(case))
    there = cupy.zeros_like(cupy.asarray(tensor(case)))
    maps = [driver_map(array, case) for array in (here, there)]
    after = same_ptx.launched(
        SOURCE, [*maps, *map(np.int32, middle), out], block=(64,), shared=out.nbytes
    )
    check(case, after[-1], cupy.asnumpy(there))
