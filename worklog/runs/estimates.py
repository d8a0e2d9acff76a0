"""Samples, a column each from the device to the file; what they come to, with a 95 % interval: medians over launches
and placements, ratios, and what differs between processes. A
clock that isn't locked differs by a few tenths of a percent between two measurements, and so do their times.
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
# Standard deviations in microseconds between processes, as recorded on an H100 by tests/record/intervals.py: with a new
# recording they must be found again. Of the event overhead, and of the gap before each further kernel of a launch.
OVERHEAD_SD_US = 0.035
GAP_SD_US = 0.09
NORMAL = NormalDist().inv_cdf(0.975)
PRECISION = 0.005  # two readings of the same thing may differ by this much: sampling stops there
# By how many percent a time grows with a clock 1 % higher, and the half-width, where the samples don't determine it:
# the slopes of the recorded ablations' pairs that do determine theirs (31 of 233) are between -0.66 and -1.
SLOPE = -0.8
SLOPE_HALF = 0.2
CLOCK_OFF = PRECISION / -SLOPE  # a clock this far off moves a time by PRECISION
# Standard deviation of the logarithm of what a host clock reads, between measurements of one kernel at one size, in the
# recording `grid/h100`: with a new recording it must be found again.
HOST_SD = 0.20
HOST_HALF = NORMAL * HOST_SD  # of the 95 % interval

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """One timed launch: microseconds as read (event overhead included), SM clock in MHz (NaN if not known), whether it
    counts, and the placement of the buffers. Raises LaunchFailed for a time that isn't finite and 0 or more.
    """

    us: float
    sm_mhz: float
    counts: bool = True
    placement: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.us < math.inf:
            where = (
                "the driver's events don't work here (some virtual GPUs, confidential computing)"
            )
            raise LaunchFailed(
                f"a launch was read as {self.us} µs: {where}: compare with --set timer=host"
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
                raise ValueError(
                    f"{self.name}: {name} has {len(values)} values for {len(self.us)} times"
                )


@dataclass(frozen=True)
class Samples:
    """All launches of a loop: sides[0] is the kernel's, the others are its baselines'; launches of one number are one
    turn. counts: 1 or 0 for each turn; timed in sequence, a baseline may have more launches, which don't count.
    overhead_us: the event overhead in each, if the settings remove it from results. throttle_mask: NVML's reasons.
    """

    sides: list[Side] = field(default_factory=list)
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
        hot: Sequence[Sequence[float]] = (),
        kernels: Sequence[int | None] = (),
        throttle_mask: int = 0,
    ) -> Samples:
        """From the samples of each side; times to a nanosecond, clocks to 0.1 MHz."""
        sides = []
        for number, (name, samples) in enumerate(zip(names, series, strict=True)):
            clocks = [
                None if math.isnan(sample.sm_mhz) else round(sample.sm_mhz, 1) for sample in samples
            ]
            hot_us = [round(us, 3) for us in hot[number]] if hot else []
            times = [round(sample.us, 3) for sample in samples]
            places = [sample.placement for sample in samples]
            sides.append(
                Side(name, times, clocks, places, hot_us, kernels[number] if kernels else None)
            )
        return cls(sides, [int(sample.counts) for sample in series[0]], throttle_mask=throttle_mask)

    @property
    def n(self) -> int:
        """Turns that count."""
        return sum(self.counts)

    def counted(self, side: int = 0, column: str = "us") -> list[Any]:
        """Of a side's launches that count: microseconds as read, or another column; empty where it isn't known."""
        return [
            value
            for value, counts in zip(getattr(self.sides[side], column), self.counts, strict=False)
            if counts
        ]

    def placements(self) -> list[int]:
        """The placement of each of the kernel's."""
        return self.counted(column="placement") or [0] * self.n

    def clocked(self) -> tuple[list[float], list[float]]:
        """The kernel's launches that count and have a clock: clocks in MHz, and microseconds as read."""
        clocks = self.counted(column="sm_mhz")
        times = self.counted()
        return [mhz for mhz in clocks if mhz], [
            us for mhz, us in zip(clocks, times, strict=False) if mhz
        ]

    def clock_logs(self) -> tuple[Values, Values]:
        """Logarithms of the same, the times without the event overhead."""
        clocks, times = self.clocked()
        return np.log(clocks), np.log(np.maximum(np.array(times) - self.overhead_us, SHORTEST_US))

    @cached_property
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
        ours = self.sides[0]
        theirs = self.sides[baseline]
        turns = min(len(ours.us), len(theirs.us))  # timed in sequence, one side may have more
        places = (ours.placement or [0] * turns)[:turns]
        chosen = [[turn] for turn in range(turns) if self.counts[turn]]
        if len(set(places)) == 1:
            twos = [[turn, turn + 1] for turn in range(0, turns - 1, 2)]
            chosen = [two for two in twos if all(self.counts[turn] for turn in two)] or chosen
        means = [
            [sum(side.us[turn] for turn in part) / len(part) for part in chosen]
            for side in (ours, theirs)
        ]
        return means[0], means[1], [places[part[0]] for part in chosen]


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval, in the samples' unit; of fewer than 6 samples in one placement, their whole range.
    process: half-width of the part of it that varies between processes, None where that isn't known.
    """

    value: float
    low: float
    high: float
    process: float | None = None

    @property
    def half_width(self) -> float:
        """Half of the interval's width."""
        return (self.high - self.low) / 2

    @property
    def relative_half_width(self) -> float:
        """Half of the interval's width over the value; what "±0.5 %" means."""
        return self.half_width / abs(self.value) if self.value else float("inf")

    def shifted(self, by: float) -> Estimate:
        """The same plus a constant."""
        return replace(self, value=self.value + by, low=self.low + by, high=self.high + by)

    def between_processes(self, half: float) -> Estimate:
        """The same for any process: wider on each side, by a half-width in quadrature."""
        low, high = (math.hypot(self.value - end, half) for end in (self.low, self.high))
        return replace(self, low=self.value - low, high=self.value + high, process=half)


