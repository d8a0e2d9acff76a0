"""Samples, and `summarize`, which turns them into a result with a 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from worklog.errors import LaunchFailed
from worklog.runs.estimates import Estimate, estimate_of, median, paired_ratio, process_half, process_half_us
from worklog.settings import BF16_DATASHEET_TFLOPS

NAN = float("nan")
HOT = ("hot_us", "hot_baseline_us")  # columns of a run file
Turn = tuple["Sample", "Sample"]  # one launch of the subject and one of the baseline


@dataclass(frozen=True)
class Sample:
    """One timed launch: microseconds as read (event overhead included), SM clock in MHz, and whether it counts.
    around_us: by the global timer, microseconds from the end of the flush to the stamp after the launch, NaN if not
    read. placement: number of the placement of the buffers. Raises LaunchFailed for a time that isn't finite and 0 or
    more.
    """

    us: float
    sm_mhz: float
    counts: bool = True
    around_us: float = NAN
    placement: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.us < math.inf:
            raise LaunchFailed(
                f"a launch was read as {self.us} µs: the driver's events don't work here "
                "(some virtual GPUs, confidential computing): compare with --set timer=host"
            )


@dataclass
class Reading:
    """All samples, turn by turn, and what went wrong while they were taken. series: the subject's samples, then each
    baseline's. hot, kernels: in the same order. hot: microseconds per launch of launches in a row, one value per batch;
    [] if not taken. kernels: kernels per launch; [] if not known.
    """

    series: list[list[Sample]]
    throttle_mask: int = 0
    converged: bool = False
    warmup_launches: int = 0
    degradations: list[str] = field(default_factory=list)
    hot: list[list[float]] = field(default_factory=list)
    kernels: list[int] = field(default_factory=list)

    @property
    def subject(self) -> list[Sample]:
        """The subject's samples."""
        return self.series[0]

    @property
    def baseline(self) -> list[Sample]:
        """The first baseline's, [] without one."""
        return self.series[1] if len(self.series) > 1 else []

    def pairs(self) -> list[Reading]:
        """The subject with each baseline, the first one first: the same turns, paired sample by sample."""

        def with_one(values: list[Any], number: int) -> list[Any]:
            return [*values[:1], *values[number : number + 1]]

        return [
            replace(
                self,
                series=with_one(self.series, number),
                hot=with_one(self.hot, number),
                kernels=with_one(self.kernels, number),
            )
            for number in range(1, max(2, len(self.series)))
        ]

    def counted(self, which: str) -> list[float]:
        """Microseconds of the samples of "subject" or "baseline" that count."""
        return [sample.us for sample in self._counting(which)]

    def placements(self, which: str) -> list[int]:
        """The placement of each of these samples."""
        return [sample.placement for sample in self._counting(which)]

    def clocks(self, which: str) -> list[tuple[float, float]]:
        """Of these samples: microseconds by the events, and by the global timer from the end of the flush if read."""
        samples = self._counting(which)
        return [(sample.us, sample.around_us) for sample in samples if sample.around_us == sample.around_us]

    @property
    def sm_mhz(self) -> float | None:
        """Median SM clock of the subject's samples that count, or None if it could not be read."""
        clocks = [sample.sm_mhz for sample in self._counting("subject") if np.isfinite(sample.sm_mhz)]
        return float(np.median(clocks)) if clocks else None

    def comparisons(self) -> tuple[list[float], list[float], list[int]]:
        """Microseconds of the subject and of the baseline in each turn that counts, and its placement.

        Where all turns have one placement, the mean over each two turns in a row that both count: the subject goes
        first in one, the baseline in the other, and callers that alternate buffers swap them. Without two such turns,
        single ones again.
        """
        turns = list(zip(self.subject, self.baseline, strict=False))  # timed in sequence, one side may have more
        chosen: list[tuple[Turn, ...]] = [(turn,) for turn in turns if turn[0].counts]
        if len({subject.placement for subject, _ in turns}) == 1:
            twos = zip(turns[::2], turns[1::2], strict=False)
            chosen = [two for two in twos if all(s.counts for turn in two for s in turn)] or chosen
        means = [[sum(turn[side].us for turn in turns) / len(turns) for turns in chosen] for side in (0, 1)]
        return means[0], means[1], [turns[0][0].placement for turns in chosen]

    def columns(self) -> dict[str, list[Any]]:
        """The samples as a run file stores them. around_us isn't stored."""
        return {
            "us": [round(s.us, 3) for s in self.subject],
            "sm_mhz": [round(s.sm_mhz, 1) for s in self.subject],
            "baseline_us": [round(s.us, 3) for s in self.baseline],
            "baseline_sm_mhz": [round(s.sm_mhz, 1) for s in self.baseline],
            "counts": [int(s.counts) for s in self.subject],
            "placement": [s.placement for s in self.subject],
            "baseline_placement": [s.placement for s in self.baseline],
            **dict(zip(HOT, ([round(us, 3) for us in one] for one in self.hot), strict=False)),
            **({"kernels": self.kernels} if self.kernels else {}),
        }

    @classmethod
    def of_columns(cls, columns: Mapping[str, Sequence[Any]]) -> Reading:
        """The samples of a run file. A file from before `placement` has one placement."""
        hot = [list(columns[name]) for name in HOT if name in columns]
        series = [_samples(columns, side) for side in ("", "baseline_")]
        return cls(series, hot=hot, kernels=list(columns.get("kernels", ())))

    def _counting(self, which: str) -> list[Sample]:
        return [sample for sample in getattr(self, which) if sample.counts]


