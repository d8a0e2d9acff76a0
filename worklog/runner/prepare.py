"""Prepares a job of a run for its timed loop. worklog.time prepares its call itself."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from worklog.benchmarks import WORK, Call, LoadedBenchmark
from worklog.errors import BadSetting, LaunchFailed, Skipped, message_and_place
from worklog.gate import SEED_BITS, Checker, timed
from worklog.harness import Harness
from worklog.kernel.solution import Solver
from worklog.problem import CASE, Point
from worklog.problem.arrays import each, raw, rebuilt
from worklog.runner.calls import UNCHECKED, prepare_call
from worklog.runner.job import Job
from worklog.runner.prepared import Prepared
from worklog.runner.products import prepare_product
from worklog.runner.rotation import on_gpu
from worklog.runner.session import Session
from worklog.runs import CUBLAS, Stage, Work

LAST = "gate: of the timed launches, the last one's output was checked"


def prepare(session: Session, job: Job, harness: Harness, notes: Sequence[str] = ()) -> Prepared:
    """Return a job that is ready to be timed, or that the gate has failed.

    harness: of the run; the job's changes are applied
    notes: on the clocks, for the result

    Raises Skipped for a job that isn't measured, and what the subject's code raises.
    """
    job_harness = harness.but(**dict(job.changed))
    if job.kernel != CUBLAS:
        reason = session.kernel(job.kernel).missing_on(session.gpu.arch)
        if reason:
            raise Skipped(reason)
    if job.point.is_product:
        return prepare_product(session, job, job_harness, notes)
    session.device.empty_cache()
    if job.point.problem:
        return _prepare_case(session, job, job_harness, notes)
    return _prepare_benchmark(session, job, job_harness, notes)


def _prepare_case(session: Session, job: Job, harness: Harness, notes: Sequence[str]) -> Prepared:
    """Prepare a solution at a case, with the problem's baseline."""
    loaded = cast(Solver, session.load(job.kernel))
    problem = loaded.problem
    name = job.point.value(CASE)
    case = problem.prepared(next(spec for spec in problem.tests[1] if spec["name"] == name))
    checker = Checker(session.device, problem, case, secrets.randbits(SEED_BITS))
    verdict = checker.check(loaded) if harness.gate else None
    if verdict is not None and not verdict.accepted:
        return Prepared(job, harness, Work(), [*notes], verdict)
    baseline, remarks = _baseline(session, checker)
    checker.buffers.poison()
    launch = partial(loaded.enqueue, *checker.arguments)
    work = zip(WORK, problem.work(case).values(), strict=True)
    amounts = {quantity: amount for quantity, amount in work if amount}
    call = Call(launch, against=baseline, **amounts)
    gate_remark = UNCHECKED if verdict is None else LAST

    def judge(us: float) -> list[Stage]:
        stages = [timed(partial(checker.check_timed_output, loaded))]
        if stages[0].passed:  # the solution may launch on other streams
            stages.append(timed(lambda: session.idle_after(launch, harness.queues, us)))
        return stages

    return prepare_call(
        session,
        job,
        call,
        harness,
        notes=[*notes, *remarks, gate_remark],
        verdict=verdict,
        judge=judge,
    )


def _baseline(session: Session, checker: Checker) -> tuple[Callable[[], Any] | None, list[str]]:
    """Return the problem's baseline on the case's arrays, and remarks on it.

    The baseline is called once and verified. It is None if it doesn't run, and the remarks state
    why.
    """
    problem = checker.problem
    case = checker.case
    loan = cast(Any, session.device.loan("cupy"))
    inputs = []
    for argument, value in zip(checker.arguments, case.inputs, strict=False):
        is_array = argument.buffer is not None and isinstance(value, np.ndarray)
        inputs.append(loan.array(argument.buffer, *argument.form) if is_array else value)
    baseline = partial(problem.baseline, *inputs)
    try:
        with loan.current():
            results = each(baseline())
        session.device.synchronize()
    except LaunchFailed:
        raise
    except Exception as error:
        return None, [f"no baseline: it raised {message_and_place(error)}"]
    if not all(map(on_gpu, results)):
        return None, ["no baseline: it doesn't return arrays of the GPU"]
    outputs = []
    for expected, result in zip(case.outputs, results, strict=False):
        if result.dtype == expected.dtype:
            outputs.append(rebuilt(expected, raw(result)))
    is_right = len(outputs) == len(case.outputs) and problem.verified(case, tuple(outputs))[0]
    return baseline, [] if is_right else ["baseline: verify_result fails its result"]


def _prepare_benchmark(
    session: Session, job: Job, harness: Harness, notes: Sequence[str]
) -> Prepared:
    """Prepare a declared benchmark.

    Its baselines are the job's, or those that the benchmark itself has in state.run.
    """
    call = _benchmark_call(session, job.kernel, job.point)
    if job.against and call.against:
        names = ", ".join(job.against)
        raise BadSetting(
            f"{job.kernel} has a baseline of its own, in state.run: omit --against {names}"
        )
    if job.against:
        baselines = [_benchmark_call(session, name, job.point) for name in job.against]
        call = replace(call, against=[baseline.alone for baseline in baselines])
    else:
        _, *names_of_own = replace(call, name=job.kernel).names
        job = replace(job, against=tuple(names_of_own))
    return prepare_call(session, job, call, harness, notes=[*notes, UNCHECKED])


def _benchmark_call(session: Session, name: str, point: Point) -> Call:
    """Return the call that a benchmark times. Raises Skipped."""
    loaded = cast(LoadedBenchmark, session.load(name))
    return loaded.call(point, session.gpu)