def median(samples: Sequence[float], placements: Sequence[int] = ()) -> Estimate:
    """The median and its 95 % interval. placements: of each sample. Raises BadSetting unless all samples are finite.

    In one placement: the sample median with its order-statistic interval, interpolated. In several, the interval is
    over the medians of the placements, so it includes what varies between launches. Where most placements have 3
    samples or more, which keep interrupted launches out of the medians: their mean, which is stable where placements
    fall into groups. Otherwise: their median, with its order-statistic interval.

    The mean's interval is Stein's (1945): Student's t with the variance of the first PILOT placements alone, from which
    worklog.harness.rules chooses how many follow. With theirs, sampling would stop where the variance is small by
    chance.
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
        half = STUDENT[len(pilot) - 2] * float(pilot.std(ddof=1)) / len(medians) ** 0.5
        return Estimate(mean, mean - half, mean + half)
    return _of_order_statistics(medians)


def _middle(
    ordered: Values,
) -> float:  # numpy.median takes ten times as long for a few sorted values
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _of_order_statistics(values: Values) -> Estimate:
    ordered = np.sort(values)
    below, inward = _rank(len(values))
    low, high = (
        float(ends[below] + inward * (ends[below + bool(inward)] - ends[below]))
        for ends in (ordered, ordered[::-1])
    )
    return Estimate(_middle(ordered), low, high)


@lru_cache(maxsize=4096)
def _rank(count: int) -> tuple[int, float]:
    """The lower end of the interval of `count` sorted values: an index from 0, and the share of the way to the next.
    Between values, 95 % holds only nearly: Hettmansperger and Sheather (1986). Whole ranks would hold in up to 99 %.
    """
    rank = 0
    ways = 1
    below = ways
    while 40 * below < 2**count:  # the 2.5 % quantile of binomial(count, 1/2), exact in integers
        ways = ways * (count - rank) // (rank + 1)
        rank, below = rank + 1, below + ways
    if not rank:
        return 0, 0.0
    beyond = (2**count - 40 * (below - ways)) / (
        40 * ways
    )  # of the coverage of this rank and of the next one
    return rank - 1, (count - rank) * beyond / (rank + (count - 2 * rank) * beyond)


def estimate_of(
    samples: Sequence[float], statistic: str, placements: Sequence[int] = ()
) -> Estimate:
    """By its setting: "median", or the biased "mean", "min" and "first" with the median's interval shifted."""
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
    """The ratio, sample by sample: a drift in both cancels. It is the exponential of median() of the logarithms, since
    the arithmetic mean of ratios is too large: with four samples in each placement that scatter by 9 %, it shows a
    kernel as 0.4 % faster than itself. A sample that isn't above the event overhead counts as SHORTEST_US.
    """
    above, below = (np.log(np.maximum(times, SHORTEST_US)) for times in (numerators, denominators))
    logs = median((above - below).tolist(), placements)
    return Estimate(*(math.exp(logarithm) for logarithm in (logs.value, logs.low, logs.high)))


