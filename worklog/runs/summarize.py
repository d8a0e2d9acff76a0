"""From samples to a result, in one place: the run, `worklog.time`, the panel and the ablation all call `summarize`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from worklog.runs.samples import Reading
from worklog.runs.statistics import Estimate, paired_ratio, summarise
from worklog.settings import BF16_DATASHEET_TFLOPS


@dataclass(frozen=True)
class Summary:
    """What samples come to under some settings.

    time: microseconds per launch. ratio: the baseline's time over the subject's, pair by pair, None without a baseline.
    sm_mhz: median SM clock. tflops: TFLOP/s where the work is known. of_peak: its share of the peak.
    """

    time: Estimate
    ratio: Estimate | None
    sm_mhz: float | None
    tflops: float | None = None
    of_peak: float | None = None


def event_overhead_us(settings: Mapping[str, Any], calibration: Mapping[str, Any]) -> float:
    """Microseconds that the settings subtract from each sample. Raises KeyError where the calibration has none."""
    removed = (settings["offset"], settings["timer"]) == ("removed", "events")
    return float(calibration["offset_us"]) if removed else 0.0


def summarize(
    samples: Reading,
    settings: Mapping[str, Any],
    calibration: Mapping[str, Any],
    flops: float | None = None,
    peak_tflops: float | None = None,
) -> Summary:
    """Subtract the event overhead, apply the statistic, pair with the baseline, divide by the peak.

    settings: offset, timer, statistic and roof, as Harness.as_dict gives them. calibration: its offset_us, where the
    settings remove it. flops: of one launch. peak_tflops: the FP32 peak at the samples' clock; the setting `roof` may
    replace it.
    """
    overhead, statistic = event_overhead_us(settings, calibration), str(settings["statistic"])
    time = _estimate(samples, "subject", statistic).shifted(-overhead)
    ratio = None
    if samples.baseline and statistic == "median":
        ours, theirs, placements = samples.comparisons()
        ratio = paired_ratio([us - overhead for us in theirs], [us - overhead for us in ours], placements)
    elif samples.baseline:
        value = (_estimate(samples, "baseline", statistic).value - overhead) / time.value
        ratio = Estimate(value, value, value)
    rate = None if flops is None else flops / time.value / 1e6
    peak = peak_tflops if settings["roof"] == "fp32" else BF16_DATASHEET_TFLOPS
    return Summary(time, ratio, samples.sm_mhz, rate, None if rate is None or peak is None else rate / peak)


def _estimate(samples: Reading, which: str, statistic: str) -> Estimate:
    return summarise(samples.counted(which), statistic, samples.placements(which))
