"""Samples, and `summarize`, which turns them into a result with a 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import zip_longest
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.errors import BadSetting, LaunchFailed
from worklog.settings import BF16_DATASHEET_TFLOPS

NAN = float("nan")
HOT = ("hot_us", "hot_baseline_us")  # columns of a run file
Turn = tuple["Sample", "Sample"]  # one launch of the subject and one of the baseline


@dataclass(frozen=True)
class Sample:
    """One timed launch: microseconds as read (event overhead included), SM clock in MHz, and whether it counts.
    around_us: the global timer's microseconds for the launch with the flush before it. placement: number of the
    placement of the buffers. Raises LaunchFailed for a time that isn't finite and 0 or more.
    """

    us: float
    sm_mhz: float
    counts: bool = True
    around_us: float = NAN
    placement: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.us < math.inf:
            raise LaunchFailed(
                f"a launch was read as {self.us} µs: the driver's events or the tracer don't work here "
                "(some virtual GPUs, confidential computing): compare with --set timer=cupti"
            )


@dataclass(frozen=True)
class Energy:
    """Of one launch among many in a row: joules; watts, the average power; celsius, the temperature at the end."""

    joules: float
    watts: float
    celsius: float | None


@dataclass
class Reading:
    """All samples, turn by turn, and what went wrong while they were taken. series: of the subject, then of each of its
    baselines; in the same order, hot: microseconds of one launch in a row, a value for each batch, [] if not taken; and
    kernels: how many one launch enqueues, [] if not known.
    """

    series: list[list[Sample]]
    throttle_mask: int = 0
    converged: bool = False
    warmup_launches: int = 0
    degradations: list[str] = field(default_factory=list)
    hot: list[list[float]] = field(default_factory=list)
    energy: Energy | None = None
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
        """Of these samples: microseconds by the events, and by the global timer around the launch if it was read."""
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
        kernels = list(columns.get("kernels", ()))
        return cls([_samples(columns, side) for side in ("", "baseline_")], hot=hot, kernels=kernels)

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


MEDIAN_OF = 3  # the fewest samples whose median ignores one of them
PILOT = 9  # placements from which the variance is estimated: see median()
# The 97.5 % quantile of Student's t for 1 to PILOT - 1 degrees of freedom.
STUDENT = (12.7062047362, 4.30265272975, 3.18244630528, 2.7764451052, 2.57058183564, 2.44691185114, 2.36462425159,
           2.3060041352)  # fmt: skip
LEAST_SAMPLES = 6  # for a 95 % interval: 1 - 2 / 2^n of all medians lie between n samples' extremes
# Standard deviations in microseconds on one GPU, as recorded by `worklog peers --only intervals`: of the event overhead
# beyond its calibration between measurements in one process, and between those of any process; and of the gap before
# each further kernel of a launch, between processes.
DRIFT_SD_US, OVERHEAD_SD_US, GAP_SD_US = 0.015, 0.03, 0.1
NORMAL = NormalDist().inv_cdf(0.975)

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval, in the samples' unit. With fewer than 6 samples in one placement, the interval is
    their whole range.

    launches, placement, process: half-widths of the interval's parts, whose squares add up to the interval's: what
    varies between launches in one placement, between placements, and between processes. None where the first two can't
    be separated, and where the third isn't known and so not in the interval.
    """

    value: float
    low: float
    high: float
    launches: float | None = None
    placement: float | None = None
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
        low, high = (math.hypot(self.value - one, half) for one in (self.low, self.high))
        return replace(self, low=self.value - low, high=self.value + high, process=half)


def median(samples: Sequence[float], placements: Sequence[int] = ()) -> Estimate:
    """The median and its 95 % interval. Raises BadSetting unless all samples are finite.

    In one placement: the sample median with its order-statistic interval, interpolated. placements: the placement of
    each sample. If they differ, each placement counts as one value, the median of its samples, and the interval is over
    these values, so it includes what varies between launches. Where most placements have 3 samples or more: the mean
    over placements, which is stable where placements fall into groups; the medians keep interrupted launches out of it.
    Otherwise nothing would: the median over placements with its order-statistic interval.

    The mean's interval is Stein's (1945): Student's t with the variance of the first PILOT placements alone. How many
    placements follow is chosen from that variance (worklog.harness.rules), and an interval that also used theirs would
    be too narrow: sampling would stop where the variance is small by chance.
    """
    times = np.asarray(samples, dtype=np.float64)
    if not len(times) or not np.isfinite(times).all():
        raise BadSetting(
            f"cannot take the median of {len(times)} samples, {int(np.isfinite(times).sum())} of them finite"
        )
    if not len(placements) or min(placements) == max(placements):
        return _of_order_statistics(times)
    if len(placements) != len(times):
        raise BadSetting(f"{len(times)} samples have {len(placements)} placements: give one for each sample")
    order = np.argsort(placements, kind="stable")
    groups = np.split(times[order], np.flatnonzero(np.diff(np.asarray(placements)[order])) + 1)
    medians = np.array([_middle(np.sort(group)) for group in groups])
    robust = np.median([len(group) for group in groups]) >= MEDIAN_OF
    found = _of_mean(medians) if robust else _of_order_statistics(medians)
    launches = _launches_part(groups, medians, found.half_width)
    placement = None if launches is None else float(np.sqrt(max(0.0, found.half_width**2 - launches**2)))
    return Estimate(found.value, found.low, found.high, launches, placement)


