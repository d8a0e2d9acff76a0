"""One job: make its kernel and baselines ready on a GPU, check them, and time what passes.

A product of matrices is checked and timed in buffers of ours (worklog.runner.launches), a solution on the arrays of a
case, and a benchmark is called as it is (worklog.runner.timing).
"""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from worklog.errors import BadSetting, CompileFailed, LaunchFailed, OutOfMemory, WorklogError, memory_is_full
from worklog.gate import SEED_BITS, Checker, after_timing, timed
from worklog.gpu.clock_lock import switchable_clocks
from worklog.gpu.peaks import Peaks
from worklog.harness import ONE_PLACEMENT, Harness, Reading, cross_check, input_sets
from worklog.kernel import words_of
from worklog.kernel.solution import Solution, Solver
from worklog.problem import random_inputs
from worklog.problem.problem import each, raw, rebuilt
from worklog.runner.arguments import on_gpu
from worklog.runner.child import Say
from worklog.runner.job import BASELINE, CASE, Job, Skipped, work_of
from worklog.runner.launches import Loop, elements
from worklog.runner.session import Prepared, Session, alone_on_the_gpu, time_prepared
from worklog.runner.timing import UNCHECKED, Call, idle_after, name_of, prepare_call
from worklog.runs import Measurement, Run, Stage
from worklog.runs.record import line

TOO_SLOW_S = 20.0  # expected seconds of one measurement's samples, above which it is skipped
# What CuPy, Triton and Numba raise where one combination of values can't be compiled, or needs too much of an SM.
NOT_COMPILED = ("CompileException", "NVRTCError", "CompilationError", "OutOfResources", "PTXASError", "TypingError")
Hold = Callable[[str], tuple[str, list[str]]]
GATES: dict[bool | str, str] = {
    False: "gate: off, the result may be wrong",
    "article": "gate: the article's rule, which lets TF32, FP16, BF16 and missing terms pass",
}
LAST_ONLY = "gate: only the last timed launch was checked, on inputs that the host function has seen before"
LAST = "gate: of the timed launches, the last one's output was checked"


def answer(order: Mapping[str, Any], say: Say, make_session: Callable[..., Session] | None = None) -> None:
    """Gate and time each of the order's jobs. Answers: "ready" with the head of a run; then for each job "measured"
    with the line of its measurement and its kernel's description. make_session: gets the user kernels by name (default:
    Session).
    """
    jobs, harness = order["jobs"], order["harness"]
    with alone_on_the_gpu(), switchable_clocks() as hold:
        clocks, notes = hold(harness.clocks)
        session = (make_session or Session)(order["user_kernels"])
        harness = harness.but(clocks=clocks)
        for shape in {job.shape for job in jobs if job.shape}:
            session.require_memory(shape)
        say("ready", head=Run(**session.head(harness, notes)).head_lines())
        session.compile_ahead(jobs)
        finished: list[Measurement] = []
        for done, job in enumerate(jobs):
            say("progress", done=done, doing=str(job))
            finished.append(measure_job(session, job, harness, finished, hold))
            session.require_idle()  # LaunchFailed: the GPU's context is lost, and nothing can be measured after it
            words = {"line": line("measurement", finished[-1]), "description": session.describe(job.kernel)}
            say("measured", number=done + 1, **words)
    say("done")


def measure_job(
    session: Session,
    job: Job,
    harness: Harness,
    earlier: Sequence[Measurement] = (),
    hold: Hold = lambda clocks: (clocks, []),
) -> Measurement:
    """Gate and time one job. A failed check, a failed launch and a skip are results too.

    earlier: measurements of this run. hold: holds the clocks as the job's setting says
    (worklog.gpu.clock_lock.switchable_clocks); the measurement states what was held. Raises LaunchFailed if the GPU's
    context is lost: nothing can be measured after that in this process.
    """
    used = harness.but(**dict(job.changed))
    clocks, notes = hold(used.clocks)
    if used.clocks == harness.clocks:  # the run states the notes
        notes = []
    changed = {**dict(job.changed), "clocks": clocks}
    if clocks == harness.clocks:
        del changed["clocks"]
    used, job = used.but(clocks=clocks), replace(job, changed=tuple(changed.items()))
    smaller = [m for m in earlier if m.kernel == job.kernel and not m.changed and m.us and job.shape]
    smaller = [m for m in smaller if m.problem.flops < job.problem.flops]
    if smaller:  # of the same kernel: they show how long this would take
        largest = max(smaller, key=lambda m: m.problem.flops)
        expected_s = (largest.us or 0.0) / 1e6 * job.problem.flops / largest.problem.flops
        if expected_s * used.least_samples > TOO_SLOW_S:
            why = (
                f"too slow: at the rate of size {largest.problem}, one launch takes {expected_s:.1f} s and "
                f"{used.least_samples} samples {expected_s * used.least_samples:.0f} s, more than {TOO_SLOW_S:.0f} s"
            )
            return job.without_time("skipped", why)
    try:
        prepared = prepare(session, job, used)
        prepared.stated[:0] = notes
        return time_prepared(session, job, prepared)
    except LaunchFailed as error:
        session.device.synchronize()  # raises again if the context is lost
        return job.without_time("failed", f"launch: {error}")
    except Skipped as skipped:
        return job.without_time("skipped", str(skipped).partition("\n")[0])
    except (Exception, SystemExit) as error:  # a benchmark or a Python function may raise anything
        if job.shape is not None:
            raise
        if isinstance(error, (CompileFailed, OutOfMemory)):
            return job.without_time("skipped", str(error).partition("\n")[0])
        if full := memory_is_full(error):
            return job.without_time("skipped", str(full))
        if type(error).__name__ in NOT_COMPILED:
            return job.without_time("skipped", f"it does not compile: {words_of(error)}")
        why = str(error) if isinstance(error, WorklogError) else f"raised {words_of(error)}"
        return job.without_time("failed", why)


