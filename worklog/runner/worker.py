"""The jobs of a run in a child process: each job is checked, and timed if it passes.

A product of matrices is checked and timed in buffers of this package (worklog.runner.launches), and a
solution on the arrays of a case. A benchmark is called as it is (worklog.runner.timing).
"""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from worklog.errors import (
    BadSetting,
    CompileFailed,
    LaunchFailed,
    OutOfMemory,
    WorklogError,
    memory_is_full,
)
from worklog.gate import EVERY_LAUNCH, SEED_BITS, Checker, check_plausible, fp32_roof, timed
from worklog.gpu.clocks import Clocks
from worklog.harness import ONE_PLACEMENT, Harness, Reading, cross_check, input_sets, time_in_turn
from worklog.kernel import Runnable, Solution, Solver, words_of
from worklog.problem import FLOAT_BYTES, SGEMM, Shape, each, raw, rebuilt
from worklog.runner.child import Say
from worklog.runner.launches import Loop, Trespass, elements
from worklog.runner.measure import CASE, Job, Skipped
from worklog.runner.session import Ready, Session, alone_on_the_gpu
from worklog.runner.timing import UNCHECKED, WORK, Call, on_gpu, ready_call
from worklog.runs import CUBLAS, Measurement, Run, Stage, Work, failed, line

# CuPy, Triton and Numba raise these if a combination of values doesn't compile, or needs too much of an SM.
NOT_COMPILED = (
    "CompileException",
    "NVRTCError",
    "CompilationError",
    "OutOfResources",
    "PTXASError",
    "TypingError",
)
GATES: dict[bool | str, str] = {
    False: "gate: off, the result may be wrong",
    "article": "gate: the article's rule, which lets TF32, FP16, BF16 and missing terms pass",
}
LAST_ONLY = (
    "gate: only the last timed launch was checked, on inputs that the host function has seen before"
)
LAST = "gate: of the timed launches, the last one's output was checked"


def answer(
    order: Mapping[str, Any], say: Say, make_session: Callable[..., Session] = Session
) -> None:
    """Check and time each job of the order.

    Answers "ready" with the head of a run. For each job, answers "measured" with the line of the
    measurement and the kernel's description. If the order has no jobs, answers "waiting", and receives a
    job with its user kernels.

    make_session: gets the user kernels by name
    """
    jobs = order.get("jobs")
    harness = order["harness"]
    with alone_on_the_gpu(), Clocks() as gpu_clocks:
        clocks, notes = gpu_clocks.hold(harness.clocks)
        session = make_session(order["user_kernels"])
        harness = harness.but(clocks=clocks)
        for shape in {job.shape for job in jobs or () if job.shape}:
            session.require_memory(shape)
        say("ready", head=Run(**session.head(harness, notes)).head_lines())
        session.compile_ahead(jobs or ())
        if jobs is None:
            jobs = _received(session, order, say)
        for count, job in enumerate(jobs):
            say("progress", done=count, doing=str(job))
            requested = dict(job.changed).get("clocks", harness.clocks)
            clocks, notes = gpu_clocks.hold(requested)
            # The measurement states the setting that was in effect.
            changed = {**dict(job.changed), "clocks": clocks}
            if clocks == harness.clocks:
                del changed["clocks"]
            job = replace(job, changed=tuple(changed.items()))
            m = measure_job(session, job, harness, [] if requested == harness.clocks else notes)
            # Raises LaunchFailed if the GPU's context is lost: nothing can be measured after it.
            session.require_idle()
            say("measured", line=line("measurement", m), description=session.describe(job.kernel))
    say("done")


def _received(session: Session, order: Mapping[str, Any], say: Say) -> Iterator[Job]:
    """Yield jobs as the parent sends them.

    A kernel's name must always be of the same kernel. Raises OutOfMemory.
    """
    while True:
        say("waiting")
        job, kernels = order["receive"]()
        session.user_kernels.update(kernels)
        if job.shape is not None:
            session.require_memory(job.shape)
        yield job


