"""From samples to a number.

The interval has its stated coverage, and samples that aren't finite are an error.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import comb, gamma, log, pi, sqrt

import numpy as np
import pytest
from pytest import approx

from worklog.errors import BadSetting
from worklog.harness.rules import Evidence, placements_needed
from worklog.runs.statistics import (
    GAP_SD_US,
    OVERHEAD_SD_US,
    PILOT,
    STUDENT,
    Sample,
    Samples,
    estimate_of,
    median,
    over_shapes,
    paired_ratio,
    summarize,
)
from worklog.settings import PITFALLS, Harness

STATISTICS = next(pitfall.values for pitfall in PITFALLS if pitfall.setting == "statistic")


def test_the_interval_is_at_the_quantiles_of_the_distributions():
    for free, quantile in enumerate(STUDENT, 1):
        x = np.linspace(0, quantile, 100_001)
        height = gamma((free + 1) / 2) / gamma(free / 2) / sqrt(free * pi)
        assert np.trapezoid(height * (1 + x**2 / free) ** (-(free + 1) / 2), x) == approx(
            0.475, rel=1e-6
        )


@pytest.mark.parametrize("n", [6, 7, 11, 40, 999])
def test_the_interval_of_order_statistics_begins_between_two_ranks_and_holds_in_95_percent(n):
    below = next(
        k
        for k, combinations in enumerate(accumulate(comb(n, k) for k in range(n)))
        if combinations >= 0.025 * 2**n
    )
    estimate = median([*map(float, range(n, 0, -1))])
    assert below <= estimate.low < below + 1 and estimate.value == (n + 1) / 2 == approx(
        (estimate.low + estimate.high) / 2
    )
    rng = np.random.default_rng(0)
    runs = 4000
    for values, middle in (
        (rng.standard_normal((runs, n)), 0.0),
        (rng.exponential(size=(runs, n)), log(2)),
    ):
        estimates = [median(row) for row in values.tolist()]
        assert sum(
            estimate.low <= middle <= estimate.high for estimate in estimates
        ) / runs == approx(0.95, abs=0.015)


def placed(
    rng: np.random.Generator, effect: str, count: int, turns: int
) -> tuple[list[float], list[int]]:
    """Return launches around 100 in some placements.

    2 % between placements, 0.1 % between launches.
    """
    of_placement = (
        rng.choice([-1.0, 1.0], count) if effect == "two groups" else rng.standard_normal(count)
    )
    launches = 100 + 2 * of_placement[:, None] + 0.1 * rng.standard_normal((count, turns))
    return launches.ravel().tolist(), np.repeat(np.arange(count), turns).tolist()


@pytest.mark.parametrize(("count", "turns"), [(9, 3), (20, 3), (9, 1)])
@pytest.mark.parametrize("effect", ["normal", "two groups"])
def test_the_interval_over_placements_holds_their_mean_and_the_difference_of_two_measurements(
    effect, count, turns
):
    """Where each placement has several launches, the difference is held in 93 to 97 %."""
    rng = np.random.default_rng(count + turns)
    pairs = 1000
    estimates = [
        [median(*placed(rng, effect, count, turns)) for _ in range(2)] for _ in range(pairs)
    ]
    assert 0.93 <= sum(first.low <= 100 <= first.high for first, _ in estimates) / pairs <= 0.995
    overlaps = sum(
        abs(first.value - second.value) <= np.hypot(first.half_width, second.half_width)
        for first, second in estimates
    )
    simulated = 0.014  # two standard errors of the share
    assert turns == 1 or 0.93 - simulated <= overlaps / pairs <= 0.97 + simulated


def test_a_time_that_is_not_above_the_event_overhead_is_a_very_short_one():
    for below in (0.0, -1.0):
        assert paired_ratio([2.0, 2.0, 2.0], [1.0, below, 2.0]).value == approx(2.0)
    assert median([0.0] * 50).relative_half_width == float("inf"), (
        "a time of 0 is never known precisely"
    )


def test_each_statistic_is_what_it_is_called():
    samples = [5.0, 1.0, 2.0, 3.0, 100.0]
    estimates = {statistic: estimate_of(samples, statistic) for statistic in STATISTICS}
    values = {"median": 3.0, "mean": 22.2, "min": 1.0, "first": 5.0}
    assert {name: estimate.value for name, estimate in estimates.items()} == values
    for estimate in estimates.values():  # the median's interval around it
        assert (estimate.low - estimate.value, estimate.high - estimate.value) == approx(
            (-2.0, 97.0)
        )


@pytest.mark.parametrize("bad", [[], [float("nan")], [1.0, float("nan"), 3.0], [1.0, float("inf")]])
def test_samples_that_are_not_finite_or_have_no_placement_are_an_error(bad):
    assert median([3.0, 1.0, 2.0], [7, 7, 7]) == median([1.0, 2.0, 3.0])
    with pytest.raises(BadSetting, match="3 samples have 2 placements"):
        median([1.0, 2.0, 3.0], [0, 1])
    for statistic in STATISTICS:
        with pytest.raises(BadSetting, match=rf"{len(bad)} samples, \d+ of them finite"):
            estimate_of(bad, statistic)


def test_one_large_shape_decides_the_mean_and_not_the_geometric_mean():
    assert over_shapes([1.0, 1.0, 1.0, 1000.0]) == approx((250.75, 1000**0.25))
    assert over_shapes([50.0]) == approx((50.0, 50.0))
    for bad in ([], [0.0], [1.0, -1.0], [float("nan")], [float("inf")]):
        with pytest.raises(BadSetting, match="above 0"):
            over_shapes(bad)


def by_placement(values: Sequence[float]) -> tuple[list[float], list[int]]:
    """Three launches in each placement, all of the placement's value."""
    return np.repeat(values, 3).tolist(), np.repeat(np.arange(len(values)), 3).tolist()