def over_shapes(values: Sequence[float]) -> tuple[float, float]:
    """Arithmetic mean, as Tensara reports rates over its test cases, and geometric mean, which no single large shape
    decides. Raises BadSetting for no values, or for one that is not above 0.
    """
    if not len(values) or not all(0 < value < np.inf for value in values):
        raise BadSetting(
            f"cannot average {list(values)} over shapes: each must be a number above 0"
        )
    return float(np.mean(values)), float(np.exp(np.mean(np.log(values))))


def process_half_us(kernels: float, overheads: float = 1) -> float:
    """Half-width in microseconds of what varies between processes in the time of a launch of `kernels` kernels. In a
    ratio of times of one process, overheads and the gaps between kernels cancel in part.
    """
    return NORMAL * math.hypot(OVERHEAD_SD_US * overheads, GAP_SD_US * (kernels - overheads))


@dataclass(frozen=True)
class Summary:
    """Microseconds per launch, and each baseline's time over the kernel's, turn by turn. by_host: by a host clock."""

    samples: Samples
    time: Estimate
    ratios: dict[str, Estimate]
    by_host: bool

    @property
    def relative_half_width(self) -> float:
        """The relative 95 % half-width of the time; by a host clock, with its scatter between processes."""
        half = self.time.relative_half_width
        return math.hypot(half, HOST_HALF) if self.by_host else half


def event_overhead_us(settings: Mapping[str, Any], offset_us: float) -> float:
    """Microseconds that the settings subtract from each sample: the calibrated event overhead, or nothing."""
    return offset_us if (settings["offset"], settings["timer"]) == ("removed", "events") else 0.0


def summarize(samples: Samples, settings: Mapping[str, Any], offset_us: float) -> Summary:
    """Subtract the event overhead, apply the statistic, pair with each baseline.

    settings: offset, timer and statistic, as Harness.as_dict gives them. offset_us: the event overhead, which these may
    remove. Where events time launches whose kernels are known, the intervals hold for other processes, too.
    """
    overhead = event_overhead_us(settings, offset_us)
    statistic = str(settings["statistic"])
    kernels = [side.kernels for side in samples.sides]
    own = kernels[0] if (statistic, settings["timer"]) == ("median", "events") else None
    time = estimate_of(samples.counted(), statistic, samples.placements()).shifted(-overhead)
    ratios = {}
    for number, side in enumerate(samples.sides[1:], 1):
        if statistic == "median":
            ours, theirs, placements = samples.comparisons(number)
            ratio = paired_ratio(
                [us - overhead for us in theirs], [us - overhead for us in ours], placements
            )
        else:
            other = estimate_of(samples.counted(number), statistic)
            value = (other.value - overhead) / time.value
            ratio = Estimate(value, value, value)
        further = kernels[number]
        if own is not None and further is not None:
            per_us = 1 / time.value
            per_other_us = 1 / (ratio.value * time.value)
            relative = process_half_us(own * per_us - further * per_other_us, per_us - per_other_us)
            ratio = ratio.between_processes(ratio.value * relative)
        ratios[side.name] = ratio
    if own is not None:
        time = time.between_processes(process_half_us(own))
    return Summary(
        replace(samples, overhead_us=overhead), time, ratios, settings["timer"] == "host"
    )


