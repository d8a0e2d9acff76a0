"""Chooses the algorithm of a baseline that has several: cuBLASLt's.

The heuristic's algorithms are each checked, and timed in one loop with cuBLAS. The fastest becomes
the baseline, and a loop with the kernel times it again: the best of sixteen readings is a reading
whose noise was low, so the samples that choose an algorithm can't also state its time. What is left
is the opposite bias: noise may choose an algorithm that is slower than the best, by about the
interval of that first loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from worklog.errors import LaunchFailed
from worklog.harness import Harness, time_in_turn
from worklog.problem import Shape
from worklog.runner.launches import OutOfBoundsWrite, checks_each, loop_on
from worklog.runner.session import Session
from worklog.runs import CUBLAS, Choice
from worklog.runs.statistics import summarize

NONE_OFFERED = "the heuristic offers no algorithm at this shape"
OUTPUTS = 2  # that all algorithms share: each launch's output is read before the next launch


def choose(
    session: Session, name: str, shape: Shape, harness: Harness
) -> tuple[Choice | None, list[str]]:
    """Choose the algorithm that a baseline runs at a shape from now on.

    This is once per session. The first harness decides: an ablation compares settings at one
    algorithm. Returns the choice, or None if no algorithm can be used, and why algorithms were left
    out.

    name: of the baseline; the session loads it

    Raises LaunchFailed if the GPU's context is lost.
    """
    key = name, shape, session.types
    if key not in session.chosen_algorithms:
        try:
            chosen = _choose(session, session.load(name), shape, harness)
        except (LaunchFailed, OutOfBoundsWrite) as error:
            session.device.synchronize()  # raises again if the context is lost
            chosen = None, [str(error)]
        session.chosen_algorithms[key] = chosen
    return session.chosen_algorithms[key]


def _choose(
    session: Session, library: Any, shape: Shape, harness: Harness
) -> tuple[Choice | None, list[str]]:
    """Choose an algorithm of a library at a shape."""
    candidates = library.candidates(shape)
    if not candidates:
        return None, [NONE_OFFERED]
    reasons = _failed_checks(session, candidates, shape) if harness.gate else {}
    checked = [candidate for candidate in candidates if candidate.name not in reasons]
    ratios = dict[str, float]()
    if checked:
        ratios, reasons_in_loop = _time(session, checked, shape, harness)
        reasons |= reasons_in_loop
    remarks = [f"{name} was left out: {reason}" for name, reason in reasons.items()]
    if not ratios:
        return None, remarks
    by_name = {candidate.name: candidate for candidate in candidates}
    fastest = by_name[min(ratios, key=lambda name: ratios[name])]
    library.choose(fastest)
    shares = tuple(1 / ratios[name] if name in ratios else None for name in by_name)
    return Choice(fastest.facts, shares), remarks


def _failed_checks(session: Session, candidates: Sequence[Any], shape: Shape) -> dict[str, str]:
    """Launch each algorithm once on new inputs, and return why some can't be used, by name.

    The gate checks more, at many shapes. An algorithm exists at this shape alone, so only the
    chosen one goes through the gate, as a part of its library.
    """
    checker = session.checker(shape)
    reasons = {}
    for candidate in candidates:
        try:
            stage = checker.check_launch(candidate)
        except LaunchFailed as error:  # such as CUBLAS_STATUS_NOT_SUPPORTED
            session.device.synchronize()  # raises if the context is lost
            reasons[candidate.name] = str(error)
            continue
        if not stage.passed:
            reasons[candidate.name] = stage.detail
    checker.buffers.restore()
    return reasons


def _time(
    session: Session, candidates: Sequence[Any], shape: Shape, harness: Harness
) -> tuple[dict[str, float], dict[str, str]]:
    """Time algorithms in turn with cuBLAS.

    Returns their times over cuBLAS's by name, and why some can't be used: a timed launch was wrong.
    """
    harness = harness.but(hot_ms=0.0, energy_s=0.0, least_share=0.0)
    names = [candidate.name for candidate in candidates]
    loop = loop_on(
        session,
        shape,
        harness,
        kernels=[session.baseline(harness.baseline), *candidates],
        names=(CUBLAS, *names),
        outputs=OUTPUTS,
    )
    reasons = {}
    with closing(loop):
        options = loop.options(session.overhead_us(harness))
        reading = time_in_turn(session.timeline, loop.launches, harness, **options)
        if checks_each(harness):
            for name, launch in zip(names, loop.bare[1:], strict=True):
                stage = loop.checker.check_timed_launches(launch.probe)
                if not stage.passed:
                    reasons[name] = stage.detail
            loop.require_intact()
    summary = summarize(reading.samples, harness.as_dict(), session.calibration.offset_us)
    ratios = {name: summary.ratios[name].value for name in names if name not in reasons}
    return ratios, reasons
