"""Rungs on a GPU have the emulator's bits.

Those whose warps hand over stages have the same bits in each launch. Kernels of several launches,
cooperative launches and module variables.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emulator.helpers import product
from tests.kernel.test_passes import TWO, mistaken
from worklog.errors import LaunchFailed
from worklog.gate.guarded_buffer import Buffers, Memory
from worklog.kernel.device import Program
from worklog.kernel.emulated import EmulatedDevice
from worklog.kernel.ladder.best import table
from worklog.kernel.ladder.rungs import FP32, LADDER, SPLIT_TILES, TENSOR, any_shape, split
from worklog.problem import Shape, random_inputs

LAUNCHES = 1000
RECORDS = [
    *(record for record in TENSOR if not record.follows_shape),
    *map(split, SPLIT_TILES),
    split(64, 3, 160),
]
HANDED_OVER = [
    *(record for record in FP32 if record.number is not None and record.number >= 14),
    any_shape(table().tiles[0].template),
    any_shape(table().tiles[9].template, 3),
    *(record for record in RECORDS if record.name in ("wgmma", "split")),
]
EVERY = [
    *((record, Shape.of(64), 1.0, 0.0) for record in LADDER),
    *((record, Shape(133, 190, 41), 1.5, -0.75) for record in LADDER),
    *((record, Shape(130, 200, 160), 1.0, 0.0) for record in RECORDS),
]


@pytest.fixture
def device():
    from worklog.gpu.cuda import CudaDevice

    return CudaDevice()


@pytest.mark.parametrize(
    ("record", "least", "alpha", "beta"), EVERY, ids=lambda one: getattr(one, "entry", str(one))
)
def test_every_bit_is_the_gpus(record, least, alpha, beta, device):
    """Those with FP32's range also with infinities, NaN and subnormal numbers.

    And with scales that FP16 doesn't have.
    """
    rng = np.random.default_rng(0)
    a, b = random_inputs(record.domain.padded(least), rng)
    c = rng.uniform(-1, 1, (len(a), b.shape[1])).astype(np.float32)
    if record.name in ("wgmma", "split"):
        a[0] *= np.float32(2.0**100)
        a[1, 1:] *= np.float32(2.0**-60)
        a[2] *= np.float32(2.0**-140)
        a[3, 5] = np.inf
        a[4, 5] = np.nan
    there, here = (
        product(one, record.load(one), a, b, alpha, beta, c if beta else None)
        for one in (device, EmulatedDevice(device.chip))
    )
    view = np.uint32 if record in LADDER else np.float32  # by value, any NaN equals any other
    np.testing.assert_array_equal(there.view(view), here.view(view))


@pytest.mark.parametrize("record", HANDED_OVER, ids=lambda record: record.entry)
def test_a_thousand_launches_give_the_same_bits(record, device):
    """A hand-over between warps that is wrong shows rarely. Every element of each C is compared."""
    shape = Shape.of(1536)
    a, b = random_inputs(shape, np.random.default_rng(1))
    subject = record.load(device)
    of_a, of_b, c = (device.upload(x) for x in (a, b, np.zeros((shape.m, shape.n), np.float32)))
    subject.enqueue(shape, 1.0, of_a, of_b, 0.0, c)
    first = device.download(c).reshape(shape.m, shape.n)
    assert np.abs(first - a.astype(np.float64) @ b).max() < 0.01 * np.sqrt(shape.k)
    bits = device.upload(first).view(np.int32)
    others = 0
    for _ in range(LAUNCHES):
        device.fill(c, np.nan)
        subject.enqueue(shape, 1.0, of_a, of_b, 0.0, c)
        with device.stream:
            others += (c.view(np.int32) != bits).any()
    device.synchronize()
    assert int(others) == 0


def program(name: str) -> Program:
    """Of a file of this folder."""
    return Program(
        f"{name}.cu", Path(__file__).with_name(f"{name}.cu").read_text(encoding="utf-8"), name
    )


def test_each_compilation_of_one_source_has_variables_of_its_own(device):
    counts = program("counts")
    out = device.upload(np.zeros(4, np.float32))

    def launched(kernel: Any) -> float:
        device.launch(kernel, (1, 1), 1, (out,))
        return float(device.download(out)[0])

    first = device.compile(counts)
    assert [launched(first), launched(first)] == [1, 2]
    second = device.compile(counts)
    assert [launched(second), launched(first)] == [1, 3]


def test_the_blocks_of_a_cooperative_launch_wait_for_the_grid(device):
    kernel = device.compile(program("meets"))
    blocks = 64
    out, arrived = (device.upload(np.zeros(size, np.float32)) for size in (blocks, 4))
    device.launch(kernel, (blocks, 1), 32, (out, arrived))
    assert (device.download(out) == blocks).all()
    for grid in ((100_000, 1), (50_000, 2)):
        with pytest.raises(
            LaunchFailed, match=r"cooperative launch: 100,000, of which [\d,]+ run together"
        ):
            device.launch(kernel, grid, 32, (out, arrived))


def test_passes_share_a_guarded_workspace_with_nothing_in_it(device):
    rng = np.random.default_rng(0)
    shape = Shape(65, 33, 40)
    a, b = (np.round(8 * matrix) for matrix in random_inputs(shape, rng))
    buffers = Buffers(Memory(device, rng), a, b)

    def difference(kernel: Any) -> tuple[float, str | None]:
        result = buffers.run(kernel.load(device), 2.0, 0.5, 3.0)
        return float(abs(result.c - (2 * (a @ b) + 1.5)).max()), result.trespass

    assert difference(TWO) == (0, "")
    assert difference(mistaken(1))[1] == "it wrote outside its workspace"
    assert not difference(mistaken(2))[0] <= 0
