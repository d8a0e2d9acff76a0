"""The ruler measured by itself, once a run: the length of an empty event pair, the event's tick, and this GPU's real
ceilings.

A kernel that spins until the GPU's global timer has advanced by a known time is a kernel of known length. What the
event pair reads beyond that is the same at every length, so it can be taken off.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import cupy
import numpy as np

from worklog.harness.batches import LONGEST_BATCH, Sample, take_batch
from worklog.harness.cuda_timeline import BURN_BLOCKS_PER_SM, FFMA_FLOPS_PER_STEP, CudaTimeline
from worklog.harness.settings import Harness
from worklog.harness.timeline import Launch

KNOWN_US = (2, 5, 10, 30, 100)
SAMPLES = (
    96  # one reading is spread over 1.3 µs by when the flush before it ends; the median of so many is good to 0.05 µs
)
FFMA_STEPS = 2048
COPY_BYTES = 2**30
READ_ROUNDS = 64


@dataclass(frozen=True)
class Calibration:
    """What the ruler found about itself. Microseconds, TFLOP/s, GB/s.

    offset_us: an event pair reads this much too long. offset_spread_us: largest disagreement of the offset between
    the known lengths. tick_us: smallest step between two readings. fp32_tflops: multiply-adds alone. copy_gbs:
    device-to-device copy, bytes read plus written. l2_gbs: reads of a buffer that stays in L2. sm_mhz: clock during
    the FP32 ceiling.
    """

    offset_us: float
    offset_spread_us: float
    offset_by_length_us: dict[str, float]
    tick_us: float
    fp32_tflops: float
    copy_gbs: float
    l2_gbs: float
    sm_mhz: float

    def as_dict(self) -> dict[str, Any]:
        """For a run file."""
        return asdict(self)


def calibrate(timeline: CudaTimeline) -> Calibration:
    """Measure the offset on kernels of known length and the ceilings with microbenchmarks; about a second."""
    honest = Harness()
    readings: list[float] = []
    by_length: dict[str, float] = {}
    _samples(timeline, partial(timeline.spin, 1_000_000), LONGEST_BATCH, honest)  # wakes the clocks
    for known in KNOWN_US:
        times = [sample.us for sample in _samples(timeline, partial(timeline.spin, 1000 * known), SAMPLES, honest)]
        by_length[str(known)] = round(float(np.median(times)) - known, 4)
        readings += times
    offset = float(np.median(list(by_length.values())))
    steps = np.diff(np.unique(np.round(readings, 4)))
    fp32, sm_mhz = _fp32_ceiling(timeline, honest)
    return Calibration(
        offset_us=offset,
        offset_spread_us=max(by_length.values()) - min(by_length.values()),
        offset_by_length_us=by_length,
        tick_us=float(steps[steps > 1e-3].min()) if (steps > 1e-3).any() else 0.0,
        fp32_tflops=fp32,
        copy_gbs=_copy_ceiling(timeline, honest),
        l2_gbs=_l2_ceiling(timeline, honest.but(l2="warm")),
        sm_mhz=sm_mhz,
    )


def _samples(timeline: CudaTimeline, launch: Launch, count: int, harness: Harness) -> list[Sample]:
    batches = [take_batch(timeline, [launch], LONGEST_BATCH, harness)[0] for _ in range(-(-count // LONGEST_BATCH))]
    return [samples[0] for batch in batches for samples in batch]


def _steady(timeline: CudaTimeline, launch: Launch, harness: Harness) -> tuple[float, float]:
    """Median (microseconds, SM MHz) of the second half of some samples: a ceiling is a steady rate, not a lucky one."""
    launch()
    timeline.synchronize()
    late = _samples(timeline, launch, 2 * LONGEST_BATCH, harness)[LONGEST_BATCH:]
    return float(np.median([s.us for s in late])), float(np.median([s.sm_mhz for s in late]))


def _fp32_ceiling(timeline: CudaTimeline, harness: Harness) -> tuple[float, float]:
    flops = float(FFMA_FLOPS_PER_STEP * FFMA_STEPS * BURN_BLOCKS_PER_SM * timeline.gpu.multiprocessors * 256)
    us, mhz = _steady(timeline, partial(timeline.burn, flops), harness)
    return flops / us / 1e6, mhz


def _copy_ceiling(timeline: CudaTimeline, harness: Harness) -> float:
    free, _ = cupy.cuda.runtime.memGetInfo()
    size = min(COPY_BYTES, free // 4)
    with timeline.device.stream:
        source, target = cupy.ones(size, cupy.uint8), cupy.empty(size, cupy.uint8)

    def launch() -> None:
        target.data.copy_from_device_async(source.data, size, timeline.device.stream)

    return float(2 * size / _steady(timeline, launch, harness)[0] / 1e3)


def _l2_ceiling(timeline: CudaTimeline, harness: Harness) -> float:
    size = timeline.gpu.l2_bytes // 4
    with timeline.device.stream:
        buffer, out = cupy.ones(size // 4, cupy.float32), cupy.zeros(1, cupy.float32)
    function = timeline.module.get_function("ruler_read")

    def launch() -> None:
        timeline.launch(
            function, 2 * timeline.gpu.multiprocessors, 1024, buffer, np.uint64(size // 16), np.int32(READ_ROUNDS), out
        )

    return float(size * READ_ROUNDS / _steady(timeline, launch, harness)[0] / 1e3)
