"""Pitfalls in what is launched and what it is compared with: on a virtual device, by the same path as a run, each
changes its number by as much as the device was given, and the unbiased setting gives the true number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pytest import approx

from tests.harness import test_fixes
from tests.virtual.arrays import Array, VirtualArrays
from tests.virtual.device import VirtualBaseline
from tests.virtual.machine import Machine
from tests.virtual.session import PEAK_TFLOPS, QUICK, VirtualSession, measure, true_us, virtual_gpu
from worklog.bench.tasks import BASELINE
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement
from worklog.settings import BF16_DATASHEET_TFLOPS, PITFALLS

SHAPE = Shape(96, 64, 80)
TENSOR_CORES = 4.0  # how much faster a product with short operands is here
ZEROS = 1.25  # and one of zeros, which draws less power


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
def session() -> Iterator[VirtualSession]:
    """cuBLAS against itself, and a TF32 one beside it."""
    with virtual_gpu():
        made = VirtualSession(Machine(), SimpleNamespace(name="other"))  # type: ignore[arg-type]
        for math, baseline in made.baselines.items():
            assert isinstance(baseline, VirtualBaseline)
            baseline.arrays = Products(made.device.machine)  # type: ignore[attr-defined]
            baseline.arrays.faster = TENSOR_CORES if math == "tf32" else 1.0
        yield made


def measured(session: VirtualSession, **biased: Any) -> Measurement:
    return measure(session, BASELINE, SHAPE, QUICK.but(**biased))


def unbiased_us(session: VirtualSession) -> float:
    return true_us(session.device.machine, SHAPE)  # type: ignore[attr-defined]


def test_the_unbiased_harness_reads_the_true_time(session: VirtualSession) -> None:
    found = measured(session)
    assert found.us == approx(unbiased_us(session), rel=1e-3)
    assert found.ratio == approx(1.0, rel=1e-3)
    assert found.tflops is not None and found.of_roof == approx(found.tflops / PEAK_TFLOPS)


def test_another_datapath_makes_every_kernel_look_slow_by_as_much_as_it_is_faster(session: VirtualSession) -> None:
    found = measured(session, baseline="tf32")
    assert found.ratio == approx(1 / TENSOR_CORES, rel=1e-3)
    assert found.us == approx(unbiased_us(session), rel=1e-3)
    assert "baseline: tf32" in found.degradations


def test_zeros_are_faster_by_what_the_device_gains_from_them(session: VirtualSession) -> None:
    found = measured(session, inputs="zeros")
    assert found.us == approx(unbiased_us(session) / ZEROS, rel=1e-3)
    assert "inputs: zeros" in found.degradations
    assert measured(session).us == approx(unbiased_us(session), rel=1e-3), "and the checker's own inputs are restored"


def test_the_wrong_roof_hides_the_share_that_was_reached(session: VirtualSession) -> None:
    found = measured(session, roof="bf16_datasheet")
    assert found.tflops is not None and found.of_roof == approx(found.tflops / BF16_DATASHEET_TFLOPS)


def test_without_the_gate_the_kernel_that_does_nothing_wins(session: VirtualSession) -> None:
    for baseline in session.baselines.values():
        baseline.arrays = Nothing(session.device.machine)  # type: ignore[attr-defined]
    assert measured(session).status == "refused"
    found = measured(session, gate=False)
    assert (found.status, found.us) == ("measured", approx(1.0, rel=1e-3))
    assert any(said.startswith("gate: off") for said in found.degradations)


def test_every_pitfall_has_its_test() -> None:
    """A new row of the table needs a test of its effect on the number."""
    known: dict[str, Callable[..., None]] = {
        "clocks": test_fixes.test_a_throttled_half_is_seen_and_taken_again,
        "timer": test_fixes.test_a_host_clock_reads_what_the_launch_costs_the_host,
        "l2": test_fixes.test_a_warm_cache_is_as_fast_as_the_cache_makes_it,
        "warmup": test_fixes.test_a_launch_after_idling_runs_at_the_idle_clock,
        "queue": test_fixes.test_an_empty_queue_shows_the_launch_bubble,
        "offset": test_fixes.test_a_kept_offset_is_on_top,
        "statistic": test_fixes.test_a_mean_follows_the_outliers,
        "order": test_fixes.test_drift_between_two_kernels_moves_their_ratio_only_when_they_are_timed_in_turn,
        "placement": test_fixes.test_the_interval_of_one_placement_misses_what_the_next_placement_shows,
        "inputs": test_zeros_are_faster_by_what_the_device_gains_from_them,
        "gate": test_without_the_gate_the_kernel_that_does_nothing_wins,
        "baseline": test_another_datapath_makes_every_kernel_look_slow_by_as_much_as_it_is_faster,
        "roof": test_the_wrong_roof_hides_the_share_that_was_reached,
    }
    assert known.keys() == {pitfall.setting for pitfall in PITFALLS}
