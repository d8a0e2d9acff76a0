"""Which buffers a timed launch reads and writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.gate.numpy_device import NumpyDevice, NumpySubject, Problem
from worklog.bench.launches import Alternating, GoingRound, rotation, witnessed
from worklog.gate import Checker
from worklog.problem.gemm import Shape

SHAPE = Shape.of(64)  # 48 KiB a set
L2 = 96 * 1024


class Recorder:
    """A subject that notes which outputs it was launched on."""

    def __init__(self) -> None:
        self.outputs: list[int] = []

    def enqueue(self, shape: Shape, alpha: float, a: Any, b: Any, beta: float, c: Any) -> None:
        self.outputs.append(id(c))


def sets_of(in_step: bool) -> Any:
    checker = SimpleNamespace(buffers=[np.full(4, x) for x in (1.0, 2.0, 3.0)], spare=np.full(4, 4.0), shape=SHAPE)
    device = SimpleNamespace(download=lambda buffer: buffer.copy(), upload=lambda host: host.copy())
    return checker, *rotation(checker, device, L2, in_step)  # type: ignore[arg-type]


def test_outputs_alternate_and_the_last_one_written_is_known() -> None:
    subject, first, second = Recorder(), np.zeros(1), np.zeros(1)
    launch = Alternating(subject, SHAPE, 1.0, (np.ones(1), np.ones(1)), [first, second])  # type: ignore[arg-type]
    for _ in range(3):
        launch()
    assert subject.outputs[0] == subject.outputs[2] != subject.outputs[1]
    assert id(launch.written) == subject.outputs[-1]


@pytest.mark.parametrize(("in_step", "apart"), [(True, 3), (False, 0)])
def test_the_sets_are_copies_enough_for_the_cache_and_half_a_round_apart_in_step(in_step: bool, apart: int) -> None:
    checker, ours, theirs = sets_of(in_step)
    assert len(ours) == len(theirs) == 6
    assert all(int(a[0]) == 1 and int(b[0]) == 2 for a, b, _ in ours + theirs)
    assert any(c is checker.buffers[2] for _, _, c in ours)
    assert not {id(c) for _, _, c in ours} & {id(c) for _, _, c in theirs}, "never the same output"
    place = {id(a): n for n, (a, _, _) in enumerate(theirs)}
    assert [(place[id(a)] - n) % 6 for n, (a, _, _) in enumerate(ours)] == [apart] * 6


def test_going_round_takes_each_set_in_turn() -> None:
    subject = Recorder()
    _, ours, _ = sets_of(in_step=True)
    launch = GoingRound(subject, SHAPE, 1.0, ours)  # type: ignore[arg-type]
    for _ in range(7):
        launch()
    assert subject.outputs == [id(c) for _, _, c in (*ours, ours[0])]
    assert launch.written is ours[0][2]


def correct(p: Problem) -> None:
    p.c[:] = p.alpha * (p.a @ p.b)


def wrong_where_it_swaps() -> Any:
    """Right in one of two outputs that take turns."""
    seen: list[int] = []

    def function(p: Problem) -> None:
        correct(p)
        seen.append(id(p.c_buffer.memory))
        p.c[0, 0] += seen[-1] != seen[0]

    return function


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("wrong", ["neither", "subject", "baseline"])
def test_every_launch_of_a_witnessed_loop_is_judged_on_its_own_output(wrong: str, warm: bool) -> None:
    device = NumpyDevice()
    checker = Checker(device, Shape(32, 48, 16), 0)
    functions = [wrong_where_it_swaps() if wrong == which else correct for which in ("subject", "baseline")]
    subject, reference = (NumpySubject(device, function) for function in functions)
    loop = witnessed(checker, subject, reference, in_step=True, classes=("fp32", "fp32"), warm=warm)
    checker.poison()
    before = device.launches
    for _ in range(4):
        loop.subject()
        loop.baseline()
    stage = loop.stages[-1]()
    starts = {"neither": "4 launches", "subject": "", "baseline": "of the baseline function: "}
    assert stage.passed is (wrong == "neither"), stage.detail
    assert stage.detail.startswith(starts[wrong])
    assert device.launches - before == (16 if warm else 8)
