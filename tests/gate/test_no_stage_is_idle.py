"""Each stage switched off in turn lets a wrong kernel through: none is for show, and none hides behind another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.gate.numpy_device import Function, NumpyDevice, NumpySubject, Problem
from tests.gate.right import epilogue, sequential, summed
from tests.gate.wrong import (
    alpha_ignored,
    clobbers_a_on_real_data,
    cut,
    is_big,
    races,
    tf32_unless_integers,
    writes_past_c,
)
from worklog.gate import Exam, arena, benchmark, ragged
from worklog.gate.precision import PrecisionQuestion
from worklog.gate.repeat import Repeater
from worklog.gate.verdict import passed
from worklog.gemm import Shape

SHAPE = Shape(192, 160, 144)
DEVICE = NumpyDevice()


def one_element_short_when_big(p: Problem) -> None:
    """One element keeps 14 bits: less than what real data can tell from rounding, in a row that few look at."""
    product = summed(p.a, p.b)
    if is_big(p):
        product[77:78, 55:56] = cut(product[77:78, 55:56].copy(), 10, half=True)
    epilogue(p, product)


def accepted(function: Function) -> list[bool]:
    """On a few seeds: what is sampled decides too."""
    return [Exam(DEVICE, SHAPE, seed).examine(NumpySubject(DEVICE, function)).accepted for seed in range(6)]


def always(name: str) -> Callable[..., Any]:
    return lambda *_, **__: passed(name, "not asked")


@pytest.mark.parametrize(
    ("where", "name", "blind", "function"),
    [
        (ragged, "ask", always("ragged"), alpha_ignored),
        (benchmark, "ask", always("benchmark"), one_element_short_when_big),
        (Repeater, "ask", always("repeat"), races),
        (PrecisionQuestion, "judge", lambda *_: ("fp32", passed("precision", "not asked")), tf32_unless_integers),
        (arena.Result, "trespass", None, clobbers_a_on_real_data),
        (arena.Result, "trespass", None, writes_past_c),
    ],
    ids=["ragged", "benchmark", "repeat", "precision", "inputs", "guards"],
)
def test_without_it_something_passes(
    where: Any, name: str, blind: Any, function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any(accepted(function))
    monkeypatch.setattr(where, name, blind)
    assert any(accepted(function))


def test_without_a_sentinel_something_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that does nothing leaves the answer of the launch before, if nobody wipes it away."""
    which = Exam(DEVICE, SHAPE, 0)
    subject = NumpySubject(DEVICE, sequential)
    assert which.examine(subject).accepted
    monkeypatch.setattr(arena.Arena, "poison", lambda self: None)
    assert which.check_timed_output(which.buffers[2]).passed
    monkeypatch.undo()
    which.poison()
    assert not which.check_timed_output(which.buffers[2]).passed
