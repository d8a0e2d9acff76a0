"""Whether the 95 % intervals hold: what is recorded of many readings, and what is computed from it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from worklog.errors import ChildFailed
from worklog.peers.compare import coverage
from worklog.runs.comparison import Comparison

CHILD = """
import json, sys
sizes, count = sys.argv[1:]
print("a library says something")
one = {"intervals_us": [[9.0, 10.0, 11.0]] * int(count), "sm_mhz": [1980.0] * int(count), "wall_s": [0.5]}
print(json.dumps({s: one for s in sizes.split(",")}))
"""


def of(*processes: list[list[float]], mhz: float = 1980.0) -> dict[float, tuple[float, float]]:
    """mhz: the clock of every second reading."""
    clocks = [[1980.0, mhz] * (len(process) // 2) for process in processes]
    point = {"work": "cuBLAS", "of": 256, "intervals_us": list(processes), "sm_mhz": clocks, "wall_s": 0.1}
    return Comparison({"promises": {"coverage": [point]}}).coverage()


def test_each_process_reads_each_size() -> None:
    found = coverage(processes=3, pairs=2, sizes=(256, 512), command=[sys.executable, "-c", CHILD])
    assert [point["of"] for point in found] == [256, 512]
    assert all(np.shape(point["intervals_us"]) == (3, 4, 3) and point["wall_s"] == 0.5 for point in found)


def test_a_child_that_fails_ends_the_measurement_with_its_last_line() -> None:
    with pytest.raises(ChildFailed, match="no room left"):
        coverage(command=[sys.executable, "-c", "import sys; sys.exit('no room left')"])


def test_a_pair_holds_if_its_difference_is_within_both_half_widths_in_quadrature() -> None:
    (within, _), (beyond, _) = (of([[9.0, 10.0, 11.0], [9.0 + by, 10.0 + by, 11.0 + by]])[256] for by in (1.4, 1.5))
    assert (within, beyond) == (1.0, 0.0)


def test_readings_are_compared_at_one_clock() -> None:
    readings = [[99.9, 100.0, 100.1], [100.9, 101.0, 101.1]]
    assert of(readings)[256][0] == 0.0 and of(readings, mhz=1980 / 1.01)[256][0] == 1.0


def test_an_effect_of_the_process_shows_across_processes_only() -> None:
    one, other = ([[x - 0.1, x, x + 0.1]] * 8 for x in (10.0, 11.0))
    assert of(one, other)[256] == (1.0, 0.0)


def test_intervals_of_the_right_width_hold_in_95_percent() -> None:
    middles = np.random.default_rng(0).standard_normal((10, 400))
    found = of(*[[[x - 1.96, x, x + 1.96] for x in process] for process in middles])[256]
    assert all(share == pytest.approx(0.95, abs=0.015) for share in found)


def test_lopsided_intervals_that_lie_over_each_other_hold() -> None:
    """Order statistics of times in two groups: the median is in one group, and the interval reaches to the other."""
    assert of([[10.0, 10.0, 11.0], [10.0, 11.0, 11.0]])[256][0] == 1.0