def measure_job(
    session: Session, job: Job, harness: Harness, notes: Sequence[str] = ()
) -> Measurement:
    """Check and time a job.

    A failed check, a failed launch and a skip are also results.

    notes: on the clocks, for the result

    Raises LaunchFailed if the GPU's context is lost.
    """
    job_harness = harness.but(**dict(job.changed))
    stated = [*notes]
    try:
        if job.kernel != CUBLAS:
            kernel = session.kernel(job.kernel)
            if reason := kernel.missing_on(session.gpu.arch):
                raise Skipped(reason)
        if job.shape is not None:
            ready = _product(session, job, job_harness, stated)
        elif isinstance(kernel, Solution):
            ready = _solution(session, job, job_harness, stated)
        else:
            job, ready = _benchmark(session, job, job_harness, stated)
        if ready.verdict and not ready.verdict.accepted:
            return job.failed(ready.verdict)
        with ready.around:
            reading = time_in_turn(session.timeline, ready.launches, ready.harness, **ready.how)
            stages = ready.after(reading)
        return session.measurement(job, ready, reading, stages)
    except Trespass as trespass:
        assert ready.verdict is not None
        return job.failed(ready.verdict.with_stage(failed(EVERY_LAUNCH, str(trespass))))
    except LaunchFailed as error:
        session.device.synchronize()  # raises again if the context is lost
        return job.without_time("failed", f"launch: {error}")
    except Skipped as skipped:
        return job.without_time("skipped", str(skipped).partition("\n")[0])
    except (Exception, SystemExit) as error:  # a benchmark or a Python function may raise anything
        if job.shape is not None:
            raise
        return _without_time(job, error)


def _without_time(job: Job, error: BaseException) -> Measurement:
    """Return the measurement of a benchmark or a solution that raised an error."""
    missing = error if isinstance(error, (CompileFailed, OutOfMemory)) else memory_is_full(error)
    if missing is not None:
        return job.without_time("skipped", str(missing).partition("\n")[0])
    if type(error).__name__ in NOT_COMPILED:
        return job.without_time("skipped", f"it does not compile: {words_of(error)}")
    reason = str(error) if isinstance(error, WorklogError) else f"raised {words_of(error)}"
    return job.without_time("failed", reason)


