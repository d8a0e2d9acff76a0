"""Samples, in the columns that a file stores, and estimates from them with 95 % intervals.

Estimates are medians over launches and placements, ratios, and what differs between processes.
A clock that isn't locked differs by a few tenths of a percent between two measurements, and so do
the times of the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from worklog.errors import BadSetting, LaunchFailed

MEDIAN_OF = 3  # the fewest samples whose median ignores one of them
PILOT = 9  # placements from which the variance is estimated: see median()
# The 97.5 % quantile of Student's t for 1 to PILOT - 1 degrees of freedom.
STUDENT = (12.7062047362, 4.30265272975, 3.18244630528, 2.7764451052, 2.57058183564, 2.44691185114, 2.36462425159,
           2.3060041352)  # fmt: skip
SHORTEST_US = 0.01  # a shorter time counts as this in a ratio, since 0 has no logarithm
LEAST_SAMPLES = 6  # for a 95 % interval: 1 - 2 / 2^n of all medians lie between n samples' extremes
# Standard deviations between processes, as tests/record/intervals.py recorded them on an H100. A
# new recording needs new values.
OVERHEAD_SD_US = 0.035  # of the event overhead
GAP_SD_US = 0.09  # of the gap before each further kernel of a launch
NORMAL = NormalDist().inv_cdf(0.975)
PRECISION = 0.005  # two readings of one kernel may differ by this much: sampling stops there
# Percent that a time grows with a clock 1 % higher, and the half-width, if the samples don't
# determine them. Of the pairs of the recorded ablations, 31 of 233 determine their slopes, which
# are between -0.66 and -1.
SLOPE = -0.8
SLOPE_HALF = 0.2
CLOCK_OFF = PRECISION / -SLOPE  # a clock that differs by this share moves a time by PRECISION
# Standard deviation of the logarithm of times by a host clock, between measurements of one kernel
# at one size, in the recording `grid/h100`. A new recording needs a new value.
HOST_SD = 0.20
HOST_HALF = NORMAL * HOST_SD  # half-width of the 95 % interval

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """A timed launch. Raises LaunchFailed for a time that isn't finite and 0 or more."""

    us: float  # as read: event overhead included
    sm_mhz: float  # NaN if unknown
    counts: bool = True
    placement: int = 0  # of the buffers

    def __post_init__(self) -> None:
        if not 0 <= self.us < math.inf:
            cause = (
                "the driver's events don't work here (some virtual GPUs, confidential computing)"
            )
            raise LaunchFailed(
                f"a launch was read as {self.us} µs: {cause}: compare with --set timer=host"
            )


@dataclass(frozen=True)
class LaunchSeries:
    """The launches of a kernel in a loop, with a value per launch in most columns."""

    name: str
    us: list[float] = field(default_factory=list)  # as read: event overhead included
    sm_mhz: list[float | None] = field(default_factory=list)
    placement: list[int] = field(default_factory=list)  # of the buffers
    hot_us: list[float] = field(default_factory=list)  # per back-to-back launch, a value per batch
    kernels: int | None = None  # per launch, if known

    def __post_init__(self) -> None:
        for name in ("sm_mhz", "placement"):
            values = getattr(self, name)
            if values and len(values) != len(self.us):
                raise ValueError(
                    f"{self.name}: {name} has {len(values)} values for {len(self.us)} times"
                )


