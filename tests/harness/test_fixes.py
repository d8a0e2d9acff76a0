"""Each gremlin, on a GPU that has it: with the fix the truth comes out, without it the number is off by what the GPU
was given.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
import pytest
from pytest import approx

from tests.harness.reading import BASELINE_US, launches_of_warm_up, timed
from tests.harness.virtual import REFERENCE_MHZ, VirtualGpu
from worklog.gpu.device import THROTTLING
from worklog.harness import Harness, time_pair
from worklog.runs.samples import median, paired_ratio

TRUE_US = 50.0
TRUE_RATIO = BASELINE_US / TRUE_US


def two_groups(rng: np.random.Generator) -> float:
    """Placements in two groups, 2 % apart, as cuBLAS's at 2048."""
    return float(rng.choice([-0.01, 0.01]))


def everything_at_once(**more: Any) -> VirtualGpu:
    """A GPU with every disturbance that the unbiased harness must survive."""
    return VirtualGpu(
        warm_speedup=1.4,
        load_us=40_000.0,
        ramp_us=30_000.0,
        idle_mhz=345.0,
        noise=0.001,
        outlier_every=17,
        outlier_factor=5.0,
        tick_us=0.032,
        **more,
    )


@pytest.mark.parametrize("us", [2.0, 10.0, 50.0, 1000.0, 20_000.0])
def test_all_fixes_on_recover_the_truth(us: float) -> None:
    result = timed(everything_at_once(placement=two_groups), us=us, sensitivity=0.0)
    assert result.time.value == approx(us, rel=1e-3, abs=0.033)
    assert result.ratio.value == approx(BASELINE_US / us, rel=1e-3, abs=0.033 / us * BASELINE_US / us)
    assert result.reading.converged
    assert result.reading.degradations == []


def test_a_host_clock_reads_what_the_launch_costs_the_host() -> None:
    gpu = VirtualGpu(enqueue_us=6.5)
    assert timed(gpu, Harness().but(timer="host")).time.value == approx(6.5)


def test_an_empty_queue_shows_the_launch_bubble() -> None:
    gpu = VirtualGpu(enqueue_us=9.0)
    assert timed(gpu, Harness().but(queue=False)).time.value == approx(TRUE_US + 9.0)


def test_a_kept_offset_is_on_top() -> None:
    assert timed(VirtualGpu(offset_us=2.5), Harness().but(offset="kept")).time.value == approx(TRUE_US + 2.5)


def test_a_warm_cache_is_as_fast_as_the_cache_makes_it() -> None:
    gpu = VirtualGpu(warm_speedup=1.4)
    assert timed(gpu, Harness().but(l2="warm")).time.value == approx(TRUE_US / 1.4)


def test_a_first_launch_pays_for_loading_and_for_an_idle_clock() -> None:
    gpu = VirtualGpu(load_us=40_000.0, ramp_us=30_000.0, idle_mhz=500.0, enqueue_us=4.0)
    result = timed(gpu, Harness().but(warmup="none", statistic="first"))
    at_idle_clock = TRUE_US * REFERENCE_MHZ / 500.0
    assert 40_000.0 + TRUE_US < result.time.value < 40_000.0 + at_idle_clock + 4.0


def test_a_launch_after_idling_runs_at_the_idle_clock() -> None:
    gpu = VirtualGpu(ramp_us=1e6, idle_mhz=500.0, enqueue_us=4.0, host_now=1e8)  # warm from work before
    result = timed(gpu, Harness().but(warmup="none", statistic="first"))
    assert result.time.value == approx(TRUE_US * REFERENCE_MHZ / 500.0 + gpu.enqueue_us, rel=1e-3)


def test_a_mean_follows_the_outliers() -> None:
    gpu = VirtualGpu(outlier_every=10, outlier_factor=6.0)
    harness = Harness().but(statistic="mean", precision=0.9, least_samples=100)
    result = timed(gpu, harness)
    share = sum(us > 2 * TRUE_US for us in result.reading.counted("subject")) / len(result.reading.subject)
    assert share == approx(0.1, abs=0.05)
    assert result.time.value == approx(TRUE_US * (1 + 5 * share))
    assert timed(gpu, harness.but(statistic="median")).time.value == approx(TRUE_US)


def test_a_minimum_is_the_luckiest_sample() -> None:
    result = timed(VirtualGpu(noise=0.01), Harness().but(statistic="min"))
    assert result.time.value == approx(min(result.reading.counted("subject")) - 3.45)
    assert result.time.value < TRUE_US * 0.99


