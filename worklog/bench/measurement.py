"""From a reading to a measurement: offset taken off, statistic, rates, ratios, and what the work is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from worklog.gate import Verdict
from worklog.gpu.device import gpu
from worklog.harness import Harness, Reading
from worklog.problem.gemm import Shape, tflops
from worklog.runs.run import Measurement
from worklog.runs.statistics import Estimate, paired_ratio, summarise
from worklog.settings import BF16_DATASHEET_TFLOPS

if TYPE_CHECKING:
    from worklog.harness.calibration import Calibration


def conclude(
    common: Mapping[str, Any],
    used: Harness,
    reading: Reading,
    calibration: Calibration,
    verdict: Verdict | None,
    degradations: list[str],
) -> Measurement:
    """From a reading to a measurement: offset, statistic, rates and ratios."""
    shape = Shape(*common["shape"])
    offset = used.taken_off(calibration.offset_us)
    subject, baseline = reading.counted("subject"), reading.counted("baseline")
    time = _shifted(summarise(subject, used.statistic), -offset)
    if used.statistic == "median":
        ours, theirs = ([us - offset for us in side] for side in reading.comparisons())
        ratio = paired_ratio(theirs, ours)
    else:
        ratio_value = (summarise(baseline, used.statistic).value - offset) / time.value
        ratio = Estimate(ratio_value, ratio_value, ratio_value)
    clocks = [s.sm_mhz for s in reading.subject if s.counts and np.isfinite(s.sm_mhz)]
    sm_mhz = float(np.median(clocks)) if clocks else None
    rate = tflops(shape, time.value)
    peak = gpu().fp32_peak_tflops * ((sm_mhz or gpu().sm_clock_mhz) / gpu().sm_clock_mhz)
    gbs = shape.compulsory_bytes / time.value / 1e3
    roof = peak if used.roof == "fp32" else BF16_DATASHEET_TFLOPS
    return Measurement(
        **common,
        status="measured",
        verdict=verdict.as_dict() if verdict else None,
        us=time.value,
        us_low=time.low,
        us_high=time.high,
        tflops=rate,
        ratio=ratio.value,
        ratio_low=ratio.low,
        ratio_high=ratio.high,
        of_ceiling=rate / calibration.fp32_tflops,
        of_roof=rate / roof,
        **work_of(shape),
        gbs=gbs,
        of_copy=gbs / calibration.copy_gbs,
        of_memory_peak=gbs / gpu().memory_peak_gbs,
        sm_mhz=sm_mhz,
        throttle_mask=reading.throttle_mask,
        converged=reading.converged,
        degradations=tuple(degradations + reading.degradations),
        samples={
            "us": [round(s.us, 3) for s in reading.subject],
            "sm_mhz": [round(s.sm_mhz, 1) for s in reading.subject],
            "baseline_us": [round(s.us, 3) for s in reading.baseline],
            "baseline_sm_mhz": [round(s.sm_mhz, 1) for s in reading.baseline],
            "counts": [int(s.counts) for s in reading.subject],
        },
    )


def work_of(shape: Shape) -> dict[str, Any]:
    """What a problem must do, by the names of a Measurement: operations, elements of C, and bytes read and written if
    each matrix passes once (beta is 0, so C is not read).
    """
    written = 4 * shape.m * shape.n
    return {
        "flops": shape.flops,
        "elements": shape.m * shape.n,
        "bytes_read": shape.compulsory_bytes - written,
        "bytes_written": written,
    }


def _shifted(estimate: Estimate, by: float) -> Estimate:
    return Estimate(estimate.value + by, estimate.low + by, estimate.high + by)
