"""Copies with tensor maps.

Boxes at each place of tensors of one to five dimensions, with each swizzle.
"""

import re
import zlib
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.emulator.helpers import cuda, run
from tests.emulator.launches import bugs
from worklog.emulator import Result
from worklog.emulator.memory import tensor_map
from worklog.emulator.ptx import UnsupportedInstruction
from worklog.emulator.reports import BadLaunch
from worklog.kernel.device import Program
from worklog.kernel.nvrtc import of_nvidia

SOURCE = cuda("tensor_boxes")
BUGS = bugs(SOURCE)


class Box(NamedTuple):
    """A box of a tensor, and what a copy of it leaves.

    shape, box, corner, steps: the innermost dimension first
    crcs: of what shared memory should hold, and of the tensor to which it plus one per word is
        stored, any NaN as 7; 0 for a box that begins before its tensor, which can be loaded and
        not stored
    """

    shape: tuple[int, ...]
    box: tuple[int, ...]
    corner: tuple[int, ...]
    dtype: str = "u4"
    swizzle: int = 0
    steps: tuple[int, ...] | None = None
    nan: bool = False
    crcs: tuple[int, int] = (0, 0)


BOXES = [
    Box((100,), (64,), (8,), crcs=(0xC21516D8, 0xAB5E434B)),
    Box((100,), (64,), (80,), crcs=(0xF077A6C6, 0xBEE1D88A)),
    Box((100,), (64,), (-8,), crcs=(0xDB00DCEC, 0x00000000)),
    Box((40, 50), (16, 8), (4, 45), crcs=(0xE19A702C, 0x351ABEBC)),
    Box((40, 50), (32, 32), (-4, -7), swizzle=128, crcs=(0x0915E6FA, 0x00000000)),
    Box((40, 50), (32, 16), (20, 9), swizzle=128, crcs=(0x2B434F71, 0x261FA9EE)),
    Box((48, 30), (16, 32), (36, 3), swizzle=64, crcs=(0x4A6E5475, 0x9D4ECA86)),
    Box((48, 30), (8, 32), (4, 3), swizzle=32, crcs=(0x4A89D1F5, 0x8D042620)),
    Box((64, 20), (64, 8), (0, 4), dtype="u2", swizzle=128, crcs=(0xFD41BABB, 0x5E3BC2A4)),
    Box((64, 20), (32, 8), (48, 16), dtype="f2", nan=True, crcs=(0x7377D0BD, 0x23B905F0)),
    Box((32, 20), (16, 8), (-16, 1), dtype="u1", crcs=(0xC2A8FA9D, 0x00000000)),
    Box((20, 10), (8, 8), (14, 3), dtype="f8", nan=True, crcs=(0x77D212BA, 0xD401D13D)),
    Box((20, 10), (8, 8), (16, 3), dtype="f4", nan=True, crcs=(0x50EE4DC9, 0x4CE773AA)),
    Box((40, 50), (16, 16), (4, 20), steps=(1, 3), crcs=(0x4F1FF939, 0x140D3032)),
    Box((12, 7, 9), (8, 4, 3), (8, 5, -1), crcs=(0x4DCC361D, 0x00000000)),
    Box((8, 5, 4, 6), (4, 3, 2, 4), (4, 3, 3, 4), crcs=(0x1E003131, 0x91E9CF88)),
    Box((8, 5, 4, 3, 5), (4, 3, 2, 2, 3), (4, -1, 3, 2, 3), crcs=(0x87650B9B, 0x00000000)),
    Box((32, 6, 5), (32, 4, 4), (0, 3, 2), swizzle=128, crcs=(0x06BCE815, 0x58CE94C0)),
]


def tensor(case: Box) -> np.ndarray:
    """Its bytes are not zero, and no NaN."""
    count = int(np.prod(case.shape))
    return (np.arange(count) % 100 + 1).astype(case.dtype).reshape(case.shape[::-1])


