"""A time is possible or not by the datapath that the kernel's code uses: `plausible`, from the code to the verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pytest import approx

from tests.virtual.arrays import Array, VirtualArrays
from tests.virtual.device import VirtualBaseline
from tests.virtual.machine import Machine
from tests.virtual.session import GPU, PEAK_TFLOPS, VirtualSession, measure
from worklog.emulator import EmulatedDevice
from worklog.gate.after_timing import fp32_roof
from worklog.gpu.peaks import Peaks
from worklog.kernel import rung
from worklog.problem import Shape
from worklog.runs import Work

PEAKS = Peaks(GPU, GPU.sm_clock_mhz)


class Faster(VirtualArrays):
    """Right products at a rate, in FLOP per microsecond."""

    rate = 0.0

    def _product_us(self, a: Array, b: Array) -> float:
        return 2 * a.shape[0] * a.shape[1] * b.shape[1] / self.rate


@pytest.mark.parametrize(
    ("name", "times", "detail"),
    [
        ("naive", 0.9, "possible by FP32 lanes"),
        ("naive", 1.2, "by FP32 lanes: work or time is missing"),
        ("promoted", 4.0, "possible by 3 products of f16 on tensor cores"),
        ("promoted", 6.7, "3 products of f16 on tensor cores, and FP32 lanes: work or time is missing"),
    ],
)
def test_a_kernel_is_held_to_what_its_code_can_reach(name: str, times: float, detail: str) -> None:
    """A rung's code, with results that are right, at a speed of so many times the peak of the FP32 lanes."""
    session = VirtualSession(Machine())
    session.loaded[name] = subject = VirtualBaseline(session.device, name)  # type: ignore[arg-type]
    subject.operands = rung(name).load(EmulatedDevice()).operands  # type: ignore[method-assign, attr-defined]
    subject.arrays = Faster(session.device.machine)  # type: ignore[attr-defined]
    subject.arrays.rate = 1e6 * PEAK_TFLOPS * times
    found = measure(session, name, Shape.of(128))
    assert found.status == ("failed" if "missing" in detail else "measured")
    assert found.verdict is not None
    (stage,) = (stage for stage in found.verdict.stages if stage.name == "plausible")
    assert detail in stage.detail and stage.passed == (found.status == "measured")


def test_without_a_known_peak_of_tensor_cores_no_rate_is_called_impossible() -> None:
    work = Work(flops=10**12)
    cards = [replace(GPU, compute_capability=version) for version in ((9, 0), (9, 9))]
    assert [bool(Peaks(card, GPU.sm_clock_mhz).impossible(1.0, work)) for card in cards] == [True, False]


def test_the_roof_is_the_peak_over_the_least_number_of_products() -> None:
    def beside(*operands: str) -> float:
        return fp32_roof(operands, PEAKS)[0] - PEAKS["fp32"]

    assert beside() == 0
    assert beside("f16") == approx(PEAKS["fp16"] / 3) and beside("tf32") == approx(PEAKS["tf32"] / 3)
    assert beside("bf16") == approx(PEAKS["bf16"] / 6) and beside("s8") == approx(PEAKS["fp8"] / 6)
    assert beside("f64") == approx(PEAKS["fp64_tensor"])
    assert beside("tf32", "f16") == beside("f16"), "the fastest way counts"
    assert beside("a type of tomorrow") == max(PEAKS.values())
