"""The emulator against the GPU: the same source on the same data gives the same results and verdicts."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.emulator.helpers import cuda
from tests.emulator.launches import KERNELS
from tests.emulator.test_tensor_maps import BOXES, SOURCE, Box, arguments, begins_before, check, tensor
from worklog.emulator import EmulatedDevice
from worklog.gate import SgemmChecker
from worklog.gpu.device import gpu_reason
from worklog.kernel import Kernel
from worklog.problem.gemm import Shape

if gpu_reason() is None:
    import cupy

    from tests.gpu import same_ptx
    from worklog.gpu.cuda import CudaDevice


@pytest.mark.parametrize(("right", "stage"), [(1, "exact on edge shapes"), (4, "bit-equal when repeated")])
def test_what_outlives_a_launch_gives_the_same_verdict(right: int, stage: str) -> None:
    source = cuda("counts_launches").replace("RIGHT = 1", f"RIGHT = {right}")
    for device in (CudaDevice(), EmulatedDevice()):
        verdict = SgemmChecker(device, Shape(40, 24, 12), 0).check(Kernel.from_source(source).load(device))
        assert [s.name for s in verdict.stages if not s.passed] == [stage], verdict.reason


WAIT = [
    *(name for name in KERNELS if name.startswith(("converging/", "barriers/")) and name != "barriers/lanes_apart"),
    *("mbarriers", "bulk_copies", "grid_barrier"),
]


@pytest.mark.parametrize("name", WAIT)
def test_threads_wait_for_each_other_as_on_the_gpu(name: str) -> None:
    one = KERNELS[name]
    one.check(same_ptx.launched(cuda(name), one.arguments, one.grid, (one.block,)))


APART = """
import sys
import numpy as np
from tests.emulator.helpers import cuda
from tests.gpu import same_ptx
first, second = sys.argv[1:]
source = cuda("barriers/lanes_apart").replace("barrier.sync 0", first).replace("barrier.cta.sync 0", second)
print(*same_ptx.launched(source, [np.arange(128, dtype="i4"), np.zeros(256, "i4")], block=(128,))[1][:128])
"""


@pytest.mark.parametrize(
    ("first", "second", "right"),
    [
        ("barrier.sync 0", "barrier.cta.sync 0", True),
        ("barrier.sync 0, 128", "barrier.cta.sync 0, 128", True),
        ("barrier.sync 0", "barrier.cta.sync 0, 128", False),
    ],
)
def test_lanes_of_a_warp_wait_at_two_instructions(first: str, second: str, right: bool) -> None:
    """In a process of its own: an illegal instruction ends its context."""
    command = (sys.executable, "-c", APART, first, second)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    wanted = [127 - t if t % 3 == 0 else t - 127 for t in range(128)]
    if right:
        assert done.stdout.split() == [str(value) for value in wanted], done.stderr[-500:]
    else:
        assert "illegal instruction" in done.stderr, done.stdout


def test_a_warp_specialised_kernel_passes_the_gate() -> None:
    for device in (CudaDevice(), EmulatedDevice()):
        verdict = SgemmChecker(device, Shape(128, 128, 64), 0).check(
            Kernel.from_source(cuda("warp_specialised")).load(device)
        )
        assert verdict.accepted, verdict.reason


def driver_map(array: Any, case: Box) -> np.void:
    """The driver's own encoding, as a struct that CuPy passes by value. cuda.h, cuTensorMapEncodeTiled."""
    kinds = {"u1": 0, "u2": 1, "u4": 2, "u8": 4, "f2": 6, "f4": 7, "f8": 8}
    swizzles, rank = {0: 0, 32: 1, 64: 2, 128: 3}, len(case.shape)
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


def run_box(case: Box, bug: str = "NONE") -> None:
    middle, out = arguments(case, bug)
    here, there = cupy.asarray(tensor(case)), cupy.zeros_like(cupy.asarray(tensor(case)))
    maps = [driver_map(array, case) for array in (here, there)]
    found = same_ptx.launched(SOURCE, [*maps, *map(np.int32, middle), out], block=(64,), shared=out.nbytes)
    check(case, found[-1], cupy.asnumpy(there))


EACH_BOX = """
import sys
from tests.gpu.test_gpu_emulator import BOXES, begins_before, run_box
for number in map(int, sys.argv[1:]):
    if begins_before(BOXES[number]):
        run_box(BOXES[number], "NO_STORE")
    run_box(BOXES[number])
    print(number, flush=True)
"""


def test_tensor_maps_move_the_same_bytes_on_the_gpu() -> None:
    """In other processes: an illegal instruction ends the context of its own one, and the next takes the boxes left."""
    left, wrong = [*range(len(BOXES))], {}
    while left:
        command = (sys.executable, "-c", EACH_BOX, *map(str, left))
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        left = left[len(done.stdout.split()) :]
        if left:
            wrong[BOXES[left.pop(0)]] = (done.stderr.strip().splitlines() or [""])[-1]
    expected = {case for case in BOXES if begins_before(case)}
    found = {case for case, error in wrong.items() if "illegal instruction" in error}
    assert found == expected == {*wrong}, "\n".join(f"{case}: {error}" for case, error in wrong.items())