def arguments(case: Box, bug: str = "NONE") -> tuple[list[Any], np.ndarray]:
    """Of the kernel between the two tensor maps and the last argument; and that one."""
    steps = case.steps or (1,) * len(case.box)
    sizes = [-(-size // step) for size, step in zip(case.box, steps, strict=True)]
    nbytes = int(np.prod(sizes)) * np.dtype(case.dtype).itemsize
    corner = [*case.corner, *[0] * (5 - len(case.corner))]
    return [len(case.shape), *corner, nbytes, BUGS.index(bug)], np.zeros(nbytes // 4, np.uint32)


def copied(case: Box, bug: str = "NONE", map_: Any = None) -> tuple[np.ndarray, np.ndarray, Result]:
    """Return what lies in shared memory, the tensor that is copied to, and the result.

    map_: for both tensors
    """
    here = tensor(case)
    there = np.zeros_like(tensor(case))
    maps = [
        tensor_map(x, case.box, steps=case.steps, swizzle=case.swizzle, nan=case.nan)
        for x in (here, there)
    ]
    middle, out = arguments(case, bug)
    given = [*([map_, map_] if map_ else maps), *middle, out]
    return out, there, run(SOURCE, given, block=64, shared_bytes=out.nbytes)


def begins_before(case: Box) -> bool:
    return min(case.corner) < 0


def check(case: Box, out: np.ndarray, there: np.ndarray) -> None:
    for right, data in zip(case.crcs, (out.view(case.dtype), there), strict=True):
        without_nan = (
            np.where(np.isnan(data), data.dtype.type(7), data) if data.dtype.kind == "f" else data
        )
        assert right in (0, zlib.crc32(without_nan.tobytes()))


@pytest.mark.parametrize(
    "case", BOXES, ids=[f"{n} {len(case.shape)}d" for n, case in enumerate(BOXES)]
)
def test_a_box_goes_to_its_places_and_back(case):
    out, there, result = copied(case)
    assert [finding.kind for finding in result.findings] == [
        "global-out-of-bounds"
    ] * begins_before(case)
    assert all(
        "a store of a box that begins before" in finding.message for finding in result.findings
    )
    check(case, out, there)
    if begins_before(case):
        out, there, result = copied(case, "NO_STORE")
        assert result.findings == ()
        check(case, out, there)


@pytest.mark.skipif(
    not of_nvidia(Program("", "#include <cuda/barrier>", "")), reason="there are no NVIDIA headers"
)
def test_the_barriers_and_copies_of_libcu_do_it_too():
    matrix = np.arange(4096, dtype=np.float32).reshape(64, 64)
    out = np.zeros((32, 32), np.float32)
    result = run(cuda("cuda_barrier"), [tensor_map(matrix, (32, 32)), out], block=64)
    assert {finding.kind for finding in result.findings} == {
        "no-time"
    } and result.ok  # its loop looks at a clock
    np.testing.assert_array_equal(out, matrix[8:40, 4:36])


SMALL = tensor_map(np.zeros(1000, np.uint32), (16, 8), shape=(40, 50))
MISTAKES = [
    (BOXES[3], "NO_WAIT", None, "missing-wait: .*reads shared byte 1024 that the copy of line"),
    (
        BOXES[3],
        "NO_PROXY_FENCE",
        None,
        "missing-fence: .*copies shared byte 1024 which was written in line",
    ),
    (
        BOXES[3],
        "NO_BARRIER_BEFORE_STORE",
        None,
        "shared-race: .*with neither an mbarrier nor __syncthreads",
    ),
    (
        BOXES[3],
        "NO_WAIT_FOR_STORE",
        None,
        "missing-wait: .*exits before its copy from shared memory has been waited",
    ),
    (
        BOXES[3],
        "OVERWRITES_WHILE_READ",
        None,
        "early-overwrite: .*be reading: use cp.async.bulk.wait_group.read",
    ),
    # An H200 ends these two copies with an illegal instruction.
    (
        Box((100,), (64,), (-5,)),
        "NONE",
        None,
        "misaligned: .*start at multiples of 16 bytes along dimension 0",
    ),
    (
        Box((64, 20), (32, 8), (4, 1), "f2"),
        "NONE",
        None,
        "misaligned: .*start at multiples of 16 bytes along",
    ),
    (BOXES[3], "NONE", SMALL, "global-out-of-bounds: "),
]


@pytest.mark.parametrize(("case", "bug", "map_", "says"), MISTAKES)
def test_a_mistake_is_found(case, bug, map_, says):
    findings = [
        f"{finding.kind}: {finding.message}" for finding in copied(case, bug, map_)[2].findings
    ]
    assert any(re.match(says, finding) for finding in findings), findings


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        (
            (64, 64),
            {"box": (64, 64), "swizzle": 128},
            "swizzle is 0, or 32, 64 or 128 and as many bytes",
        ),
        ((64, 64), {"box": (3, 4)}, "multiple of 16 bytes"),
        ((64, 63), {"box": (4, 4)}, "strides are multiples of 16"),
        ((64, 64), {"box": (4,)}, "must fit the shape"),
        ((512, 512), {"box": (512, 1)}, "1 to 256 elements"),
    ],
)
def test_a_map_that_no_driver_encodes_is_an_error(shape, options, message):
    with pytest.raises(BadLaunch, match=f"^invalid tensor map: .*{message}"):
        tensor_map(np.zeros(shape, np.float32), **options)


def test_a_tensor_map_that_the_emulator_did_not_make_is_refused():
    message = r"^line \d+: cp.async.bulk.tensor.2d.*worklog.emulator.memory.tensor_map"
    with pytest.raises(UnsupportedInstruction, match=message):
        copied(BOXES[3], map_=tensor_map(np.zeros(16, np.uint32), (16,)))
