"""What 01_four_gremlins says in prose is true of the recordings that it shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import worklog
from worklog.bench.tasks import GRID_SIZES
from worklog.harness.sampling import CLOCK_TOLERANCE
from worklog.lab.choice import grid_runs
from worklog.lab.panel_answer import PanelChoice

FOUR = {pitfall.setting: pitfall.biased[0] for pitfall in worklog.Harness.fixes() if pitfall.article}


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKLOG_SOURCE", "recorded")


def reads(kernel: str, size: int, **lie: Any) -> float:
    us = worklog.results([kernel], [size], **lie).measurements[0].us
    assert us is not None
    return us


def off(kernel: str, size: int, **lie: Any) -> float:
    """How far the panel's reading is from the honest one, as a share of it."""
    return PanelChoice(grid_runs(), kernel, size, **lie).answer().off


def test_a_simulated_drift_is_in_the_number_unless_the_clock_is_watched() -> None:
    unbiased = worklog.results(["warptiled"], [4096]).measurements[0]
    us, mhz = (np.array(unbiased.samples[what], float) for what in ("us", "sm_mhz"))
    assert np.ptp(mhz) / np.median(mhz) < 0.02, "this clock held"
    sinking = np.linspace(1.0, 0.8, len(us))
    read, kept = us / sinking, abs(sinking - 1) <= CLOCK_TOLERANCE
    assert CLOCK_TOLERANCE == 0.01, '"more than 1 % off the clock"'
    assert np.median(read) / np.median(us) > 1.08 and kept.any()
    assert abs(np.median(read[kept]) / np.median(us) - 1) < 0.02


def test_a_host_clock_hardly_depends_on_the_size_and_beats_the_peak() -> None:
    times = [reads("warptiled", size, timer="host") for size in GRID_SIZES]
    unbiased = [reads("warptiled", size) for size in GRID_SIZES]
    assert max(times) / min(times) < 5 < max(unbiased) / min(unbiased) / 10
    lying = worklog.results(["warptiled"], [4096], timer="host").measurements[0]
    assert lying.tflops is not None and lying.tflops > 5 * worklog.open_run().device["fp32_peak_tflops"]


def test_the_shorter_the_kernel_the_larger_the_bubble() -> None:
    shares = [reads("warptiled", size, queue=False) / reads("warptiled", size) for size in GRID_SIZES]
    assert shares == sorted(shares, reverse=True) and shares[0] > 1.3


def test_a_warm_l2_flatters_where_the_matrices_fit_and_does_nothing_at_4096() -> None:
    shares = [reads("vectorized", size, l2="warm") / reads("vectorized", size) for size in GRID_SIZES]
    assert shares[0] < 0.95 and shares[1] < 0.95 and abs(shares[2] - 1) < 0.01


def test_the_median_steps_over_the_first_launch() -> None:
    cold = worklog.results(["warptiled"], [1024], warmup="none").measurements[0]
    unbiased = reads("warptiled", 1024)
    assert cold.us is not None and abs(cold.us / unbiased - 1) < 0.02
    assert cold.samples["us"][0] > 1.3 * unbiased


def test_behind_a_host_clock_the_other_lies_make_no_difference() -> None:
    for size in GRID_SIZES:
        alone, all_four = reads("vectorized", size, timer="host"), reads("vectorized", size, **FOUR)
        assert 0.25 < all_four / alone < 4, "a host's launches take what they take"
    assert all_four < 0.1 * reads("vectorized", GRID_SIZES[-1])


def test_the_exercises_are_true_of_the_panel() -> None:
    assert abs(off("naive", 4096, clocks="ignored", l2="warm", warmup="none")) < 0.01
    assert abs(off("vectorized", 1024, warmup="none")) < 0.02
    assert off("vectorized", 1024, warmup="none", statistic="first") > 0.3
    assert off("vectorized", 1024, l2="warm") < -0.1 and off("vectorized", 1024, queue=False) > 0.1
    cancelled, elsewhere = (abs(off("vectorized", size, l2="warm", queue=False)) for size in (1024, 256))
    assert cancelled < 0.1 and elsewhere > 1.5 * cancelled
