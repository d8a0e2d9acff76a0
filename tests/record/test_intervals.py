"""The recorded intervals hold as often as they should, and the way to count that is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pytest import approx

from tests.record.intervals import WORKS, at_one_clock, clock_slope, coverage, together
from worklog.runs.comparison import open_comparison
from worklog.runs.estimates import DRIFT_SD_US, NORMAL, median, process_half_us

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


def point_of(intervals_us: Any, mhz: Any = 1980.0, kernels: int = 1) -> dict[str, Any]:
    """mhz: of each reading."""
    clocks = np.broadcast_to(mhz, np.shape(intervals_us)[:2])
    return {"intervals_us": np.array(intervals_us), "sm_mhz": clocks, "kernels": kernels}


DRIFT = 2**0.5 * NORMAL * DRIFT_SD_US


@pytest.mark.parametrize(
    ("first", "second", "mhz", "share"),
    [
        ([9.0, 10.0, 11.0], [10.4, 11.4, 12.4], 1980.0, 1.0),
        ([9.0, 10.0, 11.0], [10.5, 11.5, 12.5], 1980.0, 0.0),
        ([99.9, 100.0, 100.1], [100.9, 101.0, 101.1], 1980 / 1.01, 1.0),
        ([10.0, 10.0, 11.0], [10.0, 11.0, 11.0], 1980.0, 1.0),  # order statistics of times in two groups
        ([10.0] * 3, [10.0 + 0.98 * DRIFT] * 3, 1980.0, 1.0),
        ([10.0] * 3, [10.0 + 1.02 * DRIFT] * 3, 1980.0, 0.0),
    ],
)
def test_a_pair_holds_if_its_difference_at_one_clock_is_within_both_half_widths_in_quadrature(
    first: list[float], second: list[float], mhz: float, share: float
) -> None:
    assert coverage(point_of([[first, second] * 4] * 2, [1980.0, mhz] * 4))[0] == share


def test_an_effect_of_the_process_shows_across_processes_only() -> None:
    processes = [[[x - 0.1, x, x + 0.1]] * 8 for x in (10.0, 10.3)]
    assert coverage(point_of(processes)) == (1.0, 0.0)
    assert coverage(point_of(processes, kernels=2)) == (1.0, 1.0), "the gap before a second kernel differs"


@pytest.mark.parametrize("slope", [-1.0, 0.0])
def test_intervals_of_the_right_width_hold_in_95_percent(slope: float) -> None:
    """Whether the time depends on the clock or not: the readings show it."""
    rng = np.random.default_rng(0)
    clocks = rng.uniform(1960, 2000, (10, 400))
    middles = 1000 * (clocks / 1980) ** slope + rng.standard_normal(clocks.shape)
    point = point_of(np.stack([middles - 1.96, middles, middles + 1.96], axis=-1), clocks)
    assert coverage(point) == approx((0.95, 0.95), abs=0.015)


def test_intervals_over_nine_placements_hold_in_more_of_the_pairs() -> None:
    """Each is one of Student's t with 8 degrees of freedom, and a difference has about 16: 96.5 %."""
    samples = np.random.default_rng(0).normal(1000.0, 30.0, (4, 400, 9)).repeat(3, axis=2).tolist()
    placements = [number // 3 for number in range(27)]
    read = [[median(times, placements) for times in process] for process in samples]
    point = point_of([[[us.low, us.value, us.high] for us in process] for process in read])
    assert coverage(point)[1] == approx(0.965, abs=0.007)


def test_the_dependence_on_the_clock_is_fitted_within_processes() -> None:
    """Process 1 is slower at higher clocks for a reason of its own."""
    clocks = np.array([[1960.0, 1970.0, 1980.0], [1980.0, 1990.0, 2000.0]])
    middles = np.array([[100.0], [103.0]]) * (clocks / 1980) ** -0.5
    times = np.stack([0.9 * middles, middles, 1.1 * middles], axis=-1)
    columns = zip(times, clocks, strict=True)
    (point,) = together([[{"intervals_us": us, "sm_mhz": mhz, "wall_s": [0.5]}] for us, mhz in columns])
    assert clock_slope(point) == approx(-0.5) and point["wall_s"] == 0.5
