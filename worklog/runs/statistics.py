"""From samples to a number with a 95 % interval: order statistics over launches in one placement, Stein's two-stage
interval over placements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from worklog.errors import BadSetting

CONFIDENCE = 0.95
MEDIAN_OF = 3  # the fewest samples whose median ignores one of them
PILOT = 9  # placements from which the variance is estimated: see median()
LEAST_SAMPLES = 6  # for an interval of that confidence: 1 - 2 / 2^n of all medians lie between n samples' extremes

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval, in the samples' unit. With fewer than 6 samples in one placement, the interval is
    their whole range.

    launches, placement: half-widths of the interval's two parts, whose squares add up to the interval's: what varies
    between launches in one placement, and what varies between placements. None where they can't be separated.
    """

    value: float
    low: float
    high: float
    launches: float | None = None
    placement: float | None = None

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
        return Estimate(self.value + by, self.low + by, self.high + by, self.launches, self.placement)


def median(samples: Sequence[float], placements: Sequence[int] = ()) -> Estimate:
    """The median and its 95 % interval. Raises BadSetting unless all samples are finite.

    In one placement: the sample median with its order-statistic interval, ranks j and n + 1 - j from the
    binomial(n, 1/2) law. placements: the placement of each sample. If they differ, each placement counts as one value,
    the median of its samples, and the interval is over these values, so it includes what varies between launches.
    Where most placements have 3 samples or more: the mean over placements, which is stable where placements fall into
    groups; the medians keep interrupted launches out of it. Otherwise nothing would: the median over placements with
    its order-statistic interval.

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
    medians = np.array([np.median(group) for group in groups])
    robust = np.median([len(group) for group in groups]) >= MEDIAN_OF
    found = _of_mean(medians) if robust else _of_order_statistics(medians)
    launches = _launches_part(groups, medians, found.half_width)
    placement = None if launches is None else float(np.sqrt(max(0.0, found.half_width**2 - launches**2)))
    return Estimate(found.value, found.low, found.high, launches, placement)


def _of_mean(values: Values) -> Estimate:
    pilot = values[:PILOT]
    mean, half = float(values.mean()), _student(len(pilot)) * float(pilot.std(ddof=1)) / len(values) ** 0.5
    return Estimate(mean, mean - half, mean + half)


def _of_order_statistics(values: Values) -> Estimate:
    ordered, below = np.sort(values), _rank(len(values))
    return Estimate(float(np.median(ordered)), float(ordered[below]), float(ordered[-1 - below]))


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
def _rank(count: int) -> int:
    from scipy.stats import binom  # here, since it takes a second

    return max(0, int(binom.ppf((1 - CONFIDENCE) / 2, count, 0.5)) - 1)


@lru_cache(maxsize=4096)
def _student(count: int) -> float:
    from scipy.stats import t

    return float(t.ppf((1 + CONFIDENCE) / 2, count - 1))


def summarise(samples: Sequence[float], statistic: str, placements: Sequence[int] = ()) -> Estimate:
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


@dataclass(frozen=True)
class Spread:
    """The samples' extremes, quartiles and 5 % and 95 % points, in their unit; no sample is dropped."""

    low: float
    p5: float
    q1: float
    median: float
    q3: float
    p95: float
    high: float

    @property
    def iqr(self) -> float:
        """The interquartile range."""
        return self.q3 - self.q1


def spread(samples: Sequence[float]) -> Spread:
    """Extremes and quantiles, interpolated between samples. Raises BadSetting unless all are finite."""
    median(samples)
    return Spread(*np.quantile(samples, (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)).tolist())


def over_shapes(values: Sequence[float]) -> tuple[float, float]:
    """Arithmetic mean, as Tensara reports rates over its test cases, and geometric mean, which no single large shape
    decides. Raises BadSetting for no values, or for one that is not above 0.
    """
    if not len(values) or not all(0 < value < np.inf for value in values):
        raise BadSetting(f"cannot average {list(values)} over shapes: each must be a number above 0")
    return float(np.mean(values)), float(np.exp(np.mean(np.log(values))))
