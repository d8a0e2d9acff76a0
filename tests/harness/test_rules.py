"""Warm-up and stopping rules: each does what the harness that it is named after does."""

from __future__ import annotations

import numpy as np
import pytest

from worklog.harness.rules import Evidence, Window, salykova_replays, stopping_rule, warm_up_rule


def noisy(relative: float, n: int, us: float = 100.0) -> list[float]:
    return (us * (1 + relative * np.random.default_rng(n).standard_normal(n))).tolist()


@pytest.mark.parametrize(("n", "replays"), [(1024, 1000), (4096, 371), (128, 1335), (8192, 99), (100_000, 2)])
def test_the_salykova_schedule_replays_small_problems_more_often(n: int, replays: int) -> None:
    assert salykova_replays("warmup", n) == replays


@pytest.mark.parametrize(
    ("steady", "us", "half_width", "mhz", "why"),
    [
        (False, (50.0, 50.0), 0.0, (1980, 1980), "two windows can't show a ramp"),
        (True, (90.0, 50.0, 50.1), 0.0, (900, 1980, 1979), "time and clock of the last two agree"),
        (False, (90.0, 50.0, 50.4), 0.0, (900, 1980, 1980), "the times differ by 0.8 %"),
        (False, (90.0, 50.0, 50.0), 0.0, (900, 1980, 1965), "the clocks differ by 0.8 %"),
        (True, (50.0, 50.0, 50.0), 0.0, (np.nan, np.nan, np.nan), "the clock can't be read"),
        (True, (10.0, 10.0, 10.15), 0.1, (1980, 1980, 1980), "the times agree within their intervals"),
        (False, (10.0, 10.0, 10.15), 0.05, (1980, 1980, 1980), "the intervals are too narrow for that"),
        (False, (10.0, 10.0, 10.5), 5.0, (1980, 1980, 1980), "no interval allows more than 2 %"),
        (False, (10.0, 10.0, 10.0), 5.0, (1980, 1980, 1940), "the interval is the time's, not the clock's"),
        (False, (50.4, 50.2, 50.1), 0.0, (1960, 1960, 1960), "each window is faster, though each two agree"),
        (False, (50.0, 50.0, 50.0), 0.0, (1970, 1975, 1979), "the clock climbs, though each two agree"),
        (True, (50.02, 50.01, 50.0), 0.0, (1980, 1980, 1980), "a tenth of a percent is noise"),
        (True, (50.0, 50.1, 50.2), 0.0, (1980, 1980, 1980), "waiting doesn't help a kernel that gets slower"),
    ],
)
def test_steady_is_a_time_and_a_clock_that_agree_and_do_not_ramp(
    steady: bool, us: tuple[float, ...], half_width: float, mhz: tuple[float, ...], why: str
) -> None:
    windows = [Window(time, half_width, clock) for time, clock in zip(us, mhz, strict=True)]
    assert warm_up_rule("steady").enough(windows, 100, 5e4) is steady, why


@pytest.mark.parametrize(
    ("word", "times", "done"),
    [
        ("interval", noisy(0.002, 100), True),
        ("interval", noisy(0.2, 100), None),
        ("interval", noisy(0.002, 15), None),  # fewer than the least
        ("nvbench", noisy(0.003, 100, us=4000.0), None),  # not half a second yet
        ("nvbench", noisy(0.003, 150, us=4000.0), True),
        ("nvbench", noisy(0.02, 5000, us=4000.0), None),  # more samples do not make the noise smaller
        ("nvbench", [1e6] * 9, None),
        ("tensara", [100.0] * 4, None),
        ("tensara", [100.0] * 5, True),
        ("tensara", noisy(0.2, 19), None),
        ("tensara", noisy(0.2, 20), False),
        ("tensara", [1.2e6] * 11, None),  # twelve of a kernel that lasts a second
        ("tensara", [1.2e6] * 12, True),
    ],
)
def test_a_criterion_is_met_as_by_the_harness_that_it_is_named_after(
    word: str, times: list[float], done: bool | None
) -> None:
    assert stopping_rule(word, 0.005, 24).check(Evidence(times, 0.0)) is done
