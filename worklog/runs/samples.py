"""Samples, a column each from the device to the file, and `summarize`, which turns them into a result with a 95 %
interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from worklog.errors import LaunchFailed
from worklog.runs.estimates import Estimate, estimate_of, paired_ratio, process_half, process_half_us
from worklog.settings import BF16_DATASHEET_TFLOPS


@dataclass(frozen=True)
class Sample:
    """One timed launch: microseconds as read (event overhead included), SM clock in MHz (NaN if not known), whether it
    counts, and the number of the placement of the buffers. Raises LaunchFailed for a time that isn't finite and 0 or
    more.
    """

    us: float
    sm_mhz: float
    counts: bool = True
    placement: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.us < math.inf:
            raise LaunchFailed(
                f"a launch was read as {self.us} µs: the driver's events don't work here (some virtual GPUs, "
                "confidential computing): compare with --set timer=host"
            )


@dataclass(frozen=True)
class Side:
    """The launches of one kernel in a loop: microseconds as read (event overhead included), SM clocks in MHz and
    placements of the buffers, a value for each; hot_us: microseconds per launch of launches in a row, a value for each
    batch; kernels: kernels per launch, if known.
    """

    name: str
    us: list[float] = field(default_factory=list)
    sm_mhz: list[float | None] = field(default_factory=list)
    placement: list[int] = field(default_factory=list)
    hot_us: list[float] = field(default_factory=list)
    kernels: int | None = None

    def __post_init__(self) -> None:
        for name in ("sm_mhz", "placement"):
            values = getattr(self, name)
            if values and len(values) != len(self.us):
                raise ValueError(f"{self.name}: {name} has {len(values)} values for {len(self.us)} times")


@dataclass(frozen=True)
class Samples:
    """All launches of a loop: sides[0] is the kernel's, the others are its baselines'; launches of one number are one
    turn. counts: 1 or 0 for each turn; timed in sequence, a baseline may have more launches, which don't count.
    """

    sides: list[Side] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.sides and len(self.counts) != len(self.sides[0].us):
            raise ValueError(f"counts has {len(self.counts)} values for {len(self.sides[0].us)} times")
        batches = {len(side.hot_us) for side in self.sides if side.hot_us}
        if len(batches) > 1:
            raise ValueError(f"hot_us has {sorted(batches)} values on its sides")

    @classmethod
    def of_turns(
        cls,
        names: Sequence[str],
        series: Sequence[Sequence[Sample]],
        hot: Sequence[Sequence[float]] = (),
        kernels: Sequence[int | None] = (),
    ) -> Samples:
        """From the samples of each side; times to a nanosecond, clocks to 0.1 MHz."""
        sides = []
        for number, (name, samples) in enumerate(zip(names, series, strict=True)):
            clocks = [None if math.isnan(sample.sm_mhz) else round(sample.sm_mhz, 1) for sample in samples]
            side = Side(
                name,
                [round(sample.us, 3) for sample in samples],
                clocks,
                [sample.placement for sample in samples],
                [round(us, 3) for us in hot[number]] if hot else [],
                kernels[number] if kernels else None,
            )
            sides.append(side)
        return cls(sides, [int(sample.counts) for sample in series[0]])

    @property
    def n(self) -> int:
        """Turns that count."""
        return sum(self.counts)

    def _counting(self, column: Sequence[Any]) -> list[Any]:
        return [value for value, counts in zip(column, self.counts, strict=False) if counts]

    def counted(self, side: int = 0) -> list[float]:
        """Microseconds of a side's launches that count, as read."""
        return self._counting(self.sides[side].us)

    def placements(self, side: int = 0) -> list[int]:
        """The placement of each of these."""
        return self._counting(self.sides[side].placement or [0] * len(self.sides[side].us))

    def clocked(self) -> tuple[list[float], list[float]]:
        """The kernel's launches that count and have a clock: clocks in MHz, and microseconds as read."""
        known = [
            (mhz, us) for mhz, us in zip(self._counting(self.sides[0].sm_mhz), self.counted(), strict=False) if mhz
        ]
        return [mhz for mhz, _ in known], [us for _, us in known]

    @property
    def sm_mhz(self) -> float | None:
        """Median SM clock of the kernel's launches that count, None if it could not be read."""
        clocks = self.clocked()[0] if self.sides else []
        return float(np.median(clocks)) if clocks else None

    def comparisons(self, baseline: int = 1) -> tuple[list[float], list[float], list[int]]:
        """Microseconds of the kernel and of a baseline in each turn that counts, and its placement.

        Where all turns have one placement, the mean over each two turns in a row that both count: the kernel goes
        first in one, the baseline in the other, and callers that alternate buffers swap them. Without two such turns,
        single ones again.
        """
        ours, theirs = self.sides[0], self.sides[baseline]
        turns = min(len(ours.us), len(theirs.us))  # timed in sequence, one side may have more
        places = (ours.placement or [0] * turns)[:turns]
        chosen = [[turn] for turn in range(turns) if self.counts[turn]]
        if len(set(places)) == 1:
            twos = [[turn, turn + 1] for turn in range(0, turns - 1, 2)]
            chosen = [two for two in twos if all(self.counts[turn] for turn in two)] or chosen
        means = [[sum(side.us[turn] for turn in part) / len(part) for part in chosen] for side in (ours, theirs)]
        return means[0], means[1], [places[part[0]] for part in chosen]


