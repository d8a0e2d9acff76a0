"""The rungs through tensor cores on a Hopper GPU: the emulator's bits, and the same bits in each launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from worklog.emulator import EmulatedDevice
from worklog.kernel import Kernel
from worklog.kernel.ladder import TENSOR
from worklog.kernel.splitting import SPLIT_TILES, split
from worklog.problem.gemm import Float32, Shape, random_inputs

LAUNCHES = 1000
RECORDS = [*TENSOR[:-1], *map(split, SPLIT_TILES), split(64, 3, 160)]
each = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.entry)


def gpu() -> Any:
    from worklog.gpu.cuda import CudaDevice

    return CudaDevice()


def products(device: Any, record: Kernel, a: Float32, b: Float32, launches: int = 1) -> list[bytes]:
    """C of each launch, with NaN in it before."""
    shape, subject = Shape(a.shape[0], b.shape[1], a.shape[1]), record.load(device)
    of_a, of_b, c = (device.upload(x) for x in (a, b, np.zeros((shape.m, shape.n), np.float32)))
    found = []
    for _ in range(launches):
        device.fill(c, np.nan)
        subject.enqueue(shape, 1.0, of_a, of_b, 0.0, c)
        found.append(device.download(c).tobytes())
    return found


@each
def test_every_bit_is_the_gpus(record: Kernel) -> None:
    """Also of rows with infinities and NaN, subnormal numbers and scales that FP16 doesn't have."""
    rng = np.random.default_rng(0)
    a, b = random_inputs(record.domain.padded(Shape(130, 200, 160)), rng)
    if record.name in ("wgmma", "split"):
        a[0] *= np.float32(2.0**100)
        a[1, 1:] *= np.float32(2.0**-60)
        a[2] *= np.float32(2.0**-140)
        a[3, 5], a[4, 5] = np.inf, np.nan
    here, there = (np.frombuffer(products(device, record, a, b)[0], np.float32) for device in (EmulatedDevice(), gpu()))
    np.testing.assert_array_equal(there, here)


@pytest.mark.parametrize(
    "record", [r for r in RECORDS if r.name in ("wgmma", "split")], ids=lambda record: record.entry
)
def test_a_thousand_launches_give_the_same_bits(record: Kernel) -> None:
    """A hand-over between warps that is wrong shows rarely."""
    a, b = random_inputs(Shape.of(1536), np.random.default_rng(1))
    assert len(set(products(gpu(), record, a, b, LAUNCHES))) == 1
