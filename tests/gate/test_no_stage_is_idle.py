"""Each stage switched off in turn lets a wrong kernel pass: every stage is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gate.numpy_device import Function, NumpyDevice, NumpySubject, Problem
from tests.gate.right import epilogue, sequential, summed
from tests.gate.wrong_places import clobbers_a_on_real_data, races, reads_past_a, writes_past_c
from tests.gate.wrong_stages import holds_integers, is_big
from tests.gate.wrong_values import (
    k_tail_dropped,
    one_row_of_many_off_unless_integers,
    scaled_unless_integers,
    tf32_unless_integers,
)
from worklog.gate import Checker, guarded_buffer, precision, shapes
from worklog.gate.guarded_buffer import Memory
from worklog.gate.precision import PrecisionReference
from worklog.gate.verdict import passed
from worklog.problem.gemm import Domain, Shape

SHAPE = Shape(192, 160, 144)
DEVICE = NumpyDevice()


def one_element_short_when_big(p: Problem) -> None:
    """One element is off by less than what real data can tell from rounding, in a row that few look at."""
    product = summed(p.a, p.b)
    if is_big(p):
        product[77, 55] *= np.float32(1 + 2.0**-14)
    epilogue(p, product)


def writes_outside_in_family_e4(p: Problem) -> None:
    """Where it sees that only products are looked at."""
    epilogue(p, summed(p.a, p.b))
    if holds_integers(p) and np.count_nonzero(p.b) == p.n and p.k > 1:
        p.c_buffer.beyond(0, 2)[-1] = 0


def halves_inside(p: Problem) -> None:
    """Two parts of each operand in FP16, which ends at 65504."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        high = [x.astype(np.float16).astype(np.float32) for x in (p.a, p.b)]
        low = [
            ((x - y) * 2048).astype(np.float16).astype(np.float32) / 2048 for x, y in zip((p.a, p.b), high, strict=True)
        ]
        epilogue(p, summed(high[0] + low[0], high[1] + low[1]))


def loses_the_sign_of_alpha(p: Problem) -> None:
    p.c[:] = abs(p.alpha) * summed(p.a, p.b) + (p.beta * p.c if p.beta else 0)


def right_where_it_is_known(p: Problem) -> None:
    """On the shapes that are always asked, and on the one that is timed."""
    known = Shape(p.m, p.n, p.k) in (*shapes.edge_shapes(Domain()), SHAPE)
    epilogue(p, summed(p.a, p.b) if known else summed(p.a[:, 1:], p.b[1:]))


def accepted(function: Function, claimed: str = "fp32") -> list[bool]:
    """On a few seeds: what is sampled decides too."""
    return [Checker(DEVICE, SHAPE, seed).check(NumpySubject(DEVICE, function), claimed).accepted for seed in range(2)]


written = guarded_buffer.Buffers.written


def without_trespass(self: guarded_buffer.Buffers, buffer: Any) -> Any:
    return replace(written(self, buffer), trespass=None)


def always(name: str) -> Callable[..., Any]:
    return lambda *_, **__: passed(name, "not checked")


