"""Each stage switched off in turn lets a wrong kernel pass: every stage is needed.

tests/exploits/test_host_functions.py does the same with the stages after timing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest

from tests.gate.kernels import epilogue, is_big, product, sequential, summed, wrong
from tests.gate.numpy_device import Function, NumpyDevice, NumpySubject, Problem
from tests.gate.test_gate import DEVICE, SHAPE
from worklog.gate import Guarded, Memory, SgemmChecker, checker, exact, precision, shapes
from worklog.gate.guarded_buffer import Buffers
from worklog.gate.precision import PrecisionReference
from worklog.gate.verdict import passed
from worklog.problem.gemm import Domain, Float32, Shape

Off = dict[tuple[Any, str], Any]


def one_element_short(p: Problem) -> Float32:
    """One element is off by less than real data can tell from rounding, in a row that is seldom sampled."""
    total = summed(p.a, p.b)
    total[77, 55] *= np.float32(1 + 2.0**-14)
    return total


def is_unknown(p: Problem) -> bool:
    """Neither one of the listed edge shapes nor the shape that is timed."""
    return max(p.m, p.n) > 50 and Shape(p.m, p.n, p.k) not in (*shapes.edge_shapes(Domain()), SHAPE)


def always(name: str) -> Callable[..., Any]:
    return lambda *_, **__: passed(name, "not checked")


written, fill = Buffers.written, Guarded.fill
NO_TRESPASS: Off = {(Buffers, "written"): lambda self, buffer: replace(written(self, buffer), trespass=None)}
NO_NAN: Off = {(Guarded, "fill"): lambda self, value: fill(self, np.nan_to_num(value))}
NO_SCALARS: Off = {(precision, "check_scalars"): always("scalars")}
NOT_HARD: Off = {(checker, "check_hard_data"): always("hard data")}
NOT_RAGGED: Off = {(shapes, "check_ragged"): always("ragged")}

CASES: dict[str, tuple[Off, Function]] = {
    "edge shapes": ({(shapes, "check_edge_shapes"): always("edge shapes")} | NO_SCALARS, wrong("k_tail_dropped")),
    "benchmark shape": (
        {(shapes, "check_benchmark_shape"): always("benchmark")},
        product(one_element_short, is_big),
    ),
    "scalars": (NO_SCALARS, wrong("alpha_in_11_bits")),
    "ragged": (NOT_RAGGED, wrong("edges_dropped_when_big")),
    "special data": ({(exact, "structured"): lambda *_: None}, wrong("a_stops_at_its_first_zero")),
    "magnitudes": ({(exact, "exponents"): lambda rng: cycle([0, 26, -26])}, wrong("tf32_in_a_range")),
    "repeat": ({(shapes, "check_repeated"): always("repeat")}, wrong("races")),
    "precision": (
        {(PrecisionReference, "judge"): lambda *_: ("fp32", passed("precision", "not checked"))},
        wrong("tf32_on_real_data"),
    ),
    "rows": (
        {(PrecisionReference, "wrong_rows"): lambda self, *_: self.rows[:0]},
        wrong("row_100_misses_a_k_on_real_data"),
    ),
    "factors": ({(PrecisionReference, "_along"): lambda self, c: None}, wrong("scaled_on_real_data")),
    "products": ({(precision, "check_products"): always("products")}, wrong("writes_past_c_in_family_e4")),
    "hard data": (NOT_HARD, wrong("clips_large_numbers")),
    "inputs": (NO_TRESPASS, wrong("clobbers_a_on_real_data")),
    "guards": (NO_TRESPASS, wrong("writes_past_c")),
    "NaN around the inputs": (NO_NAN, wrong("reads_past_a")),
    "powers of two": ({(exact, "stretch"): lambda *_: (1.0, 1.0)}, wrong("two_halves")),
    "signs": (
        {(shapes, "HALVES"): (0.5, 2.0), (shapes, "POWERS"): (2.0,)} | NO_SCALARS,
        wrong("sign_of_alpha_ignored"),
    ),
    "drawn shapes": (
        {(shapes, "drawn_shapes"): lambda *_: []},
        product(lambda p: summed(p.a[:, 1:], p.b[1:]), is_unknown),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_without_it_a_wrong_kernel_passes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one of two seeds: some are found by what is drawn. Most are found just below the benchmark shape too, or by
    hard data.
    """
    (off, function), claimed = CASES[name], "bf16" if name == "factors" else "fp32"

    def accepted() -> list[bool]:
        subject = NumpySubject(DEVICE, function)
        return [SgemmChecker(DEVICE, SHAPE, seed).check(subject, claimed).accepted for seed in range(2)]

    assert not any(accepted())
    for (where, name), blind in (off | NOT_HARD | NOT_RAGGED).items():
        monkeypatch.setattr(where, name, blind)
    assert any(accepted())


def test_without_a_sentinel_the_result_of_the_launch_before_passes() -> None:
    which = SgemmChecker(DEVICE, SHAPE, 0)
    a, b, c = which.buffers.abc
    NumpySubject(DEVICE, sequential).enqueue(SHAPE, 1.0, a, b, 0.0, c)
    assert which.check_timed_output(c).passed
    which.buffers.poison()
    assert not which.check_timed_output(c).passed


def test_without_nan_in_shared_memory_a_slot_that_was_never_written_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds zero, until another kernel has run in between."""
    device = NumpyDevice(source="live")

    def inherits(p: Problem) -> None:
        epilogue(p, summed(p.a, p.b) + device.inherited[0])

    def accepted() -> bool:
        device.inherited.fill(0)
        return SgemmChecker(device, Shape(40, 24, 16), 0).check(NumpySubject(device, inherits)).accepted

    assert not accepted()
    monkeypatch.setattr(Memory, "foul", lambda self: None)
    assert accepted()
