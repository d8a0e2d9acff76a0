"""Each pitfall, on a GPU that has it: with the fix the true time comes out, without it the number is off by what the
GPU was given. Pitfalls in how it is timed run on VirtualGpu, those in what is timed on a virtual session, as in a run.
"""

from __future__ import annotations

from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pytest import approx

from tests.virtual.arrays import Array, VirtualArrays
from tests.virtual.gpu import REFERENCE_MHZ, VirtualGpu
from tests.virtual.machine import Machine
from tests.virtual.session import (
    BASELINE_US,
    PEAK_TFLOPS,
    QUICK,
    VirtualSession,
    launches_of_warm_up,
    measure,
    timed,
    true_us,
)
from worklog.harness import Harness, time_pair
from worklog.problem.gemm import Shape
from worklog.runner.tasks import BASELINE
from worklog.runs.measurement import Measurement
from worklog.runs.samples import median, paired_ratio
from worklog.settings import BF16_DATASHEET_TFLOPS, PITFALLS

TRUE_US = 50.0
TRUE_RATIO = BASELINE_US / TRUE_US
SHAPE = Shape(96, 64, 80)
TENSOR_CORES = 4.0  # how much faster a product with short operands is here
ZEROS = 1.25  # and one of zeros, which draws less power


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
        fetch_us=1.0,
        **more,
    )


@pytest.mark.parametrize("us", [2.0, 10.0, 50.0, 1000.0, 20_000.0])
def test_all_fixes_on_recover_the_truth(us: float) -> None:
    result = timed(everything_at_once(placement=two_groups), us=us, sensitivity=0.0)
    assert result.time.value == approx(us, rel=1e-3, abs=0.033)
    assert result.ratio.value == approx(BASELINE_US / us, rel=1e-3, abs=0.033 / us * BASELINE_US / us)
    assert result.reading.converged
    assert result.reading.degradations == []


READS: dict[str, tuple[VirtualGpu, dict[str, Any], float]] = {
    "timer": (VirtualGpu(Machine(enqueue_us=6.5)), {"timer": "host"}, 6.5),  # the host's cost of a launch
    "queue": (VirtualGpu(Machine(enqueue_us=9.0)), {"queue": False}, TRUE_US + 9.0),  # with the launch bubble
    "offset": (VirtualGpu(offset_us=2.5), {"offset": "kept"}, TRUE_US + 2.5),
    "l2": (VirtualGpu(warm_speedup=1.4), {"l2": "warm"}, TRUE_US / 1.4),
    "warmup": (  # loads its module on an idle GPU
        VirtualGpu(load_us=1000.0, ramp_us=1e9, idle_mhz=500.0),
        {"warmup": "none", "statistic": "first"},
        1000.0 + TRUE_US * REFERENCE_MHZ / 500.0 + 4.0,
    ),
}


@pytest.mark.parametrize("setting", READS)
def test_a_biased_setting_is_off_by_what_the_gpu_was_given(setting: str) -> None:
    gpu, changes, expected = READS[setting]
    assert timed(gpu, Harness().but(**changes)).time.value == approx(expected, rel=1e-3)


def test_a_mean_follows_the_outliers_and_a_minimum_is_the_luckiest_sample() -> None:
    gpu = VirtualGpu(outlier_every=10, outlier_factor=6.0)
    harness = Harness().but(statistic="mean", precision=0.9, least_samples=100)
    result = timed(gpu, harness)
    share = sum(us > 2 * TRUE_US for us in result.reading.counted("subject")) / len(result.reading.subject)
    assert share == approx(0.1, abs=0.05)
    assert result.time.value == approx(TRUE_US * (1 + 5 * share))
    assert timed(gpu, harness.but(statistic="median")).time.value == approx(TRUE_US)
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
    varied = timed(gpu)
    assert len(set(varied.reading.placements("subject"))) == gpu.moves + 1 >= 9
    assert varied.reading.placements("subject") == varied.reading.placements("baseline"), "both move in step"
    fixed = timed(gpu, Harness().but(placement="fixed"))
    assert varied.time.low <= TRUE_US <= varied.time.high
    assert varied.time.placement is not None and varied.time.launches is not None
    assert varied.time.placement > 10 * varied.time.launches
    assert varied.ratio.low <= TRUE_RATIO <= varied.ratio.high, "the baseline doesn't depend on it, so the ratio does"
    assert fixed.time.value == approx(TRUE_US * (1 + gpu.slower), rel=1e-3), "one of the two groups"
    assert fixed.time.relative_half_width < 2e-4
    assert not fixed.time.low <= TRUE_US <= fixed.time.high


