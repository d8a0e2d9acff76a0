"""What host code can change of the gate and the ruler is named, and what everybody does is not held against anybody."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.gate.numpy_device import NumpyDevice, NumpySubject
from tests.gate.right import sequential
from tests.virtual.undone import undone
from worklog.gate import Exam, every_launch, precision, ragged
from worklog.gate.integrity import Integrity
from worklog.gate.verdict import Verdict
from worklog.harness import Harness, batches, time_pair
from worklog.problem.gemm import Shape

HARNESS = Harness()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What other tests have left in this process is looked through no more: it can be some millions of objects. What
    the package has made at import still is, where a test says so by `gc.unfreeze`.
    """
    gc.freeze()
    monkeypatch.setattr(sys.modules[__name__], "HARNESS", Harness())
    yield
    gc.unfreeze()


def a_default() -> None:
    batches.take_batch.__defaults__ = (False, 0)


def a_keyword_default() -> None:
    time_pair.__kwdefaults__ = {"size": None, "offset_us": 9.0}


def a_property() -> None:
    Verdict.accepted = property(lambda self: True)  # type: ignore[assignment, method-assign]


def a_base() -> None:
    class Kinder(Verdict):
        pass

    sys.modules["worklog.gate.verdict"].Verdict = Kinder  # type: ignore[attr-defined]


def a_setting() -> None:
    object.__setattr__(HARNESS, "gate", False)


def a_trace() -> None:
    sys.settrace(lambda frame, event, argument: None)


CHANGES: list[tuple[Callable[[], object], str]] = [
    (lambda: setattr(precision, "OUTLIER", 1e9), "worklog.gate.precision.OUTLIER"),
    (lambda: precision.RANK.update(bf16=0), "worklog.gate.precision.RANK['bf16']"),
    (lambda: setattr(ragged, "HALVES", (1.0,)), "worklog.gate.ragged.HALVES"),
    (lambda: setattr(every_launch, "max", lambda *words: 0), "worklog.gate.every_launch.max, which was not there"),
    (lambda: setattr(np, "rint", lambda values: values), "numpy.rint"),
    (lambda: setattr(np, "array_equal", lambda one, other, equal_nan=False: True), "numpy.array_equal"),
    (lambda: setattr(time, "monotonic", lambda: 0.0), "time.monotonic"),
    (lambda: os.environ.update(NVIDIA_TF32_OVERRIDE="1"), "the environment's NVIDIA_TF32_OVERRIDE from None to 1"),
    (a_default, "worklog.harness.batches.take_batch"),
    (a_keyword_default, "worklog.harness.sampling.time_pair"),
    (a_property, "worklog.gate.verdict.Verdict.accepted"),
    (a_base, "worklog.gate.verdict.Verdict"),
    (a_setting, "Harness.gate of a frozen value"),
    (a_trace, "the tracing function"),
]


@pytest.mark.parametrize(("change", "named"), CHANGES, ids=[named for _, named in CHANGES])
def test_a_change_is_refused_and_named(change: Callable[[], object], named: str) -> None:
    with undone():
        judge = Integrity.taken().stage
        change()
        stage = judge()
    assert not stage.passed and stage.measured >= 1 and named in stage.detail, stage.detail


def test_a_device_tells_what_else_may_change() -> None:
    device = {"the current device": 0}
    judge = Integrity.taken(states=(lambda: dict(device),)).stage
    assert judge().passed
    device["the current device"] = 1
    assert judge().detail == "its host code changed the current device from 0 to 1"


def test_using_the_gate_threads_and_a_compilers_habits_change_nothing() -> None:
    gc.unfreeze()  # the gate's own objects too
    device = NumpyDevice()
    judge = Integrity.taken(device).stage
    Exam(device, Shape(40, 24, 16), 1).examine(NumpySubject(device, sequential))
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="a compiler")
    thread.start()
    os.environ["A_COMPILERS_CACHE"] = "somewhere"
    stage = judge()
    del os.environ["A_COMPILERS_CACHE"]
    done.set()
    thread.join()
    assert stage.passed and "it started the threads a compiler" in stage.detail, stage.detail


def test_the_exam_asks_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread is started by Python that a subject's host code can exchange, with every question in hand."""

    def caught(*what: object) -> None:
        raise AssertionError("a thread is started")

    monkeypatch.setattr(threading.Thread, "start", caught)
    device = NumpyDevice()
    assert Exam(device, Shape(40, 24, 16), 1).examine(NumpySubject(device, sequential)).accepted


def test_an_object_whose_method_is_hidden_is_named() -> None:
    device = NumpyDevice()
    judge = Integrity.taken(device).stage
    device.synchronize = lambda: None  # type: ignore[method-assign]
    assert "tests.gate.numpy_device.NumpyDevice.synchronize of one object" in judge().detail
