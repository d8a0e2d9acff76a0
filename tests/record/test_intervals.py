"""The recorded intervals hold as often as they should, and the way to count that is right."""

from __future__ import annotations

import numpy as np
import pytest
from pytest import approx

from tests.record.intervals import WORKS, at_one_clock, clock_slope, coverage, together
from worklog.runs.comparison import open_comparison
from worklog.runs.estimates import DRIFT_SD_US, NORMAL, process_half_us

POINTS = {
    (point["work"], point["of"]): point for point in open_comparison(part="intervals").document["promises"]["coverage"]
}


def test_what_notebook_09_states_about_the_recording() -> None:
    """Of 200 pairs in one process, and of all pairs across 25 processes: 95 to 96.5 % are expected (Student's t with 8
    degrees of freedom for each reading, and about 16 for a difference), and 2 % are chance.
    """
    assert tuple(POINTS) == WORKS and [point["kernels"] for point in POINTS.values()] == [2, 1, 1, 1, 1]
    in_one, across = zip(*map(coverage, POINTS.values()), strict=True)
    ends = [round(100 * end(shares), 1) for shares in (in_one, across) for end in (min, max)]
    assert ends == [93.0, 98.5, 93.8, 97.9]
    slopes = {work: round(-clock_slope(point), 1) for work, point in POINTS.items()}
    assert slopes["cuBLAS", 256] == min(slopes.values()) == 0.1
    assert slopes["cuBLAS", 2048] == max(slopes.values()) == 1.0


def test_what_differs_between_processes_is_as_recorded() -> None:
    """Between readings in one process and between processes together; 25 processes know the latter to 15 %."""
    drifts = []
    for work in (("cuBLAS", 256), ("shared", 256)):
        scaled = at_one_clock(POINTS[work])
        us, halves = scaled[..., 1], np.ptp(scaled[..., [0, 2]], axis=-1) / 2
        variance = us.var(axis=1, ddof=1).mean()
        process = us.mean(axis=1).var(ddof=1) - variance / us.shape[1]
        drifts.append(variance - ((halves / NORMAL) ** 2).mean())
        half = process_half_us(POINTS[work]["kernels"])
        assert (drifts[-1] + process) ** 0.5 == approx(half / NORMAL, rel=0.15)
    assert max(drifts) ** 0.5 == approx(DRIFT_SD_US, rel=0.1)


@pytest.mark.parametrize("slope", [-1.0, 0.0])
def test_intervals_of_the_right_width_hold_in_95_percent(slope: float) -> None:
    """Whether the time depends on the clock or not: the readings show it."""
    rng = np.random.default_rng(0)
    clocks = rng.uniform(1960, 2000, (10, 400))
    middles = 1000 * (clocks / 1980) ** slope + rng.standard_normal(clocks.shape)
    times = np.stack([middles - 1.96, middles, middles + 1.96], axis=-1)
    columns = {"kernels": 1, "wall_s": [0.5]}
    children = [[{"intervals_us": us, "sm_mhz": mhz, **columns}] for us, mhz in zip(times, clocks, strict=True)]
    (point,) = together(children)
    assert coverage(point) == approx((0.95, 0.95), abs=0.015) and clock_slope(point) == approx(slope, abs=0.01)
    assert point["wall_s"] == 0.5
    point["intervals_us"] = times + np.arange(10)[:, None, None]  # an effect of the process
    assert coverage(point) == approx((0.95, 0.41), abs=0.03)
