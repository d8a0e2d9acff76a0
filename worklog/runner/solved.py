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

from worklog.errors import BadSetting, LaunchFailed, meant
from worklog.gate import SEED_BITS, Checker, timed
from worklog.harness import Reading
from worklog.kernel import words_of
from worklog.kernel.solution import Solution
from worklog.problem import Problem, each, raw, rebuilt
from worklog.runner import timing
from worklog.runner.arguments import on_gpu
from worklog.runner.job import Job, Progress, Skipped, silent
from worklog.runner.measure import carry_out
from worklog.runner.problems import find_problem
from worklog.runner.session import Prepared, Session, idle_after
from worklog.runs import Measurement, Run, Stage
from worklog.settings import Harness

CASE = "case"  # the axis of a problem
LAST = "gate: of the timed launches, the last one's output was checked"


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
    kernels = [replace(solution, problem=problem, dtype=posed.dtype) for solution in solutions]
    jobs = [Job(kernel.name, None, (), ((CASE, name),), ("baseline",)) for kernel in kernels for name in chosen]
    return carry_out(jobs, harness or Harness(), user_kernels=kernels, progress=progress, out=out, **how)


@lru_cache(maxsize=8)
def _posed(problem: str, dtype: str) -> Problem:
    return find_problem(problem, dtype)


def prepare(session: Session, job: Job, used: Harness) -> Prepared | Measurement:
    """Check a solution at one case on this session's GPU, and make it ready beside the problem's baseline."""
    solution = session.kernel(job.kernel)
    assert isinstance(solution, Solution)
    if missing := solution.missing_on(session.gpu.arch):
        raise Skipped(missing)
    posed, name = _posed(solution.problem, solution.dtype), dict(job.axes)[CASE]
    session.device.empty_cache()
    case = posed.prepared(next(words for words in posed.tests[1] if words["name"] == name))
    checker = Checker(session.device, posed, case, secrets.randbits(SEED_BITS))
    loaded = solution.ready(session.device, posed)
    verdict = checker.check(loaded) if used.gate else None
    if verdict is not None and not verdict.accepted:
        return job.failed(verdict)
    baseline, why = _baseline(session, checker)
    checker.buffers.poison()

    def launch() -> None:
        loaded.enqueue(checker.arguments, case.written)

    work = posed.work(case)
    amounts = {"flops": work["flops"], "elements": work["elements"]}
    amounts |= {"reads": work["bytes_read"], "writes": work["bytes_written"]}
    call = timing.Call(launch, against=baseline, **{of: n for of, n in amounts.items() if n})
    names = [job.kernel, *(() if baseline is None else job.against)]
    prepared = timing.prepare_call(session, call, used, names, LAST if used.gate else timing.UNCHECKED)
    prepared.stated[:0] = why
    if verdict is None:
        return prepared
    after_call = prepared.after

    def after(reading: Reading, us: float) -> list[Stage]:
        after_call(reading, us)
        stages = [timed(partial(checker.check_timed_output, loaded))]
        if stages[0].passed:  # it may launch on streams of its own
            stages.append(timed(lambda: idle_after(session, launch, used.queues, us)))
        return stages

    prepared.after, prepared.verdict = after, verdict
    return prepared


def _baseline(session: Session, checker: Checker) -> tuple[Callable[[], Any] | None, list[str]]:
    """The problem's baseline on the case's arrays, called once and verified; None, and why, where it doesn't run on the
    GPU.
    """
    posed, case, loan = checker.problem, checker.case, cast(Any, session.device.loan("cupy"))
    inputs = []
    for passed, value in zip(checker.arguments, case.inputs, strict=False):
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
    pairs = zip(case.outputs, results, strict=False)
    outputs = tuple(rebuilt(like, raw(result)) for like, result in pairs if result.dtype == like.dtype)
    right = len(outputs) == len(case.outputs) and posed.verified(case, outputs)[0]
    return baseline, [] if right else ["baseline: verify_result fails its result"]