@pytest.mark.parametrize(
    ("where", "name", "blind", "function"),
    [
        (shapes, "check_edge_shapes", always("edge shapes"), k_tail_dropped),
        (shapes, "check_benchmark_shape", always("benchmark shape"), one_element_short_when_big),
        (shapes, "check_repeated", always("repeat"), races),
        (PrecisionReference, "judge", lambda *_: ("fp32", passed("precision", "not checked")), tf32_unless_integers),
        (PrecisionReference, "wrong_rows", lambda self, *_: self.rows[:0], one_row_of_many_off_unless_integers),
        (precision, "check_products", always("products"), writes_outside_in_family_e4),
        (guarded_buffer.Buffers, "written", without_trespass, clobbers_a_on_real_data),
        (guarded_buffer.Buffers, "written", without_trespass, writes_past_c),
    ],
    ids=["edge shapes", "benchmark shape", "repeat", "precision", "rows", "products", "inputs", "guards"],
)
def test_without_it_something_passes(
    where: Any, name: str, blind: Any, function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any(accepted(function))
    monkeypatch.setattr(where, name, blind)
    assert any(accepted(function))


@pytest.mark.parametrize(
    ("changes", "function"),
    [
        ({"stretch": lambda *_: (1.0, 1.0)}, halves_inside),
        ({"HALVES": (0.5, 2.0)}, loses_the_sign_of_alpha),
        ({"drawn_shapes": lambda *_: []}, right_where_it_is_known),
    ],
    ids=["powers of two", "signs", "drawn shapes"],
)
def test_without_these_questions_something_passes(
    changes: dict[str, Any], function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any(accepted(function))
    for name, value in changes.items():
        monkeypatch.setattr(shapes, name, value)
        monkeypatch.setattr(shapes, name, value, raising=False)
    monkeypatch.setattr(shapes, "_power", lambda rng: 2.0)
    assert all(accepted(function))


def test_without_a_sentinel_something_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that does nothing leaves the answer of the launch before, if nobody wipes it away."""
    which = Checker(DEVICE, SHAPE, 0)
    subject = NumpySubject(DEVICE, sequential)
    assert which.check(subject).accepted
    monkeypatch.setattr(guarded_buffer.Buffers, "poison", lambda self: None)
    assert which.check_timed_output(which.buffers[2]).passed
    monkeypatch.undo()
    which.poison()
    assert not which.check_timed_output(which.buffers[2]).passed


def test_without_a_look_for_factors_something_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything times 1.001 has the error of BF16, and passes for it."""
    assert not any(accepted(scaled_unless_integers, "bf16"))
    monkeypatch.setattr(PrecisionReference, "factor", lambda self, c: None)
    assert all(accepted(scaled_unless_integers, "bf16"))


def test_without_nan_around_the_inputs_something_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read past A and multiplied with zero shows only if it is no number."""
    assert not any(accepted(reads_past_a))
    fill = NumpyDevice.fill
    monkeypatch.setattr(NumpyDevice, "fill", lambda self, buffer, value: fill(self, buffer, np.nan_to_num(value)))
    assert all(accepted(reads_past_a))


def test_without_dirt_in_shared_memory_something_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot that nobody wrote holds zero, until another kernel has run in between."""
    device = NumpyDevice(source="live")

    def inherits(p: Problem) -> None:
        epilogue(p, summed(p.a, p.b) + device.inherited[0])

    def examined() -> bool:
        device.inherited.fill(0)
        return Checker(device, SHAPE, 0).check(NumpySubject(device, inherits)).accepted

    assert not examined()
    monkeypatch.setattr(Memory, "foul", lambda self: None)
    assert examined()


def test_without_a_look_at_every_launch_something_passes() -> None:
    """Every second launch does half of its work, and the last one all of it."""
    launches = 0

    def every_second(p: Problem) -> None:
        nonlocal launches
        launches += 1
        epilogue(p, summed(p.a, p.b))
        if launches % 2 == 0:
            p.c[: p.m // 2] = 0

    checker, subject = Checker(DEVICE, SHAPE, 0), NumpySubject(DEVICE, every_second)
    probe = checker.probe()
    checker.poison()
    for _ in range(5):
        subject.enqueue(SHAPE, 1.0, *checker.buffers[:2], 0.0, checker.buffers[2])
    assert checker.check_timed_output(checker.buffers[2]).passed
    launches = 0
    for _ in range(5):
        probe.prepare(*checker.buffers)
        subject.enqueue(SHAPE, 1.0, *checker.buffers[:2], 0.0, checker.buffers[2])
        probe.observe(checker.buffers[2])
        probe.check(*checker.buffers[:2])
    assert not checker.check_timed_launches(probe).passed
