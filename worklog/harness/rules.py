"""Warm-up rules and stopping criteria, of this harness and of others, by name.

The defaults check that the clock has settled and that the median is known. The others are for comparison, and the
result states what they don't check. A rule is named by a word such as "steady", "count:10" or "time:100"
(milliseconds).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp
from typing import NamedTuple

import numpy as np

from worklog.errors import BadSetting
from worklog.runs import LEAST_SAMPLES, median
from worklog.settings import split_rule

TENSARA_LONG_US = 1e6
TENSARA_LONG_COUNT = 12


def salykova_replays(setting: str, size: float | None) -> int:
    """Replays of one kernel by the schedule of salykova's SGEMM benchmark, 1000 exp((1024 - N) / 3100), of which the
    first half warms up and the second half counts.
    """
    if size is None:
        raise BadSetting(f"{setting} = salykova follows the problem's size: take another rule")
    return max(2, round(1000 * exp((1024 - size) / 3100)))


class Evidence(NamedTuple):
    """For a stopping criterion: microseconds of the samples that count, host time spent, and their placements."""

    times: Sequence[float]
    spent_us: float = 0.0
    placements: Sequence[int] = ()

    @property
    def placed(self) -> int:
        """The number of different placements."""
        return len(set(self.placements))


class Stopping:
    """The stopping criterion of a word. precision and least (samples) belong to "interval". Raises BadSetting.

    most: maximum number of samples. step: samples between two checks. None where it doesn't matter.
    """

    def __init__(self, word: str, precision: float, least: int, size: float | None = None) -> None:
        self.name, self.numbers = split_rule("stopping", word)
        self.precision = precision
        self.least = least
        self.step = 1 if self.name == "tensara" else None
        self.most: int | None = None
        if self.name in ("count", "tensara"):
            self.most = round(self.numbers[0 if self.name == "count" else 2])
        elif self.name == "salykova":
            self.most = salykova_replays("stopping", size) // 2

    def check(self, seen: Evidence) -> bool | None:
        """True for enough, False to stop without meeting the criterion, None to go on."""
        n = len(seen.times)
        numbers = self.numbers
        if self.name == "interval":
            return (n >= self.least and is_known(seen, self.precision)) or None
        if self.name == "time":
            return (n > 0 and seen.spent_us >= 1e3 * numbers[0]) or None
        if (
            self.name == "nvbench"
        ):  # stdrel without its second branch, which lets a steadily noisy kernel pass
            noise_percent, ms, least = numbers
            enough = n >= max(least, 2) and sum(seen.times) > 1e3 * ms
            return (enough and _variation(seen.times) < noise_percent / 100) or None
        if (
            self.name == "tensara"
        ):  # until the variation is small, or 12 where the first lasted a second
            percent, least, most = numbers
            if n and seen.times[0] >= TENSARA_LONG_US:
                return n >= TENSARA_LONG_COUNT or None
            if n >= max(least, 2) and _variation(seen.times) < percent / 100:
                return True
            return False if n >= most else None
        return n >= (self.most or 0) or None


def _variation(times: Sequence[float]) -> float:
    """Standard deviation (unbiased) over mean."""
    return float(np.std(times, ddof=1) / np.mean(times))


def is_known(seen: Evidence, precision: float) -> bool:
    """Whether the median's 95 % interval is within ±precision. Fewer than LEAST_SAMPLES samples have none."""
    enough = len(seen.times) >= LEAST_SAMPLES
    return enough and median(seen.times, seen.placements).relative_half_width <= precision


def placements_needed(seen: Evidence, precision: float) -> int:
    """How many placements an interval of that precision takes, from the interval after the first PILOT: more than there
    are. A criterion that is checked after every placement would stop at an interval that is narrow by chance.
    """
    wide = median(seen.times, seen.placements).relative_half_width / precision
    return max(
        seen.placed + 1, ceil(min(seen.placed * wide**2, 1e9))
    )  # infinitely wide for a time of 0
