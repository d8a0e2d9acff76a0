"""Two times compared at one SM clock. A clock that isn't locked differs by a few tenths of a percent between two
measurements, and so do their times, whatever else differs between them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from worklog.runs.estimates import NORMAL, SHORTEST_US, Estimate, Values
from worklog.runs.samples import Reading, event_overhead_us, summarize

PRECISION = 0.005  # two readings of the same thing may differ by this much: sampling stops there
# By how many percent a time grows with a clock 1 % higher, and the half-width, where the samples don't determine it:
# the slopes that can be fitted in the recordings of an H200 are between -0.6 and -1.
SLOPE, SLOPE_HALF = -0.8, 0.2
CLOCK_OFF = PRECISION / -SLOPE  # a clock this far off moves a time by PRECISION
# Standard deviation of the logarithm of what a host clock reads, between measurements of one kernel at one size, in the
# recording `h200_grid`: with a new recording it must be found again.
HOST_SD = 0.25


@dataclass(frozen=True)
class Difference:
    """Of a second time from a first one, at the clock of the first. log: the logarithm of their ratio. noise: what two
    equal times may differ by. clock: the second median clock over the first one minus 1; None if one isn't known.
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


@dataclass(frozen=True)
class Timed:
    """A time with the samples that it is the estimate of, and the settings and the calibration by which it is."""

    time: Estimate
    samples: Reading
    settings: Mapping[str, Any]
    calibration: Mapping[str, Any]

    def logs(self) -> tuple[Values, Values]:
        """Logarithms of the clocks and of the times of the samples that count and have a clock."""
        known = [sample for sample in self.samples.subject if sample.counts and sample.sm_mhz > 0]
        times = np.array([sample.us for sample in known]) - event_overhead_us(self.settings, self.calibration)
        return np.log([sample.sm_mhz for sample in known]), np.log(np.maximum(times, SHORTEST_US))

    def at(self, mhz: float, slope: float) -> Estimate:
        """The time if each sample had run at this clock."""
        overhead = event_overhead_us(self.settings, self.calibration)
        moved = [
            replace(sample, us=overhead + max(0.0, sample.us - overhead) * (mhz / sample.sm_mhz) ** slope)
            if sample.sm_mhz > 0
            else sample
            for sample in self.samples.subject
        ]
        return summarize(replace(self.samples, series=[moved]), self.settings, self.calibration).time


def compare(first: Timed, second: Timed) -> Difference:
    """The difference of two times at the clock of the first.

    Where the samples of both determine the slope, each sample is taken to that clock, which also takes the drift
    within a measurement out of its interval. Elsewhere the second time is taken there by SLOPE. The noise is PRECISION
    plus, in quadrature, both intervals, what the slope's uncertainty makes of the clocks' difference, and for two times
    by a host clock their scatter between measurements.
    """
    times, clock, halves = (first.time, second.time), None, []
    mhz, other = first.samples.sm_mhz, second.samples.sm_mhz
    if mhz and other:
        clock = other / mhz - 1
        slope, half = fitted_slope(*zip(first.logs(), second.logs(), strict=True))
        if half < SLOPE_HALF:
            times = first.at(mhz, slope), second.at(mhz, slope)
        else:
            half, factor = SLOPE_HALF, (mhz / other) ** SLOPE
            at_first = (factor * us for us in (second.time.value, second.time.low, second.time.high))
            times = first.time, Estimate(*at_first)
        halves.append(half * clock)
    if first.settings["timer"] == second.settings["timer"] == "host":
        halves.append(NORMAL * math.sqrt(2) * HOST_SD)
    halves += [time.relative_half_width for time in times]
    return Difference(math.log(times[1].value / times[0].value), PRECISION + math.hypot(*halves), clock)


def clock_in_words(clocks: Collection[float]) -> str:
    """Relative differences of clocks from the lowest to the highest: "-0.04 to +1.20 %"; a dash for none."""
    ends = dict.fromkeys(f"{100 * end:+.2f}" for end in (min(clocks), max(clocks))) if clocks else {}
    return f"{' to '.join(ends)} %" if ends else "–"


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
