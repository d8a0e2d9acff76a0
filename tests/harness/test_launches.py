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
    """A subject that notes what it was launched on."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def enqueue(self, shape: Shape, alpha: float, a: Any, b: Any, beta: float, c: Any) -> None:
        self.seen.append((id(a), id(b), id(c), alpha, beta))


def sets_of(in_step: bool) -> Any:
    exam = SimpleNamespace(buffers=[np.full(4, x) for x in (1.0, 2.0, 3.0)], spare=np.full(4, 4.0), shape=SHAPE)
    device = SimpleNamespace(download=lambda buffer: buffer.copy(), upload=lambda host: host.copy())
    return exam, *rotation(exam, device, L2, in_step)  # type: ignore[arg-type]


def test_outputs_alternate_and_the_last_one_written_is_known() -> None:
    subject, first, second = Recorder(), np.zeros(1), np.zeros(1)
    launch = Alternating(subject, SHAPE, 1.0, (np.ones(1), np.ones(1)), [first, second])  # type: ignore[arg-type]
    for _ in range(3):
        launch()
    outputs = [c for _, _, c, _, _ in subject.seen]
    assert outputs[0] == outputs[2] != outputs[1]
    assert id(launch.written) == outputs[-1]


def test_the_sets_hold_what_the_exams_hold_and_are_enough_for_the_cache() -> None:
    exam, ours, theirs = sets_of(in_step=True)
    assert len(ours) == len(theirs) == 6
    assert all(int(a[0]) == 1 and int(b[0]) == 2 for a, b, _ in ours + theirs)
    assert any(c is exam.buffers[2] for _, _, c in ours)


def test_subject_and_baseline_never_write_the_same_output_and_stay_half_a_round_apart() -> None:
    _, ours, theirs = sets_of(in_step=True)
    assert not {id(c) for _, _, c in ours} & {id(c) for _, _, c in theirs}
    place = {id(a): n for n, (a, _, _) in enumerate(theirs)}
    assert [(place[id(a)] - n) % 6 for n, (a, _, _) in enumerate(ours)] == [3] * 6


def test_whole_rounds_one_after_the_other_start_at_the_same_set() -> None:
    _, ours, theirs = sets_of(in_step=False)
    assert [id(a) for a, _, _ in ours] == [id(a) for a, _, _ in theirs]


def test_going_round_takes_each_set_in_turn() -> None:
    subject = Recorder()
    _, ours, _ = sets_of(in_step=True)
    launch = GoingRound(subject, SHAPE, 1.0, ours)  # type: ignore[arg-type]
    for _ in range(7):
        launch()
    assert [seen[2] for seen in subject.seen] == [id(c) for _, _, c in (*ours, ours[0])]
    assert launch.written is ours[0][2]


RIGHT = (32, 48, 16)


def correct(p: Problem) -> None:
    p.c[:] = p.alpha * (p.a @ p.b)


def wrong_where_it_swaps() -> Any:
    """Right in one of two outputs that take turns."""
    seen: list[int] = []

    def function(p: Problem) -> None:
        correct(p)
        place = id(p.c_buffer.memory)
        seen.append(place)
        if place != seen[0]:
            p.c[0, 0] += 1

    return function


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(("function", "good"), [(lambda: correct, True), (wrong_where_it_swaps, False)])
def test_every_launch_of_a_witnessed_loop_is_judged_on_its_own_output(function: Any, good: bool, warm: bool) -> None:
    device = NumpyDevice()
    exam = Checker(device, Shape(*RIGHT), 0)
    subject, reference = NumpySubject(device, function()), NumpySubject(device, correct)
    loop = witnessed(exam, subject, reference, in_step=True, classes=("fp32", "fp32"), warm=warm)
    exam.poison()
    before = device.launches
    for _ in range(4):
        for launch in (loop.subject, loop.baseline):
            launch()
    stage = loop.stages[-1]()
    assert stage.passed is good, stage.detail
    assert device.launches - before == (16 if warm else 8)
    assert stage.detail.startswith("4 launches") is good


def test_a_wrong_baseline_is_named() -> None:
    device = NumpyDevice()
    exam = Checker(device, Shape(*RIGHT), 0)
    subject, reference = NumpySubject(device, correct), NumpySubject(device, wrong_where_it_swaps())
    loop = witnessed(exam, subject, reference, in_step=True, classes=("fp32", "fp32"), warm=False)
    exam.poison()
    for _ in range(4):
        for launch in (loop.subject, loop.baseline):
            launch()
    assert loop.stages[-1]().detail.startswith("of the baseline function: 2 rows off")
