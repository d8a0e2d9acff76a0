"""What a child process does with the jobs of a run: each is checked, and timed if it passes.

A product of matrices is checked and timed in buffers of ours (worklog.runner.launches), a solution on the arrays of a
case, and a benchmark is called as it is (worklog.runner.timing).
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
from worklog.kernel import Solution, Solver, words_of
from worklog.problem import FLOAT_BYTES, SGEMM, Shape, each, raw, rebuilt
from worklog.runner.child import Say
from worklog.runner.launches import Loop, Trespass, elements
from worklog.runner.measure import CASE, Job, Skipped
from worklog.runner.session import Ready, Session, alone_on_the_gpu
from worklog.runner.timing import UNCHECKED, WORK, Call, on_gpu, ready_call
from worklog.runs import CUBLAS, Measurement, Run, Stage, Work, failed, line

# What CuPy, Triton and Numba raise where one combination of values can't be compiled, or needs too much of an SM.
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
    """Gate and time each of the order's jobs. Answers: "ready" with the head of a run; then for each job "measured"
    with the line of its measurement and its kernel's description. Without jobs in the order it says "waiting", and gets
    one with its user kernels. make_session: gets the user kernels by name.
    """
    jobs = order.get("jobs")
    harness = order["harness"]
    with alone_on_the_gpu(), Clocks() as holding:
        clocks, notes = holding.hold(harness.clocks)
        session = make_session(order["user_kernels"])
        harness = harness.but(clocks=clocks)
        for shape in {job.shape for job in jobs or () if job.shape}:
            session.require_memory(shape)
        say("ready", head=Run(**session.head(harness, notes)).head_lines())
        session.compile_ahead(jobs or ())
        for done, job in enumerate(_received(session, order, say) if jobs is None else jobs):
            say("progress", done=done, doing=str(job))
            asked = dict(job.changed).get("clocks", harness.clocks)
            clocks, notes = holding.hold(asked)
            changed = {
                **dict(job.changed),
                "clocks": clocks,
            }  # the measurement states what was held
            if clocks == harness.clocks:
                del changed["clocks"]
            job = replace(job, changed=tuple(changed.items()))
            m = measure_job(session, job, harness, [] if asked == harness.clocks else notes)
            session.require_idle()  # LaunchFailed: the GPU's context is lost, and nothing can be measured after it
            say("measured", line=line("measurement", m), description=session.describe(job.kernel))
    say("done")


def _received(session: Session, order: Mapping[str, Any], say: Say) -> Iterator[Job]:
    """Jobs as the parent sends them. Their kernels' names must be of one kernel each. Raises OutOfMemory."""
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
    """Gate and time one job. A failed check, a failed launch and a skip are results too. notes: on the clocks, for the
    result. Raises LaunchFailed if the GPU's context is lost.
    """
    used = harness.but(**dict(job.changed))
    stated = [*notes]
    try:
        if job.kernel != CUBLAS:
            kernel = session.kernel(job.kernel)
            if reason := kernel.missing_on(session.gpu.arch):
                raise Skipped(reason)
        if job.shape is not None:
            ready = _product(session, job, used, stated)
        elif isinstance(kernel, Solution):
            ready = _solution(session, job, used, stated)
        else:
            job, ready = _benchmark(session, job, used, stated)
        if ready.verdict and not ready.verdict.accepted:
            return job.failed(ready.verdict)
        with ready.around:
            reading = time_in_turn(session.timeline, ready.launches, ready.harness, **ready.how)
            stages = ready.after(reading)
        return session.measurement(job, ready, reading, stages)
    except Trespass as trespass:
        assert ready.verdict is not None
        return job.failed(ready.verdict.and_then(failed(EVERY_LAUNCH, str(trespass))))
    except LaunchFailed as error:
        session.device.synchronize()  # raises again if the context is lost
        return job.without_time("failed", f"launch: {error}")
    except Skipped as skipped:
        return job.without_time("skipped", str(skipped).partition("\n")[0])
    except (Exception, SystemExit) as error:  # a benchmark or a Python function may raise anything
        if job.shape is not None:
            raise
        full = error if isinstance(error, (CompileFailed, OutOfMemory)) else memory_is_full(error)
        if full is not None:
            return job.without_time("skipped", str(full).partition("\n")[0])
        if type(error).__name__ in NOT_COMPILED:
            return job.without_time("skipped", f"it does not compile: {words_of(error)}")
        why = str(error) if isinstance(error, WorklogError) else f"raised {words_of(error)}"
        return job.without_time("failed", why)