def prepare(session: Session, job: Job, used: Harness) -> Prepared:
    """A job made ready, by its kind. Raises Skipped, and what its kernel raises."""
    if job.shape is not None:
        return _prepare_product(session, job, used)
    session.device.empty_cache()
    if isinstance(session.kernel(job.kernel), Solution):
        return _prepare_solution(session, job, used)
    call, *baselines = (called(session, name, dict(job.axes)) for name in (job.kernel, *job.baselines))
    if baselines and call.against:
        named = ", ".join(job.baselines)
        raise BadSetting(f"{job.kernel} has a baseline of its own, in state.run: omit --against {named}")
    call = replace(call, against=[baseline.alone for baseline in baselines] or call.against)
    return prepare_call(session, call, used, [job.kernel, *(job.against or map(name_of, call.baselines))])


def _prepare_product(session: Session, job: Job, used: Harness) -> Prepared:
    """A matrix product. A baseline that fails isn't timed, which the result states."""
    if job.kernel != BASELINE:
        kernel = session.kernel(job.kernel)
        if reason := kernel.skipped or kernel.missing_on(session.gpu.arch):
            raise Skipped(reason)
    loaded = session.load(job.kernel)
    settings = [("timer", "graph"), ("l2", "rotate")]
    here = " and ".join(f"{name} = {value}" for name, value in settings if getattr(used, name) == value)
    keeps = "a host function" if loaded.is_host else ", ".join(loaded.variables(job.problem)) if here else ""
    if here and keeps and used.gate is True:  # code that keeps something can stop to compute at any launch
        raise Skipped(
            f"with {here} only the last launch can be checked, and {keeps} may make the others do less: take l2 = "
            "flush and timer = events"
        )
    stated = [f"{name}: {value}" for name, value in used.biased().items() if name != "gate"] + [*loaded.remarks]
    if loaded.is_host and not _checks_each(used):
        stated.append(LAST_ONLY)
    if used.gate is not True:
        stated.append(GATES[used.gate])
    if unread := session.timeline.watch.reason:
        stated.append(f"clocks: throttle reasons unknown ({unread})")
    right, verdict = [*job.baselines], None
    if used.gate:
        for name in job.baselines:
            of_baseline = session.verdict(name, job.problem, used.gate)
            if not of_baseline.accepted:
                right.remove(name)
                stated.append(f"the baseline {name} failed at {of_baseline.reason}")
        verdict = session.verdict(job.kernel, job.problem, used.gate)
        if not verdict.accepted:
            return Prepared(harness=used, verdict=verdict)
    prepared = loop_of(session, job, used, right)
    prepared.verdict = verdict
    prepared.stated[:0] = stated
    return prepared