@dataclass(frozen=True)
class Samples:
    """All launches of a loop. Launches with the same position in their sides are a turn.

    sides: sides[0] is the kernel's, the others are the baselines'
    counts: 1 or 0 for each turn; a baseline that is timed in sequence may have more launches,
        which don't count
    overhead_us: the event overhead in each launch, if the settings remove it from results
    throttle_mask: NVML's reasons
    """

    sides: list[LaunchSeries] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    overhead_us: float = 0.0
    throttle_mask: int = 0

    def __post_init__(self) -> None:
        times = self.sides[0].us if self.sides else []
        if len(self.counts) != len(times):
            raise ValueError(f"counts has {len(self.counts)} values for {len(times)} times")
        batches = {len(side.hot_us) for side in self.sides if side.hot_us}
        if len(batches) > 1:
            raise ValueError(f"hot_us has {sorted(batches)} values on its sides")

    @classmethod
    def of_turns(
        cls,
        names: Sequence[str],
        series: Sequence[Sequence[Sample]],
        *,
        hot: Sequence[Sequence[float]] = (),
        kernels: Sequence[int | None] = (),
        throttle_mask: int = 0,
    ) -> Samples:
        """Return the samples of each side in columns.

        Times are rounded to a nanosecond, clocks to 0.1 MHz.

        names: of the sides
        series: the samples of each side
        hot: microseconds of each side's back-to-back launches
        kernels: kernels per launch of each side, if known
        """
        sides = []
        for number, (name, samples) in enumerate(zip(names, series, strict=True)):
            clocks = [
                None if math.isnan(sample.sm_mhz) else round(sample.sm_mhz, 1) for sample in samples
            ]
            hot_us = [round(us, 3) for us in hot[number]] if hot else []
            times = [round(sample.us, 3) for sample in samples]
            places = [sample.placement for sample in samples]
            sides.append(
                LaunchSeries(
                    name, times, clocks, places, hot_us, kernels[number] if kernels else None
                )
            )
        return cls(sides, [int(sample.counts) for sample in series[0]], throttle_mask=throttle_mask)

    @property
    def n(self) -> int:
        """The number of turns that count."""
        return sum(self.counts)

    def counted(self, side: int = 0, column: str = "us") -> list[Any]:
        """Return a column of a side's launches that count; empty if it's unknown.

        column: microseconds as read, or another field of LaunchSeries
        """
        values = getattr(self.sides[side], column)
        return [value for value, counts in zip(values, self.counts, strict=False) if counts]

    def placements(self) -> list[int]:
        """Return the placement of each launch of the kernel that counts."""
        return self.counted(column="placement") or [0] * self.n

    def clocked(self) -> tuple[list[float], list[float]]:
        """Return clocks and times of the kernel's launches that count and have a clock.

        Clocks are in MHz, times in microseconds as read.
        """
        clocks = self.counted(column="sm_mhz")
        times = self.counted()
        clocked_times = [us for mhz, us in zip(clocks, times, strict=False) if mhz]
        return [mhz for mhz in clocks if mhz], clocked_times

    @cached_property
    def clock_logs(self) -> tuple[Values, Values]:
        """The logarithms of clocked(), the times without the event overhead."""
        clocks, times = self.clocked()
        return np.log(clocks), np.log(np.maximum(np.array(times) - self.overhead_us, SHORTEST_US))

    @cached_property
    def sm_mhz(self) -> float | None:
        """The median SM clock of the kernel's launches that count, if it's known."""
        clocks = self.clocked()[0] if self.sides else []
        return float(np.median(clocks)) if clocks else None

    def comparisons(self, baseline: int = 1) -> tuple[list[float], list[float], list[int]]:
        """Return the times of the kernel and a baseline by turn, and the placements.

        Times are in microseconds, of the turns that count. If all turns have one placement, times
        are means over pairs of consecutive turns that both count: the kernel goes first in one
        turn, the baseline in the other, and callers that alternate buffers swap them. Without such
        a pair, times are of single turns.
        """
        ours = self.sides[0]
        theirs = self.sides[baseline]
        turns = min(len(ours.us), len(theirs.us))  # timed in sequence, one side may have more
        placements = (ours.placement or [0] * turns)[:turns]
        groups = [[turn] for turn in range(turns) if self.counts[turn]]
        if len(set(placements)) == 1:
            pairs = [[turn, turn + 1] for turn in range(0, turns - 1, 2)]
            groups = [pair for pair in pairs if all(self.counts[turn] for turn in pair)] or groups
        return (
            [_mean_over(group, ours.us) for group in groups],
            [_mean_over(group, theirs.us) for group in groups],
            [placements[group[0]] for group in groups],
        )


def _mean_over(turns: Sequence[int], times: Sequence[float]) -> float:
    return sum(times[turn] for turn in turns) / len(turns)


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval, in the samples' unit.

    The interval of fewer than 6 samples in one placement is their whole range.
    """

    value: float
    low: float
    high: float
    process: float | None = None  # half-width of what varies between processes, if known

    @property
    def half_width(self) -> float:
        """Half of the interval's width."""
        return (self.high - self.low) / 2

    @property
    def relative_half_width(self) -> float:
        """Half of the interval's width over the value, as in "±0.5 %"."""
        return self.half_width / abs(self.value) if self.value else float("inf")

    def shifted(self, offset: float) -> Estimate:
        """Return the estimate plus a constant."""
        return replace(
            self, value=self.value + offset, low=self.low + offset, high=self.high + offset
        )

    def between_processes(self, half_width: float) -> Estimate:
        """Return the estimate for any process.

        half_width: added to each side of the interval, in quadrature
        """
        below = math.hypot(self.value - self.low, half_width)
        above = math.hypot(self.value - self.high, half_width)
        return replace(self, low=self.value - below, high=self.value + above, process=half_width)