def work_of(shape: Shape) -> Work:
    """The work of a matrix product. elements: of A and B, inputs, as NVBench counts."""
    case = SGEMM.of(shape)
    read, written = SGEMM.get_bytes(case)
    return Work(SGEMM.get_flops(case), read // FLOAT_BYTES, read, written)


def _product(session: Session, job: Job, used: Harness, stated: list[str]) -> Ready:
    """A matrix product. A baseline that fails isn't timed, which the result states."""
    loaded = session.load(job.kernel)
    shape = job.problem
    settings = [("timer", "graph"), ("l2", "rotate")]
    here = " and ".join(
        f"{name} = {value}" for name, value in settings if getattr(used, name) == value
    )
    keeps = (
        "a host function" if loaded.is_host else ", ".join(loaded.variables(shape)) if here else ""
    )
    if (
        here and keeps and used.gate is True
    ):  # code that keeps something can stop to compute at any launch
        raise Skipped(
            f"with {here} only the last launch can be checked, and {keeps} may make the others do less: take l2 = "
            "flush and timer = events"
        )
    stated += [f"{name}: {value}" for name, value in used.biased().items() if name != "gate"] + [
        *loaded.remarks
    ]
    if loaded.is_host and not _checks_each(used):
        stated.append(LAST_ONLY)
    if used.gate is not True:
        stated.append(GATES[used.gate])
    if unread := session.timeline.watch.reason:
        stated.append(f"clocks: throttle reasons unknown ({unread})")
    right = [*job.baselines]
    verdict = None
    if used.gate:
        for name in job.baselines:
            of_baseline = session.verdict(name, shape, used.gate)
            if not of_baseline.accepted:
                right.remove(name)
                stated.append(f"the baseline {name} failed at {of_baseline.reason}")
        verdict = session.verdict(job.kernel, shape, used.gate)
        if not verdict.accepted:
            return Ready(used, work_of(shape), stated, verdict)
    loop = loop_of(session, job, used, right)
    if loop.pool is None and used.placement == "varied":
        stated.append(ONE_PLACEMENT.format("the GPU's memory has no room for others"))

    def after(reading: Reading) -> list[Stage]:
        us = reading.us(used.statistic)
        stages = list[Stage]()
        offset_us = session.calibration.offset_us
        launch_us = session.calibration.launch_us
        if loop.checked:
            stages.append(timed(loop.stage))
        if loop.checked and loaded.is_host:  # which may launch on streams of its own
            launch = loop.launches[0].launch
            stages.append(timed(lambda: session.idle_after(launch, used.queues, us)))
            if not used.biased():
                stated.extend(cross_check(session.timeline, launch, offset_us, launch_us)[1])
        # Other classes may run where the peak is another.
        if used.gate and not used.biased() and loaded.claimed == "fp32":
            roof = fp32_roof(loaded.operands(shape), session.peaks)
            stages.append(check_plausible(shape, us - offset_us, *roof))
        return stages

    how = {"size": (shape.flops / 2) ** (1 / 3), "move": loop.move if loop.pool else None}
    how["offset_us"] = session.overhead_us(used)
    return Ready(used, work_of(shape), stated, verdict, loop.launches, after, closing(loop), how)


def loop_of(session: Session, job: Job, used: Harness, names: Sequence[str]) -> Loop:
    """The job's kernel and the baselines of these names, in the checker's buffers.

    If L2 is flushed before each launch, each launch gets inputs of its own and is checked. Otherwise new inputs would
    warm the L2 that the launch should find cold, and only the output of the last launch is checked.
    """
    shape = job.problem
    kernel = session.load(job.kernel)
    library = session.baselines[used.baseline]
    if used.warmup == "none" and job.kernel != CUBLAS:  # so that the next launch is its first
        kernel = session.kernel(job.kernel).load(session.device, fresh=True)
    kernels = [kernel, *(library if name == CUBLAS else session.load(name) for name in names)]
    sets = (
        input_sets(shape.compulsory_bytes, session.timeline.l2_bytes) if used.l2 == "rotate" else 1
    )
    return Loop(
        session.checker(shape),
        kernels,
        (job.kernel, *names),
        in_step=used.order == "interleaved" and used.timer != "graph",
        sets=sets,
        checked=used.gate is True and used.inputs == "random",
        probed=_checks_each(used),
        inputs=used.inputs,
        warm=used.warmup != "none",
        pool=session.pool(elements(shape, sets, kernels)) if used.placement == "varied" else None,
    )


def _checks_each(used: Harness) -> bool:
    """Whether each launch gets inputs of its own and is checked: only if L2 is flushed after they were written."""
    return (
        used.gate is True
        and used.inputs == "random"
        and used.l2 == "flush"
        and used.timer != "graph"
    )


def _solution(session: Session, job: Job, used: Harness, stated: list[str]) -> Ready:
    """A solution at one case, beside the problem's baseline."""
    session.device.empty_cache()
    loaded = cast(Solver, session.load(job.kernel))
    name = dict(job.axes)[CASE]
    posed = loaded.problem
    case = posed.prepared(next(words for words in posed.tests[1] if words["name"] == name))
    checker = Checker(session.device, posed, case, secrets.randbits(SEED_BITS))
    verdict = checker.check(loaded) if used.gate else None
    if verdict is not None and not verdict.accepted:
        return Ready(used, Work(), stated, verdict)
    baseline, why = _baseline(session, checker)
    checker.buffers.poison()
    launch = partial(loaded.enqueue, *checker.arguments)
    amounts = zip(WORK, posed.work(case).values(), strict=True)
    call = Call(launch, against=baseline, **{of: amount for of, amount in amounts if amount})
    stated += [*why, UNCHECKED if verdict is None else LAST]

    def judge(us: float) -> list[Stage]:
        stages = [timed(partial(checker.check_timed_output, loaded))]
        if stages[0].passed:  # it may launch on streams of its own
            stages.append(timed(lambda: session.idle_after(launch, used.queues, us)))
        return stages

    return ready_call(session, job, call, used, stated, verdict, judge)


def _baseline(session: Session, checker: Checker) -> tuple[Callable[[], Any] | None, list[str]]:
    """The problem's baseline on the case's arrays, called once and verified; None, and why, where it doesn't run."""
    posed = checker.problem
    case = checker.case
    loan = cast(Any, session.device.loan("cupy"))
    inputs = []
    for passed, value in zip(checker.arguments, case.inputs, strict=False):
        of_numpy = passed.buffer is not None and isinstance(value, np.ndarray)
        inputs.append(loan.array(passed.buffer, *passed.form) if of_numpy else value)
    baseline = partial(posed.baseline, *inputs)
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
        rebuilt(like, raw(result)) for like, result in pairs if result.dtype == like.dtype
    )
    right = len(outputs) == len(case.outputs) and posed.verified(case, outputs)[0]
    return baseline, [] if right else ["baseline: verify_result fails its result"]


