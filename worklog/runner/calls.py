"""Prepares calls: any callable that enqueues work on the harness's stream, with its baselines.

The harness doesn't know what a call computes, so the gate's stages on its output come from the
caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from worklog.benchmarks import Call
from worklog.errors import LaunchFailed
from worklog.harness import (
    ONE_PLACEMENT,
    WALL_CLOCK,
    Harness,
    LoopResult,
    Stopwatch,
    TimedLaunch,
    batches,
)
from worklog.runner.job import Job
from worklog.runner.prepared import Prepared
from worklog.runner.rotation import Arguments, ArgumentSet, arrays, rotation
from worklog.runner.session import Session
from worklog.runs import Calibration, Roof, Stage, Verdict, Work

UNCHECKED = "gate: off, the result is not checked"
PARTLY = "timer: the call itself says which part of it is timed, the rest is not in the number"
WAITS = (
    "queue: the launcher waits for the GPU, so nothing is queued; events around a kernel of "
    f"{batches.SPIN_US} µs then read {{:.1f}} µs more, which is not subtracted"
)
ON_THE_STREAM = "does the call enqueue work, on the current stream of CuPy or PyTorch?"
NEARLY_NOTHING = f"harness: {{:.2f}} µs can't be distinguished from an empty call: {ON_THE_STREAM}"
PART_ONLY = "reads the whole call, of which the stopwatch times a part"
WHOLE = (
    "reads the same as events around a launch that isn't queued, in which the GPU waits for "
    "the host"
)
# Settings that concern a ladder's kernel, not any callable.
IRRELEVANT = ("inputs", "gate", "baseline", "roof", "order", "placement")


def prepare_call(
    session: Session,
    job: Job,
    call: Call,
    harness: Harness,
    *,
    notes: Sequence[str],
    verdict: Verdict | None = None,
    judge: Callable[[float], list[Stage]] = lambda _us: [],
) -> Prepared:
    """Prepare a call and its baselines.

    The caller has locked the clocks as harness.clocks states.

    notes: the result's degradations so far
    verdict: of the gate before
    judge: returns the stages on the timed output, for the measured microseconds of the call

    Raises what worklog.time raises.
    """
    call.require_timeable(harness)
    call_harness = harness.but(queue=False) if call.sync else harness
    overhead_us = session.overhead_us(call_harness)
    if call.datapath:
        session.peaks.of(call.datapath)  # raises if the datapath is unknown
    degradations = [*notes, *_degradations(session, call, harness)]
    launches = _launches(session, job, call, harness)
    witnesses = dict[str, float | str]()

    def check(reading: LoopResult) -> list[Stage]:
        """Check that the calls were joined, and cross-check with the wall clock.

        Raises LaunchFailed if nothing was enqueued, or work isn't joined.
        """
        us = reading.us(call_harness.statistic)
        for number, fn in enumerate((call.fn, *call.baselines)):
            name = reading.samples.sides[number].name
            subject = f"the baseline {name}" if number else name
            read_us = reading.us(call_harness.statistic, number)
            _require_enqueued(subject, read_us, overhead_us)
            lone_launch = _lone_launch(session, call, fn)
            _require_joined(session, subject, lone_launch, harness=call_harness, read_us=read_us)
            wall_us, disagreements = _wall_clock(session, call, lone_launch, call_harness)
            if number:
                disagreements = [f"{subject}: {text}" for text in disagreements]
            degradations.extend(disagreements)
            if wall_us is not None:
                witnesses.setdefault(WALL_CLOCK, wall_us)
        offset_us = session.calibration.offset_us if harness.timer == "events" else 0.0
        if us - offset_us < Calibration.TOLERANCE_US:
            degradations.append(NEARLY_NOTHING.format(us - offset_us))
        return judge(us)

    return Prepared(
        job,
        call_harness,
        _work(call),
        degradations,
        verdict,
        launches,
        check,
        context=_waiting(session, launches, call_harness) if call.sync else nullcontext(),
        loop_options={"offset_us": overhead_us},
        roof=lambda peaks: _roof(peaks, call),
        witnesses=witnesses,
    )


def _degradations(session: Session, call: Call, harness: Harness) -> list[str]:
    """Return what biases the result, known before the loop."""
    biased = harness.biased().items()
    texts = [f"{setting}: {value}" for setting, value in biased if setting not in IRRELEVANT]
    if call.timer:
        texts.append(PARTLY)
    if call.sync:
        texts.append(WAITS.format(batches.bubble_us(session.timeline, harness)))
    texts.append(ONE_PLACEMENT.format("since the buffers belong to the call"))
    return [*texts, *session.calibration.remarks]


def _launches(session: Session, job: Job, call: Call, harness: Harness) -> list[TimedLaunch]:
    """Return the launches of the function and of its baselines.

    If they alternate, they share out a round of the sets of inputs.
    """
    arguments: Arguments = (call.args, dict(call.kwargs or {}))
    sets: list[ArgumentSet] = [(arguments, {})]
    if harness.l2 == "rotate":
        sets = rotation(arguments, session.timeline.l2_bytes)
    functions = [call.fn, *call.baselines]
    shared_sets = 0 if harness.timer == "graph" else len(sets)
    launches = list[TimedLaunch]()
    names = (job.kernel, *job.against)
    for number, (fn, name) in enumerate(zip(functions, names, strict=False)):
        first = number * shared_sets // len(functions)
        launch = _launch(session, call, fn, sets[first:] + sets[:first])
        launches.append(replace(launch, name=name, kernels=lambda: 1))  # at least
    return launches


def _work(call: Call) -> Work:
    """Return the work of a call."""
    amounts = (call.flops, call.elements, call.reads, call.writes)
    return Work(*(None if amount is None else round(amount) for amount in amounts))


def _roof(peaks: Mapping[str, float], call: Call) -> Roof | None:
    """Return the peak of the call's datapath, if it states its datapath and its operations."""
    if call.datapath is None or not call.flops:
        return None
    return Roof(peaks[call.datapath], call.datapath)


