"""`worklog.time`: any callable that enqueues GPU work (CuPy, PyTorch, Triton), timed by the same harness as the ladder.

The harness doesn't know what the callable computes, so its result isn't checked.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from numbers import Real
from threading import Timer
from typing import TYPE_CHECKING, Any

from worklog.errors import BadSetting, LaunchFailed
from worklog.gpu.clock_lock import clocks_as_asked
from worklog.gpu.device import gpu, require_gpu
from worklog.harness import Harness, time_pair
from worklog.harness.batches import SPIN_US, bubble_us
from worklog.harness.crosscheck import cross_check
from worklog.harness.launch import Launch, Partly, Rotating, input_sets
from worklog.harness.sampling import ONE_PLACEMENT, off_the_lock
from worklog.runner.session import Session
from worklog.runner.tasks import measurement_of
from worklog.runs.measurement import Measurement
from worklog.runs.run import source_label
from worklog.runs.samples import event_overhead_us, summarise
from worklog.settings import TOLERANCE_US

if TYPE_CHECKING:
    from worklog.harness.calibration import Calibration
    from worklog.harness.cuda_timeline import CudaTimeline

HANGS_S = 60.0  # beyond the harness's budget, after which a call is reported to hang
UNCHECKED = "gate: off, the result is not checked"
PARTLY = "timer: the call itself says which part of it is timed, the rest is not in the number"
WAITS = (
    f"queue: the launcher waits for the GPU, so nothing is queued; events around a kernel of {SPIN_US} µs then read "
    "{:.1f} µs more, which is not subtracted"
)
ON_THE_STREAM = "does the call enqueue work, on the current stream of CuPy or PyTorch?"
NEARLY_NOTHING = f"harness: {{:.2f}} µs can't be distinguished from an empty call: {ON_THE_STREAM}"
Current = Callable[[], AbstractContextManager[None]]
IRRELEVANT = ("inputs", "gate", "baseline", "roof", "order", "placement")  # about a ladder's kernel, not any callable


def time(
    fn: Callable[..., Any],
    *args: Any,
    against: Callable[..., Any] | None = None,
    harness: Harness | None = None,
    kwargs: Mapping[str, Any] | None = None,
    flops: float | None = None,
    reads: float | None = None,
    writes: float | None = None,
    elements: float | None = None,
    grad_to_none: Sequence[Any] = (),
    cross_checked: bool = False,
    sync: bool = False,
    timer: bool = False,
    name: str | None = None,
) -> Measurement:
    """Time `fn(*args, **kwargs)` on this GPU, alone or interleaved with `against` on the same arguments.

    The call must enqueue its work on the current stream (CuPy's and PyTorch's are set) and not wait for it; for one
    that waits pass sync=True. With timer=True, fn gets a stopwatch before its arguments, and only what it
    enqueues between stopwatch.start() and stopwatch.stop() is timed. The result states what either costs. With
    l2="rotate", arrays among `args` are copied until a round exceeds L2.
    flops, elements, reads, writes: the work of one call (the last two in bytes), for its rates. grad_to_none: tensors
    whose gradient is dropped before each call. cross_checked: whether the wall clock, a graph and the tracer read it
    too; the result states disagreements. A call that hangs is reported on standard error. Raises NoGpu without a GPU,
    BadSetting for what can't be timed this way, LaunchFailed where the GPU fails or nothing was enqueued; exceptions of
    `fn` pass through.
    """
    harness = Harness() if harness is None else harness
    calls = {"fn": fn, "against": fn if against is None else against}
    work = {"flops": flops, "elements": elements, "reads": reads, "writes": writes}
    _require_arguments(calls, harness, work)
    if timer and (cross_checked or sync or against is not None):
        raise BadSetting("worklog.time: timer goes without against, cross_checked and sync")
    if (timer or sync) and harness.l2 == "rotate":
        raise BadSetting("worklog.time: a call that is partly timed, or waits, can't rotate inputs: take l2 = flush")
    if timer and harness.timer != "events":
        raise BadSetting(f"timer = {harness.timer} times a whole launch, and this names a part: take timer = events")
    if not _lent:
        require_gpu()
    title = name or name_of(fn)
    with _clocks(harness.clocks) as (clocks, notes):
        timeline, calibration, current = _harness()
        harness, measured = harness.but(clocks=clocks), {"offset_us": calibration.offset_us}
        overhead = event_overhead_us(harness.as_dict(), measured)
        sets = _sets(args, timeline.l2_bytes) if harness.l2 == "rotate" else [args]
        ahead = 0 if harness.timer == "graph" else len(sets) // 2  # launch by launch, half a round between the two
        call = partial(fn, **kwargs) if kwargs else fn
        subject: Launch = _launch(call, sets, grad_to_none, current)
        if timer:
            subject = Partly(lambda watch: _launch(call, [(watch, *args)], grad_to_none, current)())
            notes = [*notes, PARTLY]
        used = harness
        if sync:
            used = harness.but(queue=False)
            notes = [*notes, WAITS.format(bubble_us(timeline, harness))]
        other = None
        if against is not None:
            second = partial(against, **kwargs) if kwargs else against
            other = _launch(second, sets[ahead:] + sets[:ahead], grad_to_none, current)
        with _reported_if_it_hangs(title, harness.budget_s + HANGS_S):
            reading = time_pair(timeline, subject, other, used, offset_us=overhead)
            witnesses = None
            if cross_checked:
                warm = _launch(call, sets[:1], grad_to_none, current)  # doesn't rotate
                witnesses = cross_check(timeline, warm, calibration.offset_us, calibration.launch_us, used.queue)
    for of, which in ((title, "subject"), ("the baseline", "baseline")):
        if getattr(reading, which):
            read_us = summarise(reading.counted(which), harness.statistic).value
            if read_us <= overhead:
                raise LaunchFailed(
                    f"{of}: {read_us:.2f} µs were read, no more than the overhead ({overhead:.2f} µs): {ON_THE_STREAM}"
                )
    if off := off_the_lock(clocks, reading.sm_mhz):
        clocks, notes = "watched", [*notes, off]
    whole = [None if amount is None else round(amount) for amount in work.values()]
    counts: dict[str, Any] = dict(zip(("flops", "elements", "bytes_read", "bytes_written"), whole, strict=True))
    blank = Measurement(title, None, "measured", baseline=name_of(against), **counts)
    biased = [f"{setting}: {value}" for setting, value in harness.biased().items() if setting not in IRRELEVANT]
    device = _lent[-1].gpu if _lent else gpu()
    found = measurement_of(blank, harness, reading, calibration, device)
    beyond = (found.us or 0.0) + overhead - (calibration.offset_us if harness.timer == "events" else 0.0)
    nothing = [NEARLY_NOTHING.format(beyond)] if beyond < TOLERANCE_US else []
    notes = [*notes, ONE_PLACEMENT.format("since the buffers belong to the call"), *calibration.remarks]
    disagreements = witnesses.disagreements if witnesses else ()
    return replace(
        found,
        of_ceiling=None,  # of FP32 on CUDA cores, which the call may not use
        of_roof=None,
        degradations=(UNCHECKED, *biased, *nothing, *notes, *disagreements, *reading.degradations),
        witnesses={**witnesses.others, **witnesses.absent} if witnesses else {},
        label=source_label("live", device.name, clocks, datetime.now(UTC).isoformat()),
    )


def name_of(call: object) -> str:
    """Of a callable, for titles; "" for None."""
    return "" if call is None else str(getattr(call, "__name__", type(call).__name__))


def _require_arguments(calls: Mapping[str, object], harness: object, work: Mapping[str, Any]) -> None:
    """Raise BadSetting for wrong arguments of worklog.time, before a GPU is needed."""
    for what, call in calls.items():
        if not callable(call):
            raise BadSetting(f"worklog.time: {what} is {type(call).__name__}, which cannot be called")
    if not isinstance(harness, Harness):
        raise BadSetting(
            f"worklog.time: harness is {type(harness).__name__}: give one such as worklog.Harness().but(l2='warm')"
        )
    for what, amount in work.items():
        known = amount is None or (isinstance(amount, Real) and not isinstance(amount, bool))
        if not known or (amount is not None and not 0 < amount < math.inf):
            raise BadSetting(
                f"worklog.time: {what} = {amount!r}: give the work of one call, a positive number, or nothing"
            )


@contextmanager
def _reported_if_it_hangs(name: str, seconds: float) -> Iterator[None]:
    """Report on standard error, once, that a call hangs, and what can be done."""
    report = (
        f"worklog.time: {name} has not returned for {seconds:.0f} s. A kernel that doesn't end can't be stopped from "
        "its own process: end this one, and run `worklog check file.py:function`, which uses a child process"
    )
    watchdog = Timer(seconds, print, (report,), {"file": sys.stderr})
    watchdog.daemon = True
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()
        watchdog.join()


_lent: list[Session] = []


@contextmanager
def measuring_on(session: Session) -> Iterator[None]:
    """While open, worklog.time measures on this session, whose caller holds the clocks."""
    _lent.append(session)
    try:
        yield
    finally:
        _lent.pop()


def _clocks(asked: str) -> AbstractContextManager[tuple[str, list[str]]]:
    return nullcontext((asked, [])) if _lent else clocks_as_asked(asked)


_own_session = cache(Session)  # made once per process


def _harness() -> tuple[CudaTimeline, Calibration, Current]:
    """A calibrated harness; and while the last is open, its stream is CuPy's and PyTorch's."""
    session = _lent[-1] if _lent else _own_session()
    return session.timeline, session.calibration, session.device.loan("cupy").current


def _launch(
    call: Callable[..., Any], sets: Sequence[Sequence[Any]], gradients: Sequence[Any], current: Current
) -> Launch:
    """Launches of a call on the harness's stream, rotating over the sets of arguments."""

    def enqueue(arguments: Sequence[Any]) -> None:
        for tensor in gradients:
            tensor.grad = None
        with current():
            call(*arguments)

    launches = [partial(enqueue, arguments) for arguments in sets]
    return launches[0] if len(sets) == 1 else Rotating(launches, _bytes(sets[0]))


def on_gpu(value: Any) -> bool:
    """A CuPy array or a PyTorch tensor on a GPU."""
    return hasattr(value, "__cuda_array_interface__") or bool(getattr(value, "is_cuda", False))


def _bytes(arguments: Sequence[Any]) -> int:
    return sum(int(value.nbytes) for value in arguments if on_gpu(value))


def _sets(args: tuple[Any, ...], l2_bytes: int) -> list[tuple[Any, ...]]:
    """The arguments and copies of them, as many as evict each other from L2; what isn't an array is shared. Raises
    BadSetting if there is no array among them: arrays in a closure can't be found.
    """
    if not _bytes(args):
        raise BadSetting("l2 = rotate: no GPU array among the arguments to copy; pass the arrays as arguments")
    return [args, *(tuple(map(_copy, args)) for _ in range(input_sets(_bytes(args), l2_bytes) - 1))]


def _copy(value: Any) -> Any:
    if not on_gpu(value):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad) if hasattr(value, "detach") else value.copy()
