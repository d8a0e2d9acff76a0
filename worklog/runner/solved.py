"""Solutions of problems timed case by case, each beside the problem's baseline: in a child process, into a run."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from worklog.errors import BadSetting, LaunchFailed, OutOfMemory, meant, memory_is_full
from worklog.gate import Memory, Stage, Verdict, timed
from worklog.gate.cases import CaseBuffers, check_case, check_repeated, judged, require_sound
from worklog.kernel import words_of
from worklog.kernel.solution import Ready, Solution
from worklog.problem import Problem, each, raw, rebuilt
from worklog.runner import timing
from worklog.runner.arguments import on_gpu
from worklog.runner.measure import carry_out
from worklog.runner.problems import find_problem
from worklog.runner.session import Session, idle_after
from worklog.runner.tasks import Progress, Task, silent
from worklog.runner.tasks import judged as under
from worklog.runs import Measurement, Run
from worklog.settings import Harness

CASE = "case"  # the axis of a problem
LAST = "gate: of the timed launches, the last one's output was checked"
TIMED = "timed output"


def measure(
    solutions: Sequence[Solution],
    problem: str,
    dtype: str = "",
    *,
    cases: Sequence[str] = (),
    harness: Harness | None = None,
    progress: Progress = silent,
    out: Path | None = None,
    **how: Any,
) -> Run:
    """Check, then time, each solution at each test case of a problem, beside the problem's baseline. problem, dtype: as
    find_problem takes them. cases: names or patterns such as "4096*" (default: all). how: for carry_out.

    Memory that CuPy and PyTorch hold is given back before each case. A harness with warmup and stopping "tensara"
    measures as Tensara does. A solution that fails is in the run with its verdict and without a time. Raises what
    worklog.measure raises, and BadSetting.
    """
    if harness is not None and harness.l2 == "rotate":
        raise BadSetting("l2 = rotate: a solution's arrays aren't copied: take l2 = flush or l2 = warm")
    posed = find_problem(problem, dtype)
    names = [words["name"] for words in posed.tests[1]]
    for pattern in cases:
        if not any(fnmatch(name, pattern) for name in names):
            raise BadSetting(f"{posed.name} has no case {pattern!r}{meant(pattern, names)}: it has {', '.join(names)}")
    chosen = [name for name in names if not cases or any(fnmatch(name, pattern) for pattern in cases)]
    kernels = [replace(one, problem=problem, dtype=posed.dtype) for one in solutions]
    tasks = [Task(one.name, None, axes=((CASE, name),), against=("baseline",)) for one in kernels for name in chosen]
    return carry_out(tasks, harness or Harness(), user_kernels=kernels, progress=progress, out=out, **how)


@lru_cache(maxsize=8)
def _posed(problem: str, dtype: str) -> Problem:
    return find_problem(problem, dtype)


def measurements(session: Session, task: Task, used: Harness, notes: Sequence[str]) -> list[Measurement]:
    """Check and time a solution at one case on this session's GPU, beside the problem's baseline."""
    solution = session.kernel(task.kernel)
    assert isinstance(solution, Solution)
    if missing := solution.missing_on(session.gpu.arch):
        return task.without_time("skipped", missing)
    posed, name = _posed(solution.problem, solution.dtype), dict(task.axes)[CASE]
    session.device.empty_cache()
    try:
        case = posed.prepared(next(words for words in posed.tests[1] if words["name"] == name))
        require_sound(posed, case)
        buffers = CaseBuffers(Memory(session.device, np.random.default_rng(secrets.randbits(63))), posed, case)
        return _timed(session, task, used, notes, posed, buffers, solution.ready(session.device, posed))
    except Exception as error:
        full = error if isinstance(error, OutOfMemory) else memory_is_full(error)
        if full is None:
            raise
        return task.without_time("skipped", str(full))


def _timed(
    session: Session,
    task: Task,
    used: Harness,
    notes: Sequence[str],
    posed: Problem,
    buffers: CaseBuffers,
    ready: Ready,
) -> list[Measurement]:
    """Of a solution that is loaded, on a case's buffers."""
    case, stages = buffers.case, list[Stage]()

    def launch() -> None:
        ready.enqueue(buffers.arguments, case.written)

    def last() -> Stage:
        ready.collect(buffers.arguments, case.written)
        return judged(TIMED, posed, buffers, buffers.outputs())

    for stage in (check_case, check_repeated) if used.gate else ():
        stages.append(timed(partial(stage, ready, posed, buffers)))
        if not stages[-1].passed:
            return task.refused(Verdict(tuple(stages), None))
    baseline, why = _baseline(session, posed, buffers)
    buffers.poison()
    amounts = posed.work(case)
    work = {what: amounts[name] for what, name in timing.WORK.items() if amounts[name]}
    call = timing.Call(launch, against=baseline, sync=ready.waits, **work)
    task = replace(task, against=() if baseline is None else task.against)
    found = timing.time_task(session, task, call, used, [*notes, *why], LAST if used.gate else timing.UNCHECKED)
    if not used.gate:
        return found
    stages.append(timed(last))
    us = found[0].us
    if stages[-1].passed and us is not None:  # it may launch on streams of its own
        stages.append(timed(lambda: idle_after(session, launch, used.queues and not ready.waits, us)))
    verdict = Verdict(tuple(stages), posed.dtype if stages[-1].passed else None)
    return [under(one, verdict) for one in found]


def _baseline(session: Session, posed: Problem, buffers: CaseBuffers) -> tuple[Callable[[], Any] | None, list[str]]:
    """The problem's baseline on the case's arrays, called once and verified; None, and why, where it doesn't run on the
    GPU.
    """
    case, loan = buffers.case, cast(Any, session.device.loan("cupy"))
    inputs = []
    for passed, value in zip(buffers.arguments, case.inputs, strict=False):
        of_numpy = passed.buffer is not None and isinstance(value, np.ndarray)
        inputs.append(loan.array(passed.buffer, *passed.form) if of_numpy else value)

    def baseline() -> Any:
        return posed.baseline(*inputs)

    try:
        with loan.current():
            results = each(baseline())
        session.device.synchronize()
    except LaunchFailed:
        raise
    except Exception as error:
        return None, [f"no baseline: it raised {words_of(error)}"]
    if not all(map(on_gpu, results)):
        return None, ["no baseline: it doesn't return arrays of the GPU"]
    found = [
        rebuilt(like, raw(one)) for like, one in zip(case.outputs, results, strict=False) if one.dtype == like.dtype
    ]
    right = len(found) == len(case.outputs) and posed.verified(case, tuple(found))[0]
    return baseline, [] if right else ["baseline: verify_result fails its result"]