@pytest.mark.parametrize("us", [5.0, 50.0, 500.0])
def test_40_samples_are_enough_for_nine_placements(us: float) -> None:
    """Of short kernels too, whose warm-up ends with more samples than that, all in one placement."""
    found = timed(VirtualGpu(placement=two_groups, noise=1e-3), Harness().but(most_samples=40), us=us).reading
    assert len(set(found.placements("subject"))) >= 9 and len(found.subject) <= 40


def test_a_host_clock_keeps_to_the_budget_of_a_long_kernel() -> None:
    """It reads microseconds for a launch of 300 ms."""
    gpu = VirtualGpu()
    found = timed(gpu, Harness().but(timer="host", budget_s=1.0, warmup="none"), us=300_000.0)
    assert found.time.value < 100.0 and not any("0.0 s" in said for said in found.reading.degradations)
    assert gpu.machine.device_now / 1e6 < 1.0 + 1.0 + 0.5, (
        "the pause before a cold start, the budget, and one launch more"
    )


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


def test_two_kernels_that_swap_a_fast_and_a_slow_buffer_in_step_are_compared_fairly() -> None:
    gpu = VirtualGpu()
    fast, slow = gpu.kernel(50.0), gpu.kernel(53.0)
    for load in (fast, slow):
        load()
    ours, theirs = cycle([fast, slow]), cycle([slow, fast])
    reading = time_pair(gpu, lambda: next(ours)(), lambda: next(theirs)(), Harness().but(precision=0.1))
    found = paired_ratio(*reading.comparisons())
    assert (found.low, found.high) == (approx(1.0), approx(1.0))


# ------------------------------------------------------------------------------------------------ what is timed


class Products(VirtualArrays):
    """Products whose time depends on the datapath and on the data."""

    faster = 1.0

    def _product_us(self, a: Array, b: Array) -> float:
        easy = 1.0 if a.data.any() else ZEROS
        return super()._product_us(a, b) / self.faster / easy


class Nothing(VirtualArrays):
    """A product that is never computed."""

    def gemm(self, alpha: float, a: Array, b: Array, beta: float, c: Array, rounded: bool = False) -> None:
        self._enqueue(1.0, lambda: np.float32(0) + c.data, c)


@pytest.fixture
def session() -> VirtualSession:
    """cuBLAS against itself, and a TF32 one beside it."""
    made = VirtualSession(Machine(), SimpleNamespace(name="other"))  # type: ignore[arg-type]
    baselines: dict[str, Any] = made.baselines
    for math, baseline in baselines.items():
        baseline.arrays = Products(made.device.machine)
        baseline.arrays.faster = TENSOR_CORES if math == "tf32" else 1.0
    return made


def measured(session: VirtualSession, **biased: Any) -> Measurement:
    return measure(session, BASELINE, SHAPE, QUICK.but(**biased))


def unbiased_us(session: VirtualSession) -> float:
    return true_us(session.device.machine, SHAPE)  # type: ignore[attr-defined]


def test_another_datapath_makes_every_kernel_look_slow_by_as_much_as_it_is_faster(session: VirtualSession) -> None:
    found = measured(session, baseline="tf32")
    assert found.ratio == approx(1 / TENSOR_CORES, rel=1e-3)
    assert found.us == approx(unbiased_us(session), rel=1e-3)
    assert "baseline: tf32" in found.degradations


def test_zeros_are_faster_by_what_the_device_gains_from_them(session: VirtualSession) -> None:
    found = measured(session, inputs="zeros")
    assert found.us == approx(unbiased_us(session) / ZEROS, rel=1e-3)
    assert "inputs: zeros" in found.degradations
    unbiased = measured(session)
    assert unbiased.us == approx(unbiased_us(session), rel=1e-3), "the checker's own inputs are restored"
    assert unbiased.ratio == approx(1.0, rel=1e-3)


def test_the_wrong_roof_hides_the_share_that_was_reached(session: VirtualSession) -> None:
    for roof, tflops in (("fp32", PEAK_TFLOPS), ("bf16_datasheet", BF16_DATASHEET_TFLOPS)):
        found = measured(session, roof=roof)
        assert found.tflops is not None and found.of_roof == approx(found.tflops / tflops)


def test_without_the_gate_the_kernel_that_does_nothing_wins(session: VirtualSession) -> None:
    baselines: Any = session.baselines
    baselines["fp32"].arrays = Nothing(baselines["fp32"].device.machine)
    assert measured(session).status == "refused"
    found = measured(session, gate=False)
    assert (found.status, found.us) == ("measured", approx(1.0, rel=1e-3))
    assert any(said.startswith("gate: off") for said in found.degradations)


def test_every_pitfall_has_a_test_here() -> None:
    others = {"clocks", "statistic", "order", "placement", "inputs", "gate", "baseline", "roof"}
    assert {*READS, *others} == {pitfall.setting for pitfall in PITFALLS}, "test what a new setting does to the number"