def fitted_slope(clocks: Sequence[Values], times: Sequence[Values]) -> tuple[float, float]:
    """By how many percent a time grows with an SM clock 1 % higher: -1 if it is in cycles, 0 if it does not depend on
    the clock, and between them otherwise; and the 95 % half-width of the fit. clocks, times: logarithms, which are
    fitted within each group, since groups differ for other reasons, too. 0 and infinity if the clock never changes.
    """
    x, y = (np.concatenate([group - group.mean() for group in side]) for side in (clocks, times))
    squares = float(x @ x)
    free = len(x) - len(clocks) - 1
    if squares == 0:
        return 0.0, math.inf
    slope = float(x @ y) / squares
    rest = float(np.sum((y - slope * x) ** 2))
    half = NORMAL * math.sqrt(rest / free / squares) if free > 0 else math.inf
    return min(0.0, max(-1.0, slope)), half


PRINTED = 5e-4  # a smaller relative change prints as 0.0 %


def is_visible(log: float, noise: float) -> bool:
    """Decide whether a change is visible: it exceeds the noise, and doesn't print as 0.

    log: the logarithm of the second number over the first one.
    noise: the logarithm by which two equal numbers may differ; 0 if both are computed from the same samples.

    Each text, chart and panel asks this, so that no two of them disagree about an effect.
    """
    return abs(log) > noise and abs(math.expm1(log)) >= PRINTED


class Difference(NamedTuple):
    """The difference of a second number from a first one; of times, at the clock of the first."""

    log: float  # of their ratio
    noise: float  # by how much the logarithms of two equal numbers may differ
    clock: float | None  # the second median clock over the first one minus 1, if it's known

    @property
    def visible(self) -> bool:
        """Whether the difference is visible: see is_visible()."""
        return is_visible(self.log, self.noise)

    @property
    def off(self) -> float:
        """The second number over the first one minus 1."""
        return math.expm1(self.log)


def compare(first: Summary, second: Summary) -> Difference:
    """The difference of two times at the clock of the first, by the slope that the samples of both determine, else by
    SLOPE. The noise is PRECISION plus, in quadrature, both intervals, what the slope's uncertainty makes of the clocks'
    difference.
    """
    log = math.log(second.time.value / first.time.value)
    clock = None
    halves = [first.relative_half_width, second.relative_half_width]
    if first.samples.sm_mhz and second.samples.sm_mhz:
        clock = second.samples.sm_mhz / first.samples.sm_mhz - 1
        slope, half = fitted_slope(
            *zip(first.samples.clock_logs(), second.samples.clock_logs(), strict=True)
        )
        if half > SLOPE_HALF:
            slope = SLOPE
            half = SLOPE_HALF
        log -= slope * math.log1p(clock)
        halves.append(half * clock)
    return Difference(log, PRECISION + math.hypot(*halves), clock)


def compare_shares(first: Estimate, second: Estimate, by_host: bool = False) -> Difference:
    """Compare two shares of a baseline. Kernels that alternate have one clock, so that it cancels in each share.

    by_host: a host clock timed at least one of them, so that it scatters between processes
    """
    log = math.log(second.value / first.value)
    noise = PRECISION + first.relative_half_width + second.relative_half_width
    return Difference(log, math.hypot(noise, HOST_HALF) if by_host else noise, None)
