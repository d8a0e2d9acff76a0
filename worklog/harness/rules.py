"""Stopping criteria, of this harness and of others, by name.

The defaults check that the clock has settled and that the median is known. The others are for
comparison, and the result states what they don't check. A rule is written as "steady", "count:10"
or "time:100" (milliseconds).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp
from typing import NamedTuple

import numpy as np

from worklog.errors import BadSetting
from worklog.runs.statistics import LEAST_SAMPLES, median
from worklog.settings import split_rule

TENSARA_LONG_US = 1e6
TENSARA_LONG_COUNT = 12


def salykova_replays(setting: str, size: float | None) -> int:
    """Return the replays of one kernel by the schedule of salykova's SGEMM benchmark.

    It is 1000 exp((1024 - N) / 3100). The first half warms up and the second half counts.
    """
    if size is None:
        raise BadSetting(f"{setting} = salykova follows the problem's size: take another rule")
    return max(2, round(1000 * exp((1024 - size) / 3100)))


class Evidence(NamedTuple):
    """What a stopping criterion sees."""

    times: Sequence[float]  # µs of the samples that count
    spent_us: float = 0.0  # host time
    placements: Sequence[int] = ()  # the placement of each sample

    @property
    def placement_count(self) -> int:
        """The number of different placements."""
        return len(set(self.placements))


class Stopping:
    """A stopping criterion by its name. Raises BadSetting for an unknown name.

    precision, least_samples: belong to "interval"
    max_samples: the maximum number of samples, or None
    step: samples between two checks; None if that doesn't matter
    """

    def __init__(
        self, criterion: str, precision: float, least_samples: int, size: float | None = None
    ) -> None:
        self.name, self.numbers = split_rule("stopping", criterion)
        self.precision = precision
        self.least_samples = least_samples
        self.step = 1 if self.name == "tensara" else None
        self.max_samples: int | None = None
        if self.name == "count":
            self.max_samples = round(self.numbers[0])
        elif self.name == "tensara":
            self.max_samples = round(self.numbers[2])
        elif self.name == "salykova":
            self.max_samples = salykova_replays("stopping", size) // 2

    def check(self, evidence: Evidence) -> bool | None:
        """Return True for enough, None to continue.

        False is to stop without meeting the criterion.
        """
        if self.name == "tensara":
            return self._check_tensara(evidence.times)
        return True if self._is_met(evidence) else None

    def _is_met(self, evidence: Evidence) -> bool:
        """Return whether a criterion that never gives up is met."""
        n = len(evidence.times)
        if self.name == "interval":
            return n >= self.least_samples and is_known(evidence, self.precision)
        if self.name == "time":
            return n > 0 and evidence.spent_us >= 1e3 * self.numbers[0]
        if self.name == "nvbench":
            # stdrel without its second branch, which lets a steadily noisy kernel pass
            noise_percent, ms, least_samples = self.numbers
            if n < max(least_samples, 2) or sum(evidence.times) <= 1e3 * ms:
                return False
            return _variation(evidence.times) < noise_percent / 100
        return n >= (self.max_samples or 0)

    def _check_tensara(self, times: Sequence[float]) -> bool | None:
        """Check until the variation is small, or for 12 samples if the first lasted a second."""
        percent, least_samples, max_samples = self.numbers
        if len(times) > 0 and times[0] >= TENSARA_LONG_US:
            return True if len(times) >= TENSARA_LONG_COUNT else None
        if len(times) >= max(least_samples, 2) and _variation(times) < percent / 100:
            return True
        return False if len(times) >= max_samples else None


def _variation(times: Sequence[float]) -> float:
    """Return the standard deviation (unbiased) over the mean."""
    return float(np.std(times, ddof=1) / np.mean(times))


def is_known(evidence: Evidence, precision: float) -> bool:
    """Return whether the median's 95 % interval is within ±precision.

    Fewer than LEAST_SAMPLES samples have no interval.
    """
    if len(evidence.times) < LEAST_SAMPLES:
        return False
    return median(evidence.times, evidence.placements).relative_half_width <= precision


def placements_needed(evidence: Evidence, precision: float) -> int:
    """Return how many placements an interval of that precision needs.

    They are more than there are. The number follows from the interval after the first PILOT
    placements. A criterion that is checked after every placement would stop at an interval that is
    narrow by chance.
    """
    half_width = median(evidence.times, evidence.placements).relative_half_width
    ratio = half_width / precision  # infinite for a time of 0
    return max(evidence.placement_count + 1, ceil(min(evidence.placement_count * ratio**2, 1e9)))
