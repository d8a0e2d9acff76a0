"""Rungs on a GPU have the emulator's bits, and those whose warps hand over stages the same bits in each launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulator.helpers import product
from worklog.emulator import EmulatedDevice
from worklog.kernel import Kernel
from worklog.kernel.best import kernel_of
from worklog.kernel.ladder import LADDER, TENSOR
from worklog.kernel.rungs import FP32, SPLIT_TILES, split
from worklog.problem.gemm import Shape, random_inputs
from worklog.runner import tuned

LAUNCHES = 1000
RECORDS = [*(record for record in TENSOR if record.choose is None), *map(split, SPLIT_TILES), split(64, 3, 160)]
HANDED_OVER = [
    *(record for record in FP32 if record.number is not None and record.number >= 14),
    kernel_of(tuned.TEMPLATES[0]),
    kernel_of(tuned.TEMPLATES[9], 3),
    *(record for record in RECORDS if record.name in ("wgmma", "split")),
]
EVERY = [
    *((record, Shape.of(64), 1.0, 0.0) for record in LADDER),
    *((record, Shape(133, 190, 41), 1.5, -0.75) for record in LADDER),
    *((record, Shape(130, 200, 160), 1.0, 0.0) for record in RECORDS),
]


def gpu() -> Any:
    from worklog.gpu.cuda import CudaDevice

    return CudaDevice()


@pytest.mark.parametrize(("record", "least", "alpha", "beta"), EVERY, ids=lambda one: getattr(one, "entry", str(one)))
def test_every_bit_is_the_gpus(record: Kernel, least: Shape, alpha: float, beta: float) -> None:
    """Those with FP32's range also with infinities and NaN, subnormal numbers and scales that FP16 doesn't have."""
    rng, device = np.random.default_rng(0), gpu()
    a, b = random_inputs(record.domain.padded(least), rng)
    c = rng.uniform(-1, 1, (len(a), b.shape[1])).astype(np.float32)
    if record.name in ("wgmma", "split"):
        a[0] *= np.float32(2.0**100)
        a[1, 1:] *= np.float32(2.0**-60)
        a[2] *= np.float32(2.0**-140)
        a[3, 5], a[4, 5] = np.inf, np.nan
    there, here = (
        product(one, record.load(one), a, b, alpha, beta, c if beta else None)
        for one in (device, EmulatedDevice(device.arch))
    )
    view = np.uint32 if record in LADDER else np.float32  # by value, any NaN equals any other
    np.testing.assert_array_equal(there.view(view), here.view(view))


@pytest.mark.parametrize("record", HANDED_OVER, ids=lambda record: record.entry)
def test_a_thousand_launches_give_the_same_bits(record: Kernel) -> None:
    """A hand-over between warps that is wrong shows rarely. Every element of each C is compared."""
    shape = Shape.of(1536)
    device, a, b = gpu(), *random_inputs(shape, np.random.default_rng(1))
    subject = record.load(device)
    of_a, of_b, c = (device.upload(x) for x in (a, b, np.zeros((shape.m, shape.n), np.float32)))
    subject.enqueue(shape, 1.0, of_a, of_b, 0.0, c)
    first = device.download(c).reshape(shape.m, shape.n)
    assert np.abs(first - a.astype(np.float64) @ b).max() < 0.01 * np.sqrt(shape.k)
    bits, others = device.upload(first).view(np.int32), 0
    for _ in range(LAUNCHES):
        device.fill(c, np.nan)
        subject.enqueue(shape, 1.0, of_a, of_b, 0.0, c)
        with device.stream:
            others += (c.view(np.int32) != bits).any()
    device.synchronize()
    assert int(others) == 0