def median(samples: Sequence[float], placements: Sequence[int] = ()) -> Estimate:
    """Return the median and its 95 % interval. placements: of each sample.

    In one placement: the sample median with its order-statistic interval, interpolated. In several
    placements, the interval is over the medians of the placements, so it includes what varies
    between launches. If most placements have 3 samples or more, which keep interrupted launches out
    of the medians: the mean of the medians, which is stable if placements fall into groups.
    Otherwise: the median of the medians, with its order-statistic interval.

    The mean's interval is Stein's (1945): Student's t with the variance of the first PILOT
    placements alone, from which worklog.harness.rules chooses how many follow. With the variance of
    all placements, sampling would stop when the variance is small by chance.

    Raises BadSetting unless all samples are finite.
    """
    times = np.asarray(samples, dtype=np.float64)
    if not len(times) or not np.isfinite(times).all():
        finite = int(np.isfinite(times).sum())
        raise BadSetting(f"cannot take the median of {len(times)} samples, {finite} of them finite")
    if not len(placements) or min(placements) == max(placements):
        return _of_order_statistics(times)
    if len(placements) != len(times):
        raise BadSetting(
            f"{len(times)} samples have {len(placements)} placements: give one for each sample"
        )
    order = np.argsort(placements, kind="stable")
    groups = np.split(times[order], np.flatnonzero(np.diff(np.asarray(placements)[order])) + 1)
    medians = np.array([_middle(np.sort(group)) for group in groups])
    if np.median([len(group) for group in groups]) >= MEDIAN_OF:
        pilot = medians[:PILOT]
        mean = float(medians.mean())
        half_width = STUDENT[len(pilot) - 2] * float(pilot.std(ddof=1)) / len(medians) ** 0.5
        return Estimate(mean, mean - half_width, mean + half_width)
    return _of_order_statistics(medians)


def _middle(ordered: Values) -> float:
    """Return the median of sorted values; numpy.median needs ten times as long for a few."""
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _of_order_statistics(values: Values) -> Estimate:
    """Return the sample median with its order-statistic interval."""
    ordered = np.sort(values)
    index, share = _rank(len(values))
    low = _interpolated(ordered, index, share)
    high = _interpolated(ordered[::-1], index, share)
    return Estimate(_middle(ordered), low, high)


def _interpolated(ordered: Values, index: int, share: float) -> float:
    """Return a number at a share of the way from a value to the next value."""
    if not share:
        return float(ordered[index])
    return float(ordered[index] + share * (ordered[index + 1] - ordered[index]))


@lru_cache(maxsize=4096)
def _rank(count: int) -> tuple[int, float]:
    """Return the lower end of the interval of `count` sorted values.

    The end is an index from 0, and the share of the way to the next value. Between values, the
    coverage is only nearly 95 %: Hettmansperger and Sheather (1986). Whole ranks would cover up to
    99 %.
    """
    rank = 0
    combinations = 1  # count choose rank
    cumulative = combinations
    # The 2.5 % quantile of binomial(count, 1/2), exact in integers.
    while 40 * cumulative < 2**count:
        combinations = combinations * (count - rank) // (rank + 1)
        rank += 1
        cumulative += combinations
    if not rank:
        return 0, 0.0
    # Between the coverage of this rank and that of the next rank.
    position = (2**count - 40 * (cumulative - combinations)) / (40 * combinations)
    return rank - 1, (count - rank) * position / (rank + (count - 2 * rank) * position)


def estimate_of(
    samples: Sequence[float], statistic: str, placements: Sequence[int] = ()
) -> Estimate:
    """Return an estimate by the setting `statistic`.

    statistic: "median", or the biased "mean", "min" and "first", with the median's interval,
        shifted
    """
    middle = median(samples, placements)
    if statistic == "median":
        return middle
    value = {
        "mean": float(np.mean(samples)),
        "min": float(np.min(samples)),
        "first": float(samples[0]),
    }[statistic]
    return middle.shifted(value - middle.value)


