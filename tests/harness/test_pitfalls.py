"""Pitfalls in what is timed, on a virtual session, as in a run: the number is off by what the GPU was given.

Those in how it is timed are in test_readings.py and test_loop.py.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pytest import approx

from tests.harness.test_readings import CASES
from tests.virtual.arrays import Array, VirtualArrays
from tests.virtual.machine import Machine
from tests.virtual.session import PEAK_TFLOPS, QUICK, VirtualSession, measure, true_us
from worklog.problem.gemm import Shape
from worklog.runner.job import BASELINE
from worklog.runs.measurement import Measurement
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
    assert measured(session).status == "failed"
    found = measured(session, gate=False)
    assert (found.status, found.us) == ("measured", approx(1.0, rel=1e-3))
    assert any(said.startswith("gate: off") for said in found.degradations)


def test_every_pitfall_has_a_test() -> None:
    table = {setting for case in CASES.values() for setting in case.changes}
    others = {"statistic", "order", "turns", "inputs", "gate", "baseline", "roof"}  # functions here and in test_loop.py
    assert {pitfall.setting for pitfall in PITFALLS} <= table | others, "test what a new setting does to the number"