def test_drift_between_two_kernels_moves_their_ratio_only_when_they_are_timed_in_turn() -> None:
    per_us = 1e-7  # 10 % per second: slow enough for the warm-up to call it steady

    def drifting() -> VirtualGpu:
        return VirtualGpu(clock=lambda now: REFERENCE_MHZ * (1 - per_us * now), noise=1e-4)

    longer = Harness().but(clocks="ignored", least_samples=700)
    assert timed(drifting(), longer).ratio.value == approx(TRUE_RATIO, rel=1e-3)
    sequential = timed(drifting(), longer.but(order="sequential"))
    when_subject, when_baseline = (
        median([sample.sm_mhz for sample in samples]).value
        for samples in (sequential.reading.subject, sequential.reading.baseline)
    )
    assert when_subject / when_baseline > 1.005
    assert sequential.ratio.value == approx(TRUE_RATIO * when_subject / when_baseline, rel=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_the_interval_of_one_placement_misses_what_the_next_placement_shows(seed: int) -> None:
    """What repeated measurements scatter by is in the interval only if the buffers move within one measurement."""
    gpu = VirtualGpu(placement=two_groups, noise=1e-4, seed=seed)
    varied, fixed = timed(gpu), timed(gpu, Harness().but(placement="fixed"))
    assert varied.time.low <= TRUE_US <= varied.time.high
    assert varied.time.placement is not None and varied.time.launches is not None
    assert varied.time.placement > 10 * varied.time.launches
    assert varied.ratio.low <= TRUE_RATIO <= varied.ratio.high, "the baseline doesn't depend on it, so the ratio does"
    assert fixed.time.value == approx(TRUE_US * (1 + gpu._slower), rel=1e-3), "one of the two groups"
    assert fixed.time.relative_half_width < 2e-4
    assert not fixed.time.low <= TRUE_US <= fixed.time.high


def test_both_kernels_move_in_step_and_at_least_nine_times() -> None:
    gpu = VirtualGpu(placement=two_groups)
    reading = timed(gpu).reading
    assert len(set(reading.placements("subject"))) == gpu.moves + 1 >= 9
    assert reading.placements("subject") == reading.placements("baseline")


def test_few_samples_visit_few_placements_and_the_result_states_how_many() -> None:
    result = timed(VirtualGpu(), Harness().but(most_samples=6, least_samples=2, warmup="count:1"))
    assert result.reading.placements("subject") == [1, 2, 3, 4, 5, 6]
    assert any(said.startswith("placement: 6") for said in result.reading.degradations)


def test_a_throttled_half_is_seen_and_taken_again() -> None:
    warmup = launches_of_warm_up(us=2000.0)  # deterministic, so the same
    throttled = range(warmup, warmup + 48)

    def gpu() -> VirtualGpu:
        return VirtualGpu(slow_launches=throttled, slow_mhz=REFERENCE_MHZ / 1.25)

    longer = Harness().but(least_samples=24)  # more than the warm-up's last windows hold
    unbiased = timed(gpu(), longer, us=2000.0)
    assert unbiased.time.value == approx(2000.0, rel=1e-3)
    assert any("taken again" in said for said in unbiased.reading.degradations)
    marked = [sample for sample in unbiased.reading.subject if not sample.counts]
    assert len(marked) >= 12
    assert all(sample.us == approx(1.25 * 2000.0 + 3.45) for sample in marked[:12])
    biased = timed(gpu(), longer.but(clocks="ignored"), us=2000.0)
    assert max(biased.reading.counted("subject")) == approx(1.25 * 2000.0 + 3.45)
    assert all(sample.counts for sample in biased.reading.subject)


def test_samples_under_a_throttle_mask_do_not_count() -> None:
    power_cap = THROTTLING & 0x4
    undisturbed = VirtualGpu()
    timed(undisturbed)
    result = timed(VirtualGpu(mask=lambda now: power_cap if now < undisturbed.host_now else 0))
    assert result.reading.throttle_mask == power_cap
    assert any(not sample.counts for sample in result.reading.subject)
    assert len(result.reading.counted("subject")) >= Harness().least_samples


def test_two_kernels_that_swap_a_fast_and_a_slow_buffer_in_step_are_compared_fairly() -> None:
    gpu = VirtualGpu()
    fast, slow = gpu.kernel(50.0), gpu.kernel(53.0)
    for load in (fast, slow):
        load()
    ours, theirs = cycle([fast, slow]), cycle([slow, fast])
    reading = time_pair(gpu, lambda: next(ours)(), lambda: next(theirs)(), Harness().but(precision=0.1))
    found = paired_ratio(*reading.comparisons())
    assert (found.low, found.high) == (approx(1.0), approx(1.0))