def paired_ratio(
    numerators: Sequence[float], denominators: Sequence[float], placements: Sequence[int] = ()
) -> Estimate:
    """Return the ratio of two series, sample by sample: a drift in both cancels.

    The ratio is the exponential of median() of the logarithms, since the arithmetic mean of ratios
    is too large: with four samples in each placement that scatter by 9 %, it shows a kernel as
    0.4 % faster than itself. A sample that doesn't exceed the event overhead counts as SHORTEST_US.
    """
    numerator_logs = np.log(np.maximum(numerators, SHORTEST_US))
    denominator_logs = np.log(np.maximum(denominators, SHORTEST_US))
    logs = median((numerator_logs - denominator_logs).tolist(), placements)
    return Estimate(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high))


def over_shapes(values: Sequence[float]) -> tuple[float, float]:
    """Return the arithmetic and the geometric mean over shapes.

    Tensara reports the arithmetic mean of rates over its test cases. No single large shape
    decides the geometric mean.
    Raises BadSetting for no values, or for a value that isn't above 0.
    """
    if not len(values) or not all(0 < value < np.inf for value in values):
        raise BadSetting(
            f"cannot average {list(values)} over shapes: each must be a number above 0"
        )
    return float(np.mean(values)), float(np.exp(np.mean(np.log(values))))


def process_half_us(kernels: float, overheads: float = 1) -> float:
    """Return the half-width in µs of a launch's time between processes.

    The event overhead and the gaps between kernels vary between processes.

    kernels: in the launch
    overheads: event overheads in the time
    In a ratio of times of one process, overheads and the gaps between kernels cancel in part.
    """
    return NORMAL * math.hypot(OVERHEAD_SD_US * overheads, GAP_SD_US * (kernels - overheads))


@dataclass(frozen=True)
class Summary:
    """The estimates from the samples of a loop."""

    samples: Samples
    time: Estimate  # µs per launch
    ratios: dict[str, Estimate]  # each baseline's time over the kernel's, turn by turn
    by_host: bool  # timed by a host clock

    @property
    def relative_half_width(self) -> float:
        """The relative 95 % half-width of the time.

        By a host clock, it includes the clock's scatter between processes.
        """
        half_width = self.time.relative_half_width
        return math.hypot(half_width, HOST_HALF) if self.by_host else half_width


def event_overhead_us(settings: Mapping[str, Any], offset_us: float) -> float:
    """Return the µs that the settings subtract from each sample.

    offset_us: the calibrated event overhead
    """
    if settings["offset"] == "removed" and settings["timer"] == "events":
        return offset_us
    return 0.0


def summarize(samples: Samples, settings: Mapping[str, Any], offset_us: float) -> Summary:
    """Subtract the event overhead, apply the statistic, pair with each baseline.

    settings: offset, timer and statistic, as Harness.as_dict returns them
    offset_us: the event overhead, which the settings may remove
    If events time launches whose kernels are known, the intervals also hold for other processes.
    """
    overhead_us = event_overhead_us(settings, offset_us)
    statistic = str(settings["statistic"])
    kernels = None  # per launch, if the intervals hold for other processes
    if statistic == "median" and settings["timer"] == "events":
        kernels = samples.sides[0].kernels
    time = estimate_of(samples.counted(), statistic, samples.placements()).shifted(-overhead_us)
    ratios = {}
    for number, side in enumerate(samples.sides[1:], 1):
        ratio = _ratio(samples, number, statistic=statistic, overhead_us=overhead_us, time=time)
        if kernels is not None and side.kernels is not None:
            per_us = 1 / time.value
            per_baseline_us = 1 / (ratio.value * time.value)
            relative_half_width = process_half_us(
                kernels * per_us - side.kernels * per_baseline_us, per_us - per_baseline_us
            )
            ratio = ratio.between_processes(ratio.value * relative_half_width)
        ratios[side.name] = ratio
    if kernels is not None:
        time = time.between_processes(process_half_us(kernels))
    return Summary(
        replace(samples, overhead_us=overhead_us), time, ratios, settings["timer"] == "host"
    )