def _lone_launch(session: Session, call: Call, fn: Callable[..., Any]) -> Callable[[], None]:
    """Return a launch of a function outside the loop, which doesn't rotate."""
    arguments: Arguments = (call.args, dict(call.kwargs or {}))
    launch: Callable[..., Any] = _launch(session, call, fn, [(arguments, {})]).launch

    def lone_launch() -> None:
        launch(*([Stopwatch()] if call.timer else []))

    return lone_launch


def _require_enqueued(subject: str, read_us: float, overhead_us: float) -> None:
    """Raise LaunchFailed if the time doesn't exceed the event overhead."""
    if read_us <= overhead_us:
        reason = f"no more than the overhead ({overhead_us:.2f} µs): {ON_THE_STREAM}"
        raise LaunchFailed(f"{subject}: {read_us:.2f} µs were read, {reason}")


def _require_joined(
    session: Session, subject: str, launch: Callable[[], None], *, harness: Harness, read_us: float
) -> None:
    """Raise LaunchFailed if a launch leaves work on a stream that isn't joined."""
    stage = session.idle_after(launch, harness.queues, read_us)
    if not stage.passed:
        raise LaunchFailed(f"{subject}: {stage.detail}: let the current stream wait for it")


def _wall_clock(
    session: Session, call: Call, launch: Callable[[], None], harness: Harness
) -> tuple[float | str | None, list[str]]:
    """Return a launch's time by the wall clock, or why there is none, and the disagreements.

    The time is None if the call isn't cross-checked.
    """
    if call.cross_check == "none":
        return None, []
    if call.timer:
        return PART_ONLY, []
    if not harness.queue:
        return WHOLE, []
    offset_us = session.calibration.offset_us
    launch_us = session.calibration.launch_us
    limit = call.cross_check_limit
    return batches.cross_check(session.timeline, launch, offset_us, launch_us, limit=limit)


@contextmanager
def _waiting(session: Session, launches: Sequence[TimedLaunch], harness: Harness) -> Iterator[None]:
    """Enter the harness's stream while calls that wait for the GPU are timed.

    These calls aren't queued, so the host time to enter the stream in each launch would be part of
    their time. Each call runs once before, since it may import PyTorch, which has another current
    stream.
    """
    with session.device.loan("cupy").current():
        batches.take_batch(session.timeline, launches, 1, harness)
    with session.device.loan("cupy").current():
        yield


def _launch(
    session: Session, call: Call, fn: Callable[..., Any], sets: Sequence[ArgumentSet]
) -> TimedLaunch:
    """Return the launches of a function on the harness's stream.

    They rotate over the sets of arguments, or get a stopwatch.
    """
    current = nullcontext if call.sync else session.device.loan("cupy").current

    def enqueue(arguments: Arguments, dropped: Sequence[Any], *stopwatch: Any) -> None:
        for tensor in dropped:
            tensor.grad = None
        with current():
            fn(*stopwatch, *arguments[0], **arguments[1])

    launches = []
    for arguments, copies in sets:
        dropped = [copies.get(id(tensor), tensor) for tensor in call.grad_to_none]
        launches.append(partial(enqueue, arguments, dropped))
    if len(sets) > 1:
        return batches.rotating(launches, sum(int(array.nbytes) for array in arrays(sets[0][0])))
    return TimedLaunch(launches[0], partly=call.timer)