def test_the_interval_over_placements_takes_its_variance_from_the_pilot():
    pilot = [100.0 + 0.1 * number for number in range(PILOT)]
    estimate = median(*by_placement([*pilot, *[100.4] * 40]))
    expected = STUDENT[-1] * float(np.std(pilot, ddof=1)) / (PILOT + 40) ** 0.5
    assert estimate.half_width == pytest.approx(expected)


def test_the_interval_holds_although_its_width_decides_when_sampling_stops():
    """As the harness does it: a pilot, then as many placements as its variance asks for."""
    rng = np.random.default_rng(0)
    covered = 0
    runs = 600
    for _ in range(runs):
        values = 100 + 0.5 * rng.standard_normal(PILOT)
        times, places = by_placement(values.tolist())
        needed = placements_needed(Evidence(times, 0.0, places), 0.002)
        values = np.concatenate([values, 100 + 0.5 * rng.standard_normal(needed - PILOT)])
        estimate = median(*by_placement(values.tolist()))
        assert estimate.relative_half_width <= 0.0021
        covered += estimate.low <= 100 <= estimate.high
    assert 0.93 <= covered / runs <= 0.97


@pytest.mark.parametrize("kernels", [[1, 2], [2, 1], [1, 1], [3, 2]])
def test_the_intervals_hold_for_other_processes(kernels):
    """Return launches of 5 and 8 µs in 600 processes.

    Each process has its own overhead and its own gap between kernels.
    """
    rng = np.random.default_rng(0)
    runs = 600
    covered = np.zeros(2)
    for _ in range(runs):
        overhead = rng.normal(3.0, OVERHEAD_SD_US)
        gap = rng.normal(1.0, GAP_SD_US)
        true = [us + count - 1 for us, count in zip((5.0, 8.0), kernels, strict=True)]
        series = []
        for us, count in zip((5.0, 8.0), kernels, strict=True):
            read = overhead + us + gap * (count - 1) + 0.01 * rng.standard_normal(40)
            series.append(
                [Sample(us, 1980.0, placement=number // 4) for number, us in enumerate(read)]
            )
        summary = summarize(
            Samples.of_turns("ab", series, kernels=kernels), Harness().as_dict(), 3.0
        )
        ratio = summary.ratios["b"]
        assert ratio.process is not None
        covered += (
            summary.time.low <= true[0] <= summary.time.high,
            ratio.low <= true[1] / true[0] <= ratio.high,
        )
    assert all(0.93 <= share <= 0.99 for share in covered / runs)


def test_what_differs_between_processes_cancels_in_a_ratio_to_itself_and_only_events_have_it():
    samples = [Sample(8.0, 1980.0, placement=number // 4) for number in range(40)]
    samples_of_both = Samples.of_turns("ab", [samples] * 2, kernels=[2, 2])
    by_events, by_host = (
        summarize(samples_of_both, Harness().but(timer=timer).as_dict(), 3.0)
        for timer in ("events", "host")
    )
    assert by_events.time.process == approx(
        1.96 * (OVERHEAD_SD_US**2 + GAP_SD_US**2) ** 0.5, rel=1e-3
    )
    assert (by_events.ratios["b"].low, by_events.ratios["b"].high) == (1.0, 1.0)
    assert by_host.time.process is None is by_host.ratios["b"].process
