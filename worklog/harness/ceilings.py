"""What this GPU can really do, by microbenchmarks: multiply-adds alone, a copy, reads that stay in L2."""

from __future__ import annotations

from functools import partial

import cupy
import numpy as np

from worklog.harness.batches import LONGEST_BATCH
from worklog.harness.cuda_timeline import BURN_BLOCKS_PER_SM, FFMA_FLOPS_PER_STEP, CudaTimeline
from worklog.harness.selfcheck import samples_of
from worklog.harness.timeline import Launch
from worklog.settings import Harness

FFMA_STEPS = 2048
COPY_BYTES = 2**30
READ_ROUNDS = 64


def fp32_ceiling(timeline: CudaTimeline) -> tuple[float, float]:
    """TFLOP/s of multiply-adds alone, and the SM clock in MHz while they ran."""
    flops = float(FFMA_FLOPS_PER_STEP * FFMA_STEPS * BURN_BLOCKS_PER_SM * timeline.gpu.multiprocessors * 256)
    us, mhz = _steady(timeline, partial(timeline.burn, flops), Harness())
    return flops / us / 1e6, mhz


def copy_ceiling(timeline: CudaTimeline) -> float:
    """GB/s of a device-to-device copy, bytes read plus written."""
    free, _ = cupy.cuda.runtime.memGetInfo()
    size = min(COPY_BYTES, free // 4)
    with timeline.device.stream:
        source, target = cupy.ones(size, cupy.uint8), cupy.empty(size, cupy.uint8)

    def launch() -> None:
        target.data.copy_from_device_async(source.data, size, timeline.device.stream)

    return float(2 * size / _steady(timeline, launch, Harness())[0] / 1e3)


def l2_ceiling(timeline: CudaTimeline) -> float:
    """GB/s of reads of a buffer that stays in L2."""
    size = timeline.gpu.l2_bytes // 4
    with timeline.device.stream:
        buffer, out = cupy.ones(size // 4, cupy.float32), cupy.zeros(1, cupy.float32)
    function = timeline.module.get_function("ruler_read")

    def launch() -> None:
        timeline.launch(
            function, 2 * timeline.gpu.multiprocessors, 1024, buffer, np.uint64(size // 16), np.int32(READ_ROUNDS), out
        )

    return float(size * READ_ROUNDS / _steady(timeline, launch, Harness().but(l2="warm"))[0] / 1e3)


def _steady(timeline: CudaTimeline, launch: Launch, harness: Harness) -> tuple[float, float]:
    """Median (microseconds, SM MHz) of the second half of some samples: a ceiling is a steady rate, not a lucky one."""
    launch()
    timeline.synchronize()
    late = samples_of(timeline, launch, 2 * LONGEST_BATCH, harness)[LONGEST_BATCH:]
    return float(np.median([s.us for s in late])), float(np.median([s.sm_mhz for s in late]))