def work_of(shape: Shape) -> Work:
    """Return the work of a matrix product.

    As in NVBench, elements are those of the inputs A and B.
    """
    case = SGEMM.of(shape)
    read, written = SGEMM.get_bytes(case)
    return Work(SGEMM.get_flops(case), read // FLOAT_BYTES, read, written)


def _product(session: Session, job: Job, harness: Harness, stated: list[str]) -> Ready:
    """Return a matrix product that is ready to be timed.

    A baseline that fails the gate isn't timed, which the result states.
    """
    loaded = session.load(job.kernel)
    shape = job.problem
    _require_checkable(loaded, shape, harness)
    biased = harness.biased().items()
    stated += [f"{name}: {value}" for name, value in biased if name != "gate"]
    stated += loaded.remarks
    if loaded.is_host and not _checks_each(harness):
        stated.append(LAST_ONLY)
    if harness.gate is not True:
        stated.append(GATES[harness.gate])
    if unread := session.timeline.watch.reason:
        stated.append(f"clocks: throttle reasons unknown ({unread})")
    baselines = _accepted_baselines(session, job, harness, stated)
    verdict = None
    if harness.gate:
        verdict = session.verdict(job.kernel, shape, harness.gate)
        if not verdict.accepted:
            return Ready(harness, work_of(shape), stated, verdict)
    loop = loop_of(session, job, harness, baselines)
    if loop.pool is None and harness.placement == "varied":
        stated.append(ONE_PLACEMENT.format("the GPU's memory has no room for others"))

    def after(reading: Reading) -> list[Stage]:
        us = reading.us(harness.statistic)
        stages = list[Stage]()
        offset_us = session.calibration.offset_us
        launch_us = session.calibration.launch_us
        if loop.checked:
            stages.append(timed(loop.stage))
        if loop.checked and loaded.is_host:  # which may launch on other streams
            launch = loop.launches[0].launch
            stages.append(timed(lambda: session.idle_after(launch, harness.queues, us)))
            if not harness.biased():
                stated.extend(cross_check(session.timeline, launch, offset_us, launch_us)[1])
        # Kernels of another class may run on units with another peak.
        if harness.gate and not harness.biased() and loaded.claimed == "fp32":
            roof = fp32_roof(loaded.operands(shape), session.peaks)
            stages.append(check_plausible(shape, us - offset_us, *roof))
        return stages

    options = {
        "size": (shape.flops / 2) ** (1 / 3),
        "move": loop.move if loop.pool else None,
        "offset_us": session.overhead_us(harness),
    }
    return Ready(
        harness, work_of(shape), stated, verdict, loop.launches, after, closing(loop), options
    )


def _accepted_baselines(
    session: Session, job: Job, harness: Harness, stated: list[str]
) -> list[str]:
    """Return the baselines that pass the gate, and state why the others don't."""
    if not harness.gate:
        return [*job.baselines]
    names = []
    for name in job.baselines:
        verdict = session.verdict(name, job.problem, harness.gate)
        if verdict.accepted:
            names.append(name)
        else:
            stated.append(f"the baseline {name} failed at {verdict.reason}")
    return names


def _require_checkable(loaded: Runnable, shape: Shape, harness: Harness) -> None:
    """Raise Skipped if the kernel can stop computing in a launch that isn't checked.

    Code that keeps state between launches can do so.
    """
    settings = []
    if harness.timer == "graph":
        settings.append("timer = graph")
    if harness.l2 == "rotate":
        settings.append("l2 = rotate")
    if not settings or harness.gate is not True:
        return
    state = "a host function" if loaded.is_host else ", ".join(loaded.variables(shape))
    if state:
        raise Skipped(
            f"with {' and '.join(settings)} only the last launch can be checked, and {state} may make the others do "
            "less: take l2 = flush and timer = events"
        )


def loop_of(session: Session, job: Job, harness: Harness, names: Sequence[str]) -> Loop:
    """Return a loop of the job's kernel and its baselines, in the checker's buffers.

    If L2 is flushed before each launch, each launch gets new inputs and is checked. Otherwise new inputs
    would warm the L2 that the launch should find cold, and only the output of the last launch is checked.

    names: of the baselines
    """
    shape = job.problem
    kernel = session.load(job.kernel)
    library = session.baselines[harness.baseline]
    if harness.warmup == "none" and job.kernel != CUBLAS:  # so that the next launch is its first
        kernel = session.kernel(job.kernel).load(session.device, fresh=True)
    kernels = [kernel, *(library if name == CUBLAS else session.load(name) for name in names)]
    sets = 1
    if harness.l2 == "rotate":
        sets = input_sets(shape.compulsory_bytes, session.timeline.l2_bytes)
    checker = session.checker(shape)
    pool = None
    if harness.placement == "varied":
        pool = session.pool(elements(shape, sets, kernels))
    return Loop(
        checker,
        kernels,
        (job.kernel, *names),
        in_step=harness.order == "interleaved" and harness.timer != "graph",
        sets=sets,
        checked=harness.gate is True and harness.inputs == "random",
        probed=_checks_each(harness),
        inputs=harness.inputs,
        warm=harness.warmup != "none",
        pool=pool,
    )


def _checks_each(harness: Harness) -> bool:
    """Return whether each launch gets new inputs and is checked.

    This is only possible if L2 is flushed after the inputs were written.
    """
    return (
        harness.gate is True
        and harness.inputs == "random"
        and harness.l2 == "flush"
        and harness.timer != "graph"
    )


def _solution(session: Session, job: Job, harness: Harness, stated: list[str]) -> Ready:
    """Return a solution that is ready to be timed at a case, with the problem's baseline."""
    session.device.empty_cache()
    loaded = cast(Solver, session.load(job.kernel))
    name = dict(job.axes)[CASE]
    problem = loaded.problem
    case = problem.prepared(next(spec for spec in problem.tests[1] if spec["name"] == name))
    checker = Checker(session.device, problem, case, secrets.randbits(SEED_BITS))
    verdict = checker.check(loaded) if harness.gate else None
    if verdict is not None and not verdict.accepted:
        return Ready(harness, Work(), stated, verdict)
    baseline, remarks = _baseline(session, checker)
    checker.buffers.poison()
    launch = partial(loaded.enqueue, *checker.arguments)
    work = zip(WORK, problem.work(case).values(), strict=True)
    amounts = {quantity: amount for quantity, amount in work if amount}
    call = Call(launch, against=baseline, **amounts)
    stated += [*remarks, UNCHECKED if verdict is None else LAST]

    def judge(us: float) -> list[Stage]:
        stages = [timed(partial(checker.check_timed_output, loaded))]
        if stages[0].passed:  # the solution may launch on other streams
            stages.append(timed(lambda: session.idle_after(launch, harness.queues, us)))
        return stages

    return ready_call(session, job, call, harness, stated, verdict, judge)


def _baseline(session: Session, checker: Checker) -> tuple[Callable[[], Any] | None, list[str]]:
    """Return the problem's baseline on the case's arrays, and remarks on it.

    The baseline is called once and verified. It is None if it doesn't run, and the remarks state why.
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
        return None, [f"no baseline: it raised {words_of(error)}"]
    if not all(map(on_gpu, results)):
        return None, ["no baseline: it doesn't return arrays of the GPU"]
    pairs = zip(case.outputs, results, strict=False)
    outputs = tuple(
        rebuilt(expected, raw(result))
        for expected, result in pairs
        if result.dtype == expected.dtype
    )
    is_right = len(outputs) == len(case.outputs) and problem.verified(case, outputs)[0]
    return baseline, [] if is_right else ["baseline: verify_result fails its result"]


def _benchmark(
    session: Session, job: Job, harness: Harness, stated: list[str]
) -> tuple[Job, Ready]:
    """Return a declared benchmark that is ready to be timed, and its job.

    The job names the baselines that the benchmark itself has.
    """
    session.device.empty_cache()
    call, *baselines = (
        called(session, name, dict(job.axes)) for name in (job.kernel, *job.baselines)
    )
    if baselines and call.against:
        names = ", ".join(job.baselines)
        raise BadSetting(
            f"{job.kernel} has a baseline of its own, in state.run: omit --against {names}"
        )
    if baselines:
        call = replace(call, against=[baseline.alone for baseline in baselines])
    else:
        job = replace(job, against=tuple(replace(call, name=job.kernel).names[1:]))
    return job, ready_call(session, job, call, harness, [*stated, UNCHECKED])


def called(session: Session, name: str, axes: Mapping[str, Any]) -> Call:
    """Return the call that a benchmark times: its launcher, its state.run, or itself.

    Raises Skipped if the benchmark skips the values of the axes.
    """
    # Here: a product needs no benchmarks.
    from worklog.runner.declare import benchmarks_of

    host = session.kernel(name).host
    assert host is not None
    benchmark = benchmarks_of(host)[name]
    if reason := benchmark.space.skip(axes):
        raise Skipped(reason)
    loan = session.device.loan("cupy")
    new_state = partial(benchmark.state, benchmark.values(axes), loan.handle, session.gpu)
    first = new_state()
    with loan.current():
        returned = benchmark(first)
    call = first.call or Call(returned if callable(returned) else lambda: benchmark(new_state()))
    kwargs = dict(call.kwargs or {})
    try:
        stream = inspect.signature(call.fn).parameters.get("stream")
    except (TypeError, ValueError):  # compiled code may have no signature
        stream = None
    if stream is not None and stream.default is stream.empty:
        kwargs.setdefault("stream", loan.handle)
    work: dict[str, Any] = dict(first.work)
    return replace(call, kwargs=kwargs, **work)
