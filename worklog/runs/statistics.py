"""From samples to a number with an interval. Order statistics only: no assumption about the shape of the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from worklog.errors import BadSetting

CONFIDENCE = 0.95
LEAST_SAMPLES = 6  # for an interval of that confidence: 1 - 2 / 2^n of all medians lie between n samples' extremes


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval, in the samples' unit. With fewer than 6 samples the interval is their whole
    range.
    """

    value: float
    low: float
    high: float

    @property
    def relative_half_width(self) -> float:
        """Half of the interval's width over the value; what "±0.5 %" means."""
        return (self.high - self.low) / 2 / abs(self.value) if self.value else float("inf")


def median(samples: Sequence[float]) -> Estimate:
    """The median with its order-statistic interval: ranks j and n + 1 - j hold it with at least 95 %, from the
    binomial(n, 1/2) law.
    """
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    if not len(ordered) or not np.isfinite(ordered).all():
        raise BadSetting(
            f"cannot take the median of {len(ordered)} samples, {int(np.isfinite(ordered).sum())} of them finite"
        )
    below = max(0, int(binom.ppf((1 - CONFIDENCE) / 2, len(ordered), 0.5)) - 1)
    return Estimate(float(np.median(ordered)), float(ordered[below]), float(ordered[-1 - below]))


def summarise(samples: Sequence[float], statistic: str) -> Estimate:
    """The estimate by its setting: "median", or the lies "mean", "min" and "first", whose interval is the median's
    shifted onto them.
    """
    middle = median(samples)
    if statistic == "median":
        return middle
    value = {"mean": float(np.mean(samples)), "min": float(np.min(samples)), "first": float(samples[0])}[statistic]
    shift = value - middle.value
    return Estimate(value, middle.low + shift, middle.high + shift)


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate:
    """Median of the sample-by-sample ratio: what drifts, drifts in both, and cancels."""
    return median(np.divide(numerators, denominators).tolist())


@dataclass(frozen=True)
class Spread:
    """How samples lie, in their unit: extremes, quartiles and the 5 % and 95 % points, nothing dropped."""

    low: float
    p5: float
    q1: float
    median: float
    q3: float
    p95: float
    high: float

    @property
    def iqr(self) -> float:
        """Between the quartiles."""
        return self.q3 - self.q1


def spread(samples: Sequence[float]) -> Spread:
    """Extremes and quantiles, interpolated between samples. Raises BadSetting for what is no number."""
    median(samples)
    return Spread(*np.quantile(samples, (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)).tolist())


def over_shapes(values: Sequence[float]) -> tuple[float, float]:
    """Arithmetic mean, as Tensara reports rates over its test cases, and geometric mean, which no single large shape
    decides. Raises BadSetting for no values, or for one that is not above 0.
    """
    if not len(values) or not all(0 < value < np.inf for value in values):
        raise BadSetting(f"cannot average {list(values)} over shapes: each must be a number above 0")
    return float(np.mean(values)), float(np.exp(np.mean(np.log(values))))