def loop_of(session: Session, job: Job, used: Harness, names: list[str]) -> Prepared:
    """The job's kernel and the baselines of these names, in the checker's buffers.

    If L2 is flushed before each launch, each launch gets inputs of its own and is checked. Otherwise new inputs would
    warm the L2 that the launch should find cold, and only the output of the last launch is checked.
    """
    shape, checker = job.problem, session.checker(job.problem)
    easy, checked = used.inputs != "random", used.gate is True and used.inputs == "random"
    if easy:
        hosts = random_inputs(shape, np.random.default_rng(0), used.inputs)
        for buffer, host in zip(checker.buffers.abc[:2], hosts, strict=True):
            session.device.overwrite(buffer, host)
    checker.buffers.poison()
    kernel = session.load(job.kernel)
    if used.warmup == "none" and job.kernel != BASELINE:  # so that the next launch is its first
        kernel = session.kernel(job.kernel).load(session.device, fresh=True)
    library = session.baselines[used.baseline]
    kernels = [kernel, *(library if name == BASELINE else session.load(name) for name in names)]
    sets = input_sets(shape.compulsory_bytes, session.timeline.l2_bytes) if used.l2 == "rotate" else 1
    pool = session.pool(elements(shape, sets, kernels)) if used.placement == "varied" else None
    loop = Loop(
        checker,
        kernels,
        names=(job.kernel, *names),
        in_step=used.order == "interleaved" and used.timer != "graph",
        sets=sets,
        probed=_checks_each(used),
        warm=used.warmup != "none",
        pool=pool,
    )

    def after(reading: Reading, us: float) -> list[Stage]:
        stages = [timed(loop.stage)] if checked else []
        if checked and kernel.is_host:  # which may launch on streams of its own
            stages.append(timed(lambda: idle_after(session, loop.bare[0], used.queues, us)))
            if not used.biased():
                constants = session.calibration.offset_us, session.calibration.launch_us
                prepared.stated += cross_check(session.timeline, loop.bare[0], *constants)[1]
        # Other classes may run where the peak is another.
        if used.gate and not used.biased() and kernel.claimed == "fp32":
            peaks = Peaks(session.gpu, session.gpu.sm_clock_mhz)
            roof = after_timing.fp32_roof(kernel.operands(shape), peaks)
            stages.append(after_timing.judge(shape, us - session.calibration.offset_us, *roof))
        return stages

    def close() -> None:
        loop.leave_pool()
        if _checks_each(used) or easy:
            checker.buffers.restore()

    alone = pool is None and used.placement == "varied"
    prepared = Prepared(
        launches=loop.launches,
        harness=used,
        stated=[ONE_PLACEMENT.format("the GPU's memory has no room for others")] if alone else [],
        work=work_of(shape),
        move=None if pool is None else loop.move,
        size=(shape.flops / 2) ** (1 / 3),
        after=after,
        close=close,
    )
    return prepared


def _checks_each(used: Harness) -> bool:
    """Whether each launch gets inputs of its own and is checked: only if L2 is flushed after they were written."""
    return used.gate is True and used.inputs == "random" and used.l2 == "flush" and used.timer != "graph"


def _prepare_solution(session: Session, job: Job, used: Harness) -> Prepared:
    """A solution at one case, beside the problem's baseline."""
    if missing := session.kernel(job.kernel).missing_on(session.gpu.arch):
        raise Skipped(missing)
    loaded, name = cast(Solver, session.load(job.kernel)), dict(job.axes)[CASE]
    posed = loaded.problem
    case = posed.prepared(next(words for words in posed.tests[1] if words["name"] == name))
    checker = Checker(session.device, posed, case, secrets.randbits(SEED_BITS))
    verdict = checker.check(loaded) if used.gate else None
    if verdict is not None and not verdict.accepted:
        return Prepared(harness=used, verdict=verdict)
    baseline, why = _baseline(session, checker)
    checker.buffers.poison()
    launch = partial(loaded.enqueue, *checker.arguments)
    work = posed.work(case)
    amounts = {"flops": work["flops"], "elements": work["elements"]}
    amounts |= {"reads": work["bytes_read"], "writes": work["bytes_written"]}
    call = Call(launch, against=baseline, **{of: n for of, n in amounts.items() if n})
    names = [job.kernel, *(() if baseline is None else job.against)]
    prepared = prepare_call(session, call, used, names, LAST if used.gate else UNCHECKED)
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
    outputs = tuple(rebuilt(like, raw(result)) for like, result in pairs if result.dtype == like.dtype)
    right = len(outputs) == len(case.outputs) and posed.verified(case, outputs)[0]
    return baseline, [] if right else ["baseline: verify_result fails its result"]


def called(session: Session, name: str, axes: Mapping[str, Any]) -> Call:
    """What a benchmark's function gives to be timed at a point: its launcher, its state.run, or itself. Raises Skipped,
    and what the function raises.
    """
    from worklog.runner.declare import State, benchmarks_of  # here: a product needs neither

    host = session.kernel(name).host
    assert host is not None
    benchmark = benchmarks_of(host)[name]
    if reason := benchmark.space.skip(axes):
        raise Skipped(reason)
    loan = session.device.loan("cupy")

    def state() -> State:
        return benchmark.state(benchmark.values(axes), loan.handle, session.gpu)

    first = state()
    with loan.current():
        returned = benchmark(first)
    call = first.call or Call(returned if callable(returned) else lambda: benchmark(state()))
    kwargs = dict(call.kwargs or {})
    try:
        stream = inspect.signature(call.fn).parameters.get("stream")
    except (TypeError, ValueError):  # compiled code may have none
        stream = None
    if stream is not None and stream.default is stream.empty:
        kwargs.setdefault("stream", loan.handle)
    work: dict[str, Any] = dict(first.work)
    return replace(call, kwargs=kwargs, **work)