def _samples(columns: Mapping[str, Sequence[Any]], side: str) -> list[Sample]:
    """The samples of one side, the subject ("") or the baseline. If it is longer, its last ones do not count."""
    times = columns.get(f"{side}us", ())
    clocks = columns.get(f"{side}sm_mhz") or [NAN] * len(times)
    places = columns.get(f"{side}placement") or [0] * len(times)
    return [
        Sample(time, NAN if mhz is None else mhz, bool(count), placement=placement)
        for time, mhz, count, placement in zip_longest(
            times, clocks, columns["counts"][: len(times)], places, fillvalue=0
        )
    ]


@dataclass(frozen=True)
class Summary:
    """What samples come to under some settings.

    time: microseconds per launch. ratio: the baseline's time over the subject's, pair by pair, None without a baseline.
    sm_mhz: median SM clock. tflops: TFLOP/s where the work is known. of_peak: its share of the peak. hot: microseconds
    per launch in a row; hot_ratio: the baseline's over the subject's.
    """

    time: Estimate
    ratio: Estimate | None
    sm_mhz: float | None
    tflops: float | None = None
    of_peak: float | None = None
    hot: Estimate | None = None
    hot_ratio: Estimate | None = None


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
    replace it. Where events time launches whose kernels are known, both intervals hold for other processes, too.
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
    if samples.kernels and (statistic, settings["timer"]) == ("median", "events"):
        if ratio and len(samples.kernels) > 1:
            gaps, each = [count - 1 for count in samples.kernels], (1 / time.value, 1 / (ratio.value * time.value))
            relative = process_half(each[0] - each[1], gaps[0] * each[0] - gaps[1] * each[1])
            ratio = ratio.between_processes(ratio.value * relative)
        time = time.between_processes(process_half_us(samples.kernels[0]))
    rate = None if flops is None else flops / time.value / 1e6
    peak = peak_tflops if settings["roof"] == "fp32" else BF16_DATASHEET_TFLOPS
    of_peak = None if rate is None or peak is None else rate / peak
    hot = median(samples.hot[0]) if samples.hot else None
    hot_ratio = paired_ratio(samples.hot[1], samples.hot[0]) if len(samples.hot) > 1 else None
    return Summary(time, ratio, samples.sm_mhz, rate, of_peak, hot, hot_ratio)


def _estimate(samples: Reading, which: str, statistic: str) -> Estimate:
    return estimate_of(samples.counted(which), statistic, samples.placements(which))
