"""Warm-up and stopping rules: each does what the harness it is named after does, and says what it does not check."""

from __future__ import annotations

import numpy as np
import pytest
from pytest import approx

from tests.virtual.gpu import VirtualGpu
from tests.virtual.session import timed
from worklog.errors import BadSetting
from worklog.harness import Harness, time_pair
from worklog.harness.rules import Evidence, Window, salykova_replays, stopping_rule, warm_up_rule


def noisy(relative: float, n: int, us: float = 100.0) -> list[float]:
    return (us * (1 + relative * np.random.default_rng(n).standard_normal(n))).tolist()


def ask(word: str, times: list[float], spent_us: float = 0.0, size: float | None = None) -> bool | None:
    return stopping_rule(word, 0.005, 24, size).check(Evidence(times, spent_us))


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


@pytest.mark.parametrize(("relative", "done"), [(0.002, True), (0.2, None)])
def test_the_interval_rule_wants_the_median_known(relative: float, done: bool | None) -> None:
    assert ask("interval", noisy(relative, 100)) is done
    assert ask("interval", noisy(relative, 15)) is None


def test_nvbench_wants_half_a_second_and_half_a_percent_of_noise() -> None:
    assert ask("nvbench", noisy(0.003, 100, us=4000.0)) is None
    assert ask("nvbench", noisy(0.003, 150, us=4000.0)) is True
    assert ask("nvbench", noisy(0.02, 5000, us=4000.0)) is None  # more samples do not make the noise smaller
    assert ask("nvbench", [1e6] * 9) is None


def test_tensara_takes_5_to_20_until_they_vary_by_one_percent_and_12_of_a_kernel_that_lasts_a_second() -> None:
    assert ask("tensara", [100.0] * 4) is None
    assert ask("tensara", [100.0] * 5) is True
    assert ask("tensara", noisy(0.2, 19)) is None
    assert ask("tensara", noisy(0.2, 20)) is False
    assert ask("tensara", [1.2e6] * 11) is None
    assert ask("tensara", [1.2e6] * 12) is True


@pytest.mark.parametrize("word", ["count:7", "count", "time:3", "salykova", "tensara", "nvbench", "interval"])
def test_a_stopping_rule_recovers_the_truth_with_as_many_samples_as_it_says(word: str) -> None:
    gpu = VirtualGpu(noise=0.0002)
    reading = time_pair(
        gpu, gpu.kernel(1000.0), gpu.kernel(80.0), Harness().but(stopping=word, most_samples=1000), size=4096
    )
    n = len(reading.subject)
    assert reading.counted("subject")[n // 2] == approx(1003.45, rel=2e-3)
    expected = {"count:7": (7, 7), "count": (10, 10), "salykova": (185, 185), "tensara": (5, 5), "nvbench": (499, 520)}
    low, high = expected.get(word, (1, 40))
    assert low <= n <= high


@pytest.mark.parametrize(("word", "launches"), [("count:13", 13), ("count", 10), ("salykova", 185), ("tensara", 0)])
def test_a_warm_up_by_count_launches_so_often_and_says_what_it_does_not_check(word: str, launches: int) -> None:
    gpu = VirtualGpu()
    reading = time_pair(gpu, gpu.kernel(50.0), gpu.kernel(80.0), Harness().but(warmup=word), size=4096)
    assert reading.warmup_launches == launches
    prepared = word == "tensara"  # ten products, then a pause
    assert gpu.log.count("burn") == 10 * prepared and (gpu.machine.host_now > 0.5e6) is prepared
    assert any(f"warm-up: {word}, which doesn't check" in said for said in reading.degradations)


def test_a_warm_up_by_time_lasts_so_long() -> None:
    def host_us(word: str) -> float:
        timed(gpu := VirtualGpu(), Harness().but(warmup=word))
        return gpu.machine.host_now

    assert host_us("time:100") - host_us("time:50") == approx(50_000.0, rel=0.1)
    assert host_us("time") - host_us("time:25") == 0.0


def test_a_warm_up_and_a_criterion_that_come_to_no_end_are_reported() -> None:
    long = timed(VirtualGpu(), Harness().but(warmup="count:1000", budget_s=1.0), us=100_000.0).reading
    assert any("warm-up: count:1000 not done after 3." in said for said in long.degradations)
    unmet = timed(VirtualGpu(noise=0.05), Harness().but(stopping="nvbench", most_samples=100)).reading
    assert any("nvbench was not met in 100 samples" in said for said in unmet.degradations)


def test_the_salykova_schedule_needs_a_size() -> None:
    for setting in ("warmup", "stopping"):
        with pytest.raises(BadSetting, match=f"{setting} = salykova follows the problem's size"):
            timed(VirtualGpu(), Harness().but(**{setting: "salykova"}))