def _benchmark(session: Session, job: Job, used: Harness, stated: list[str]) -> tuple[Job, Ready]:
    """A declared benchmark at the values of its axes; and the job with the baselines that it has itself."""
    session.device.empty_cache()
    call, *baselines = (
        called(session, name, dict(job.axes)) for name in (job.kernel, *job.baselines)
    )
    if baselines and call.against:
        named = ", ".join(job.baselines)
        raise BadSetting(
            f"{job.kernel} has a baseline of its own, in state.run: omit --against {named}"
        )
    if baselines:
        call = replace(call, against=[baseline.alone for baseline in baselines])
    else:
        job = replace(job, against=tuple(replace(call, name=job.kernel).names[1:]))
    return job, ready_call(session, job, call, used, [*stated, UNCHECKED])


def called(session: Session, name: str, axes: Mapping[str, Any]) -> Call:
    """What a benchmark gives to be timed: its launcher, its state.run, or itself. Raises Skipped."""
    from worklog.runner.declare import benchmarks_of  # here: a product needs none

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
    except (TypeError, ValueError):  # compiled code may have none
        stream = None
    if stream is not None and stream.default is stream.empty:
        kwargs.setdefault("stream", loan.handle)
    work: dict[str, Any] = dict(first.work)
    return replace(call, kwargs=kwargs, **work)
