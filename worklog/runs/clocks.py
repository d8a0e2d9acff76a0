"""Two times compared at one SM clock. A clock that isn't locked differs by a few tenths of a percent between two
measurements, and so do their times, whatever else differs between them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from worklog.runs.estimates import NORMAL, SHORTEST_US, Estimate, Values
from worklog.runs.samples import Samples

PRECISION = 0.005  # two readings of the same thing may differ by this much: sampling stops there
# By how many percent a time grows with a clock 1 % higher, and the half-width, where the samples don't determine it:
# the slopes of the recorded ablations' pairs that do determine theirs (31 of 233) are between -0.66 and -1.
SLOPE, SLOPE_HALF = -0.8, 0.2
CLOCK_OFF = PRECISION / -SLOPE  # a clock this far off moves a time by PRECISION
# Standard deviation of the logarithm of what a host clock reads, between measurements of one kernel at one size, in the
# recording `grid/h100`: with a new recording it must be found again.
HOST_SD = 0.20


@dataclass(frozen=True)
class Timed:
    """A time in microseconds, its samples, the event overhead in them, and whether a host clock read them."""

    time: Estimate
    samples: Samples
    overhead_us: float
    by_host: bool

    @cached_property
    def sm_mhz(self) -> float | None:
        """The median SM clock."""
        return self.samples.sm_mhz

    @cached_property
    def logs(self) -> tuple[Values, Values]:
        """Logarithms of the clocks and of the times of the samples that count and have a clock."""
        clocks, us = self.samples.clocked()
        return np.log(clocks), np.log(np.maximum(np.array(us) - self.overhead_us, SHORTEST_US))


class Difference(NamedTuple):
    """Of a second time from a first one, at the clock of the first. log: the logarithm of their ratio. noise: by how
    much two equal times may differ. clock: the second median clock over the first one minus 1, None if it isn't known.
    """

    log: float
    noise: float
    clock: float | None

    @property
    def visible(self) -> bool:
        """Whether the times differ by more than the noise."""
        return abs(self.log) > self.noise

    @property
    def off(self) -> float:
        """The second time over the first one minus 1."""
        return math.exp(self.log) - 1


def compare(first: Timed, second: Timed) -> Difference:
    """The difference of two times at the clock of the first, by the slope that the samples of both determine, else by
    SLOPE. The noise is PRECISION plus, in quadrature, both intervals, what the slope's uncertainty makes of the clocks'
    difference, and for two times by a host clock their scatter between measurements.
    """
    log, clock = math.log(second.time.value / first.time.value), None
    halves = [first.time.relative_half_width, second.time.relative_half_width]
    if first.by_host and second.by_host:
        halves.append(NORMAL * math.sqrt(2) * HOST_SD)
    if first.sm_mhz and second.sm_mhz:
        clock = second.sm_mhz / first.sm_mhz - 1
        slope, half = fitted_slope(*zip(first.logs, second.logs, strict=True))
        if half > SLOPE_HALF:
            slope, half = SLOPE, SLOPE_HALF
        log -= slope * math.log1p(clock)
        halves.append(half * clock)
    return Difference(log, PRECISION + math.hypot(*halves), clock)


def fitted_slope(clocks: Sequence[Values], times: Sequence[Values]) -> tuple[float, float]:
    """By how many percent a time grows with an SM clock 1 % higher: -1 if it is in cycles, 0 if it does not depend on
    the clock, and between them otherwise; and the 95 % half-width of the fit. clocks, times: logarithms, which are
    fitted within each group, since groups differ for other reasons, too. 0 and infinity if the clock never changes.
    """
    x, y = (np.concatenate([group - group.mean() for group in side]) for side in (clocks, times))
    squares, free = float(x @ x), len(x) - len(clocks) - 1
    if squares == 0:
        return 0.0, math.inf
    slope = float(x @ y) / squares
    rest = float(np.sum((y - slope * x) ** 2))
    half = NORMAL * math.sqrt(rest / free / squares) if free > 0 else math.inf
    return min(0.0, max(-1.0, slope)), half


def clock_in_words(clocks: Collection[float]) -> str:
    """Relative differences of clocks from the lowest to the highest: "-0.04 to +1.20 %"; a dash for none."""
    ends = dict.fromkeys(f"{100 * end:+.2f}" for end in (min(clocks), max(clocks))) if clocks else {}
    return f"{' to '.join(ends)} %" if ends else "–"