def _ratio(
    samples: Samples, baseline: int, *, statistic: str, overhead_us: float, time: Estimate
) -> Estimate:
    """Return a baseline's time over the kernel's.

    baseline: its number among the sides
    time: the kernel's, without the event overhead
    """
    if statistic == "median":
        ours, theirs, placements = samples.comparisons(baseline)
        return paired_ratio(
            [us - overhead_us for us in theirs], [us - overhead_us for us in ours], placements
        )
    baseline_time = estimate_of(samples.counted(baseline), statistic)
    value = (baseline_time.value - overhead_us) / time.value
    return Estimate(value, value, value)


def fitted_slope(clocks: Sequence[Values], times: Sequence[Values]) -> tuple[float, float]:
    """Return the percent that a time grows with an SM clock 1 % higher.

    Also returns its half-width.

    The slope is -1 if the time is in cycles, 0 if it doesn't depend on the clock, and between them
    otherwise. The half-width is of the fit's 95 % interval. 0 and infinity if the clock never
    changes.
    clocks, times: logarithms, which are fitted within each group, since groups also differ for
        other reasons
    """
    clock_deviations = np.concatenate([group - group.mean() for group in clocks])
    time_deviations = np.concatenate([group - group.mean() for group in times])
    squares = float(clock_deviations @ clock_deviations)
    degrees_of_freedom = len(clock_deviations) - len(clocks) - 1
    if squares == 0:
        return 0.0, math.inf
    slope = float(clock_deviations @ time_deviations) / squares
    half_width = math.inf
    if degrees_of_freedom > 0:
        residuals = float(np.sum((time_deviations - slope * clock_deviations) ** 2))
        half_width = NORMAL * math.sqrt(residuals / degrees_of_freedom / squares)
    return min(0.0, max(-1.0, slope)), half_width


PRINTED = 5e-4  # a smaller relative change prints as 0.0 %


def is_visible(log: float, noise: float) -> bool:
    """Decide whether a change is visible: it exceeds the noise, and doesn't print as 0.

    log: the logarithm of the second number over the first number
    noise: the logarithm by which two equal numbers may differ; 0 if both are computed from the
        same samples

    Each text, chart and panel asks this, so that no two of them disagree about an effect.
    """
    return abs(log) > noise and abs(math.expm1(log)) >= PRINTED


class Difference(NamedTuple):
    """The difference of a second number from a first number.

    Of times, at the clock of the first.
    """

    log: float  # of the ratio
    noise: float  # by which the logarithms of two equal numbers may differ
    clock: float | None  # second median clock / first median clock - 1, if it's known

    @property
    def visible(self) -> bool:
        """Whether the difference is visible: see is_visible()."""
        return is_visible(self.log, self.noise)

    @property
    def off(self) -> float:
        """The second number over the first number, minus 1."""
        return math.expm1(self.log)


def compare_times(first: Summary, second: Summary) -> Difference:
    """Return the difference of two times at the clock of the first.

    The clock's effect is computed with the slope that the samples of both determine, else with
    SLOPE. The noise is PRECISION plus, in quadrature, both intervals and the effect of the slope's
    uncertainty on the clocks' difference.
    """
    log = math.log(second.time.value / first.time.value)
    clock = None
    half_widths = [first.relative_half_width, second.relative_half_width]
    if first.samples.sm_mhz and second.samples.sm_mhz:
        clock = second.samples.sm_mhz / first.samples.sm_mhz - 1
        slope, slope_half_width = fitted_slope(
            *zip(first.samples.clock_logs, second.samples.clock_logs, strict=True)
        )
        if slope_half_width > SLOPE_HALF:
            slope = SLOPE
            slope_half_width = SLOPE_HALF
        log -= slope * math.log1p(clock)
        half_widths.append(slope_half_width * clock)
    return Difference(log, PRECISION + math.hypot(*half_widths), clock)


def compare_shares(first: Estimate, second: Estimate, by_host: bool = False) -> Difference:
    """Compare two shares of a baseline.

    Kernels that alternate have one clock, so it cancels in each share.

    by_host: a host clock timed a share, so the share scatters between processes
    """
    log = math.log(second.value / first.value)
    noise = PRECISION + first.relative_half_width + second.relative_half_width
    return Difference(log, math.hypot(noise, HOST_HALF) if by_host else noise, None)
