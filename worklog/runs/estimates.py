"""A value with its 95 % interval: medians over launches and placements, ratios, and what differs between processes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from worklog.errors import BadSetting

MEDIAN_OF = 3  # the fewest samples whose median ignores one of them
PILOT = 9  # placements from which the variance is estimated: see median()
# The 97.5 % quantile of Student's t for 1 to PILOT - 1 degrees of freedom.
STUDENT = (12.7062047362, 4.30265272975, 3.18244630528, 2.7764451052, 2.57058183564, 2.44691185114, 2.36462425159,
           2.3060041352)  # fmt: skip
SHORTEST_US = 0.01  # a shorter time counts as this in a ratio, since 0 has no logarithm
LEAST_SAMPLES = 6  # for a 95 % interval: 1 - 2 / 2^n of all medians lie between n samples' extremes
# Standard deviations in microseconds, as recorded on an H100 by tests/record/intervals.py: with a new recording
# they must be found again.
DRIFT_SD_US = 0.022  # a short launch, between measurements of one process: the larger of cuBLAS and `shared` at 256
OVERHEAD_SD_US = 0.035  # event overhead, between processes
GAP_SD_US = 0.09  # gap before each further kernel of a launch, between processes
WIDE = 0.05  # an interval wider than this share of its number leaves it two digits or one
NORMAL = NormalDist().inv_cdf(0.975)

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval, in the samples' unit; of fewer than 6 samples in one placement, their whole range.

    launches, placement, process: half-widths of the interval's parts, whose squares add up to its own: what varies
    between launches in one placement, between placements, and between processes; None where a part isn't known.
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
        low, high = (math.hypot(self.value - end, half) for end in (self.low, self.high))
        return replace(self, low=self.value - low, high=self.value + high, process=half)


def median(samples: Sequence[float], placements: Sequence[int] = ()) -> Estimate:
    """The median and its 95 % interval. placements: of each sample. Raises BadSetting unless all samples are finite.

    In one placement: the sample median with its order-statistic interval, interpolated. In several, the interval is
    over the medians of the placements, so it includes what varies between launches. Where most placements have 3
    samples or more, which keep interrupted launches out of the medians: their mean, which is stable where placements
    fall into groups. Otherwise: their median, with its order-statistic interval.

    The mean's interval is Stein's (1945): Student's t with the variance of the first PILOT placements alone. How many
    placements follow is chosen from that variance (worklog.harness.rules), and an interval that also used theirs would
    be too narrow: sampling would stop where the variance is small by chance.
    """
    times = np.asarray(samples, dtype=np.float64)
    if not len(times) or not np.isfinite(times).all():
        finite = int(np.isfinite(times).sum())
        raise BadSetting(f"cannot take the median of {len(times)} samples, {finite} of them finite")
    if not len(placements) or min(placements) == max(placements):
        return _of_order_statistics(times)
    if len(placements) != len(times):
        raise BadSetting(f"{len(times)} samples have {len(placements)} placements: give one for each sample")
    order = np.argsort(placements, kind="stable")
    groups = np.split(times[order], np.flatnonzero(np.diff(np.asarray(placements)[order])) + 1)
    medians = np.array([_middle(np.sort(group)) for group in groups])
    if np.median([len(group) for group in groups]) >= MEDIAN_OF:
        pilot, mean = medians[:PILOT], float(medians.mean())
        half = STUDENT[len(pilot) - 2] * float(pilot.std(ddof=1)) / len(medians) ** 0.5
        whole = Estimate(mean, mean - half, mean + half)
    else:
        whole = _of_order_statistics(medians)
    launches = _launches_part(groups, medians, whole.half_width)
    if launches is None:
        return whole
    return replace(whole, launches=launches, placement=math.sqrt(max(0.0, whole.half_width**2 - launches**2)))


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
    """The half-width of all launches in one placement: of what they differ by from their placement's median, widened
    for the degrees of freedom that these medians take.
    """
    several = [(group, middle) for group, middle in zip(groups, medians, strict=True) if len(group) > 1]
    rest = np.concatenate([group - middle for group, middle in several] or [[]])
    free, total = len(rest) - len(several), sum(map(len, groups))
    if free < LEAST_SAMPLES:
        return None
    return min(half, _of_order_statistics(rest).half_width * math.sqrt(len(rest) / free * len(rest) / total))


@lru_cache(maxsize=4096)
def _rank(count: int) -> tuple[int, float]:
    """The lower end of the interval of `count` sorted values: an index from 0, and the share of the way to the next.
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
    """The ratio, sample by sample: a drift in both cancels. It is the exponential of median() of the logarithms, since
    the arithmetic mean of ratios is too large: with four samples in each placement that scatter by 9 %, it shows a
    kernel as 0.4 % faster than itself. A sample that isn't above the event overhead counts as SHORTEST_US.
    """
    above, below = (np.log(np.maximum(times, SHORTEST_US)) for times in (numerators, denominators))
    logs = median((above - below).tolist(), placements)
    value, low, high = (math.exp(logarithm) for logarithm in (logs.value, logs.low, logs.high))
    scale = (high - low) / (logs.high - logs.low) if logs.high > logs.low else value
    parts = (None if part is None else scale * part for part in (logs.launches, logs.placement))
    return Estimate(value, low, high, *parts)


def over_shapes(values: Sequence[float]) -> tuple[float, float]:
    """Arithmetic mean, as Tensara reports rates over its test cases, and geometric mean, which no single large shape
    decides. Raises BadSetting for no values, or for one that is not above 0.
    """
    if not len(values) or not all(0 < value < np.inf for value in values):
        raise BadSetting(f"cannot average {list(values)} over shapes: each must be a number above 0")
    return float(np.mean(values)), float(np.exp(np.mean(np.log(values))))


def process_label(kernels: int | None) -> str:
    """The label of the process part: for how many kernels per launch, if known, and the GPU of its recording."""
    counted = f"for {kernels} kernel{'' if kernels == 1 else 's'} per launch, " if kernels else ""
    return f"process ({counted}recorded on an H100)"


def process_half_us(kernels: int) -> float:
    """Half-width in microseconds of what varies between processes in the time of a launch of `kernels` kernels."""
    return process_half(1, kernels - 1)


def process_half(overheads: float, gaps: float) -> float:
    """The same for any number of event overheads and gaps. In a ratio of times of one process, they cancel in part."""
    return NORMAL * math.hypot(OVERHEAD_SD_US * overheads, GAP_SD_US * gaps)


def about(value: float, half: float, written: Callable[[float], str]) -> str:
    """The number as `written` writes it; where its 95 % interval is wider than WIDE, to the first digit of the
    half-width: "about 3000" for 3404 ±52 %. half: relative.
    """
    if 2 * half <= WIDE:
        return written(value)
    return "about " + re.sub(r"\.0+\b|(?<=\.\d)0+\b", "", written(rounded(value, value * half)))  # no zeros behind it


def rounded(value: float, half: float) -> float:
    """The value to the first digit of its half-width, at least to its own first digit."""
    return round(value, -math.floor(math.log10(min(half, abs(value)))))