def _of_mean(values: Values) -> Estimate:
    pilot = values[:PILOT]
    mean, half = float(values.mean()), STUDENT[len(pilot) - 2] * float(pilot.std(ddof=1)) / len(values) ** 0.5
    return Estimate(mean, mean - half, mean + half)


def _middle(ordered: Values) -> float:
    """The median of sorted values. numpy.median takes ten times as long for a few values."""
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _of_order_statistics(values: Values) -> Estimate:
    ordered = np.sort(values)
    below, inward = _rank(len(values))
    low, high = (
        float(ends[below] + inward * (ends[below + bool(inward)] - ends[below])) for ends in (ordered, ordered[::-1])
    )
    return Estimate(_middle(ordered), low, high)


def _launches_part(groups: Sequence[Values], medians: Values, half: float) -> float | None:
    """The half-width that all launches would have in one placement: the order-statistic interval of what they differ by
    from their placement's median, widened for the degrees of freedom that these medians take. Never wider than all.
    """
    rest = np.concatenate(
        [group - middle for group, middle in zip(groups, medians, strict=True) if len(group) > 1] or [[]]
    )
    free = len(rest) - sum(len(group) > 1 for group in groups)
    if free < LEAST_SAMPLES:
        return None
    total = sum(map(len, groups))
    return min(half, _of_order_statistics(rest).half_width * float(np.sqrt(len(rest) / free * len(rest) / total)))


@lru_cache(maxsize=4096)
def _rank(count: int) -> tuple[int, float]:
    """Where the interval of so many ordered values begins: a number from 0, and the share of the way to the next one.
    Between values, 95 % holds only nearly: Hettmansperger and Sheather (1986). Whole ranks would hold in up to 99 %.
    """
    rank, ways = 0, 1
    below = ways
    while 40 * below < 2**count:  # the 2.5 % quantile of binomial(count, 1/2), exact in integers
        ways = ways * (count - rank) // (rank + 1)
        rank, below = rank + 1, below + ways
    if not rank:
        return 0, 0.0
    beyond = (2**count - 40 * (below - ways)) / (40 * ways)  # of the coverage of this rank and of the next one
    return rank - 1, (count - rank) * beyond / (rank + (count - 2 * rank) * beyond)


def estimate_of(samples: Sequence[float], statistic: str, placements: Sequence[int] = ()) -> Estimate:
    """The estimate by its setting: "median", or the biased "mean", "min" and "first", whose interval is the median's
    shifted onto them.
    """
    middle = median(samples, placements)
    if statistic == "median":
        return middle
    value = {"mean": float(np.mean(samples)), "min": float(np.min(samples)), "first": float(samples[0])}[statistic]
    return middle.shifted(value - middle.value)


def paired_ratio(
    numerators: Sequence[float], denominators: Sequence[float], placements: Sequence[int] = ()
) -> Estimate:
    """The median of the ratios, sample by sample, as median() takes it: a drift in both cancels."""
    return median(np.divide(numerators, denominators).tolist(), placements)


def over_shapes(values: Sequence[float]) -> tuple[float, float]:
    """Arithmetic mean, as Tensara reports rates over its test cases, and geometric mean, which no single large shape
    decides. Raises BadSetting for no values, or for one that is not above 0.
    """
    if not len(values) or not all(0 < value < np.inf for value in values):
        raise BadSetting(f"cannot average {list(values)} over shapes: each must be a number above 0")
    return float(np.mean(values)), float(np.exp(np.mean(np.log(values))))


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
    replace it. Where the launches' kernels are known, both intervals hold for other processes, too.
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
    if samples.kernels and statistic == "median":
        gaps = [count - 1 for count in samples.kernels]
        if ratio:
            each = [1 / time.value, 1 / (ratio.value * time.value)]
            relative = _process_half(each[0] - each[1], gaps[0] * each[0] - gaps[1] * each[1])
            ratio = ratio.between_processes(ratio.value * relative)
        time = time.between_processes(process_half_us(samples.kernels[0]))
    rate = None if flops is None else flops / time.value / 1e6
    peak = peak_tflops if settings["roof"] == "fp32" else BF16_DATASHEET_TFLOPS
    of_peak = None if rate is None or peak is None else rate / peak
    hot = median(samples.hot[0]) if samples.hot else None
    hot_ratio = paired_ratio(samples.hot[1], samples.hot[0]) if len(samples.hot) > 1 else None
    return Summary(time, ratio, samples.sm_mhz, rate, of_peak, hot, hot_ratio)


def process_half_us(kernels: int) -> float:
    """Half-width in microseconds of what varies between processes in the time of a launch of so many kernels."""
    return _process_half(1, kernels - 1)


def _process_half(overheads: float, gaps: float) -> float:
    """The same for any number of event overheads and gaps. In a ratio of times of one process, they cancel in part."""
    return NORMAL * math.hypot(OVERHEAD_SD_US * overheads, GAP_SD_US * gaps)


def _estimate(samples: Reading, which: str, statistic: str) -> Estimate:
    return estimate_of(samples.counted(which), statistic, samples.placements(which))
