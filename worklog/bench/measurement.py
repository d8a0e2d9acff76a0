"""From a reading to a Measurement: the summary, the shares of what this GPU can do, and the work of the problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from worklog.gate import Verdict
from worklog.gpu.device import gpu
from worklog.harness import Harness, Reading
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement
from worklog.runs.statistics import Estimate
from worklog.runs.summarize import summarize

if TYPE_CHECKING:
    from worklog.harness.calibration import Calibration

NOTHING = Estimate(float("nan"), float("nan"), float("nan"))


def measurement_of(
    common: Mapping[str, Any],
    used: Harness,
    reading: Reading,
    calibration: Calibration,
    verdict: Verdict | None,
    degradations: list[str],
) -> Measurement:
    """The measurement that a reading gives. common: its kernel, shape and changed settings."""
    shape = Shape(*common["shape"])
    at_clock = (reading.sm_mhz or gpu().sm_clock_mhz) / gpu().sm_clock_mhz
    peak = gpu().fp32_peak_tflops * at_clock
    found = summarize(reading, used.as_dict(), calibration.as_dict(), shape.flops, peak)
    time, ratio, rate = found.time, found.ratio or NOTHING, found.tflops or 0.0
    gbs = shape.compulsory_bytes / time.value / 1e3
    return Measurement(
        **common,
        status="measured",
        verdict=verdict.as_dict() if verdict else None,
        us=time.value,
        us_low=time.low,
        us_high=time.high,
        us_launches=time.launches,
        us_placement=time.placement,
        tflops=rate,
        ratio=ratio.value,
        ratio_low=ratio.low,
        ratio_high=ratio.high,
        ratio_launches=ratio.launches,
        ratio_placement=ratio.placement,
        of_ceiling=rate / calibration.fp32_tflops,
        of_roof=found.of_peak,
        **work_of(shape),
        gbs=gbs,
        of_copy=gbs / calibration.copy_gbs,
        of_memory_peak=gbs / gpu().memory_peak_gbs,
        sm_mhz=found.sm_mhz,
        throttle_mask=reading.throttle_mask,
        converged=reading.converged,
        degradations=tuple(degradations + reading.degradations),
        samples=reading.columns(),
    )


def work_of(shape: Shape) -> dict[str, Any]:
    """The work of a problem, by the names of a Measurement: operations, elements of A and B (inputs, as NVBench
    counts), and bytes read and written if each matrix passes once (beta is 0, so C isn't read).
    """
    written = 4 * shape.m * shape.n
    return {
        "flops": shape.flops,
        "elements": shape.m * shape.k + shape.k * shape.n,
        "bytes_read": shape.compulsory_bytes - written,
        "bytes_written": written,
    }