@dataclass(frozen=True)
class Summary:
    """What samples come to under some settings.

    time: microseconds per launch. ratios: each baseline's time over the kernel's, turn by turn, by name. sm_mhz: median
    SM clock. tflops: TFLOP/s where the work is known. of_peak: its share of the peak.
    """

    time: Estimate
    ratios: dict[str, Estimate]
    sm_mhz: float | None
    tflops: float | None = None
    of_peak: float | None = None

    @property
    def ratio(self) -> Estimate | None:
        """To the first baseline; None without one."""
        return next(iter(self.ratios.values()), None)


def event_overhead_us(settings: Mapping[str, Any], offset_us: float) -> float:
    """Microseconds that the settings subtract from each sample: the calibrated event overhead, or nothing."""
    return offset_us if (settings["offset"], settings["timer"]) == ("removed", "events") else 0.0


def summarize(
    samples: Samples,
    settings: Mapping[str, Any],
    offset_us: float,
    flops: float | None = None,
    peak_tflops: float | None = None,
) -> Summary:
    """Subtract the event overhead, apply the statistic, pair with each baseline, divide by the peak.

    settings: offset, timer, statistic and roof, as Harness.as_dict gives them. offset_us: the event overhead, which
    the settings may remove. flops: of one launch. peak_tflops: the FP32 peak at the samples' clock; the setting `roof`
    may replace it. Where events time launches whose kernels are known, the intervals hold for other processes, too.
    """
    overhead, statistic = event_overhead_us(settings, offset_us), str(settings["statistic"])
    kernels = [side.kernels for side in samples.sides]
    by_process = (statistic, settings["timer"]) == ("median", "events") and kernels[0] is not None
    time = _estimate(samples, 0, statistic).shifted(-overhead)
    ratios = {}
    for number, side in enumerate(samples.sides[1:], 1):
        if statistic == "median":
            ours, theirs, placements = samples.comparisons(number)
            ratio = paired_ratio([us - overhead for us in theirs], [us - overhead for us in ours], placements)
        else:
            value = (_estimate(samples, number, statistic).value - overhead) / time.value
            ratio = Estimate(value, value, value)
        if by_process and kernels[number] is not None:
            gaps = [count - 1 for count in (kernels[0], kernels[number]) if count is not None]
            ours_us, theirs_us = 1 / time.value, 1 / (ratio.value * time.value)
            relative = process_half(ours_us - theirs_us, gaps[0] * ours_us - gaps[1] * theirs_us)
            ratio = ratio.between_processes(ratio.value * relative)
        ratios[side.name] = ratio
    if by_process and kernels[0] is not None:
        time = time.between_processes(process_half_us(kernels[0]))
    rate = None if flops is None else flops / time.value / 1e6
    peak = peak_tflops if settings["roof"] == "fp32" else BF16_DATASHEET_TFLOPS
    of_peak = None if rate is None or peak is None else rate / peak
    return Summary(time, ratios, samples.sm_mhz, rate, of_peak)


def _estimate(samples: Samples, side: int, statistic: str) -> Estimate:
    return estimate_of(samples.counted(side), statistic, samples.placements(side))
