"""`worklog.time`: any callable that enqueues GPU work (CuPy, PyTorch, Triton), timed by the same harness as the ladder.

The harness doesn't know what the callable computes, so its result isn't checked.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from numbers import Real
from typing import Any

from worklog.errors import BadSetting, LaunchFailed
from worklog.gpu.clocks import DATAPATHS, Clocks
from worklog.gpu.device import bus_id, require_gpu
from worklog.harness import (
    ONE_PLACEMENT,
    WALL_CLOCK,
    Harness,
    Reading,
    Stopwatch,
    Timed,
    batches,
    time_in_turn,
)
from worklog.runner.measure import Job
from worklog.runner.session import Ready, Session
from worklog.runs import TOLERANCE_US, Context, Measurement, Stage, Verdict, Work

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
ArgumentSet = tuple[
    Arguments, dict[int, Any]
]  # with the copy of each original, by the original's id
UNCHECKED = "gate: off, the result is not checked"
PARTLY = "timer: the call itself says which part of it is timed, the rest is not in the number"
WAITS = (
    "queue: the launcher waits for the GPU, so nothing is queued; events around a kernel of "
    f"{batches.SPIN_US} µs then read {{:.1f}} µs more, which is not subtracted"
)
ON_THE_STREAM = "does the call enqueue work, on the current stream of CuPy or PyTorch?"
NEARLY_NOTHING = f"harness: {{:.2f}} µs can't be distinguished from an empty call: {ON_THE_STREAM}"
WORK = ("flops", "elements", "reads", "writes")
RUN_NOTHING = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
PART_ONLY = "reads the whole call, of which the stopwatch times a part"
WHOLE = "reads the same as events around a launch that isn't queued, in which the GPU waits for the host"
IRRELEVANT = (
    "inputs",
    "gate",
    "baseline",
    "roof",
    "order",
    "placement",
)  # about a ladder's kernel, not any callable


@dataclass(frozen=True)
class Call:
    """What to time: the arguments of worklog.time, which describes them. Raises BadSetting for wrong ones."""

    fn: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    against: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None
    flops: float | None = None
    reads: float | None = None
    writes: float | None = None
    elements: float | None = None
    grad_to_none: Sequence[Any] = ()
    cross_check: str = WALL_CLOCK
    cross_check_limit: float | None = None
    sync: bool = False
    timer: bool = False
    name: str | None = None
    datapath: str | None = None

    def __post_init__(self) -> None:
        for what, call in (
            ("fn", self.fn),
            *(("against", baseline) for baseline in self.baselines),
        ):
            if not callable(call):
                raise BadSetting(
                    f"worklog.time: {what} is {type(call).__name__}, which cannot be called"
                )
            if any(
                is_kind(function)
                for is_kind in RUN_NOTHING
                for function in (call, type(call).__call__)
            ):
                raise BadSetting(
                    f"worklog.time: {what} is a coroutine or generator: calling it runs nothing"
                )
        if not isinstance(
            self.grad_to_none, list | tuple
        ):  # a tensor alone would be taken apart into its rows
            raise BadSetting(
                f"worklog.time: grad_to_none: give a list, not {type(self.grad_to_none).__name__}"
            )
        advice = dict.fromkeys(WORK, "give the work of one call, a positive number, or nothing")
        advice["cross_check_limit"] = "give a share above 0, such as 0.05"
        for what, wanted in advice.items():
            number = getattr(self, what)
            is_number = isinstance(number, Real) and not isinstance(number, bool)
            if number is not None and not (is_number and 0 < float(number) < math.inf):
                raise BadSetting(f"worklog.time: {what} = {number!r}: {wanted}")
        for what, known in (
            ("cross_check", (WALL_CLOCK, "none")),
            ("datapath", (*DATAPATHS, None)),
        ):
            if getattr(self, what) not in known:
                names = ", ".join(filter(None, known))
                raise BadSetting(
                    f"worklog.time: {what} = {getattr(self, what)!r}: take one of {names}"
                )

    def require_timeable(self, harness: Harness) -> None:
        """Raise BadSetting where it can't be timed under this harness."""
        if not isinstance(harness, Harness):
            raise BadSetting(
                f"worklog.time: harness is {type(harness).__name__}: give one such as worklog.Harness().but(l2='warm')"
            )
        if self.timer and (harness.l2 == "rotate" or harness.timer != "events"):
            raise BadSetting(
                "worklog.time: a call that names a part takes timer = events, and no l2 = rotate"
            )

    @property
    def names(self) -> list[str]:
        """Of fn and the baselines, numbered where one repeats."""
        names = [
            str(getattr(call, "__name__", type(call).__name__))
            for call in (self.fn, *self.baselines)
        ]
        names[0] = self.name or names[0]
        before = [names[:place].count(name) for place, name in enumerate(names)]
        return [
            f"{name} ({count + 1})" if count else name
            for name, count in zip(names, before, strict=True)
        ]

    @property
    def baselines(self) -> list[Callable[..., Any]]:
        """What fn takes turns with."""
        if self.against is None:
            return []
        return [*self.against] if isinstance(self.against, list | tuple) else [self.against]  # type: ignore[list-item]

    def alone(self, *_: Any, **__: Any) -> None:
        """Call it on its own arguments, whatever it is given."""
        self.fn(*self.args, **(self.kwargs or {}))


def time(
    fn: Callable[..., Any], *args: Any, harness: Harness | None = None, **how: Any
) -> Measurement:
    """Time `fn(*args, **kwargs)` on this GPU, alone or alternating with `against` on the same arguments. With a list of
    callables, all take turns in one loop: the result's `against` has the ratio to each, by name.

    The call must enqueue its work on the current stream (CuPy's and PyTorch's are set) and not wait for it; for one
    that waits pass sync=True. With timer=True, fn and against get a stopwatch before their arguments, and only what
    they enqueue between stopwatch.start() and stopwatch.stop() is timed. The result states what either costs. With
    l2="rotate", GPU arrays among the arguments, also in lists, tuples, dicts and dataclasses, are copied until a round
    exceeds L2.
    flops, elements, reads, writes: the work of one call (the last two in bytes), for its rates. grad_to_none: tensors
    whose gradient is dropped before each call. cross_check: "wall clock", which reads each callable too, or "none"; the
    result states disagreements of more than cross_check_limit, a share of the time (default: 2 %, and at least 2 µs).
    datapath: of which peak the TFLOP/s are a share (worklog.peaks). The interval is of a call of one kernel: what the
    gaps between several add in another process isn't in it.
    Raises NoGpu without a GPU, BadSetting for what can't be timed this way, LaunchFailed where the GPU fails, nothing
    was enqueued, or work is left on a stream that isn't joined; exceptions of `fn` pass through.

    Example: `worklog.time(torch.mm, a, b, flops=2 * 4096**3)`.
    """
    harness, call = Harness() if harness is None else harness, Call(fn, args, **how)
    call.require_timeable(harness)  # before a GPU is needed
    require_gpu()
    with Clocks() as clocks:
        held, notes = clocks.hold(harness.clocks)
        return time_on(own_session(), call, harness.but(clocks=held), notes)


# What a notebook shows of its parameters: those of a Call.
_OF_CALL = [
    option
    for option in inspect.signature(Call).parameters.values()
    if option.name not in ("fn", "args")
]
_PARAMETERS = [*inspect.signature(time).parameters.values()]
_PARAMETERS[3:] = [option.replace(kind=option.KEYWORD_ONLY) for option in _OF_CALL]
time.__signature__ = inspect.signature(time).replace(parameters=_PARAMETERS)  # type: ignore[attr-defined]


def own_session() -> Session:
    """The session of the current GPU, which is calibrated once per process."""
    return _session_on(bus_id())


_session_on = cache(lambda current: Session())


def time_on(
    session: Session, call: Call, harness: Harness, notes: Sequence[str] = ()
) -> Measurement:
    """worklog.time on a session whose caller holds the clocks as harness.clocks says. notes: for the result."""
    name, *against = call.names
    job = Job(name, None, against=tuple(against))
    ready = ready_call(session, job, call, harness, [*notes, UNCHECKED])
    with ready.around:
        reading = time_in_turn(session.timeline, ready.launches, ready.harness, **ready.how)
        stages = ready.after(reading)
    m = session.measurement(job, ready, reading, stages)
    clocks = m.changed.pop("clocks", harness.clocks)  # the label states it
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return replace(m, context=Context("live", clocks, created, session.gpu, session.calibration))


def ready_call(
    session: Session,
    job: Job,
    call: Call,
    harness: Harness,
    stated: Sequence[str],
    verdict: Verdict | None = None,
    judge: Callable[[float], list[Stage]] = lambda us: [],
) -> Ready:
    """A call and its baselines, ready on a session whose caller holds the clocks. stated: the result's degradations so
    far. verdict: of the gate before. judge: gets the call's microseconds as read, and gives the stages on what was
    timed. Raises as worklog.time.
    """
    call.require_timeable(harness)
    given = (call.args, dict(call.kwargs or {}))
    timeline = session.timeline
    calibration = session.calibration
    said = [*stated]
    used = harness.but(queue=False) if call.sync else harness
    overhead_us = session.overhead_us(used)
    if call.datapath:
        session.peaks.of(call.datapath)  # raises where it isn't known
    said += [
        f"{setting}: {value}"
        for setting, value in harness.biased().items()
        if setting not in IRRELEVANT
    ]
    if call.timer:
        said.append(PARTLY)
    if call.sync:
        said.append(WAITS.format(batches.bubble_us(timeline, harness)))
    said += [ONE_PLACEMENT.format("since the buffers belong to the call"), *calibration.remarks]
    # The function and the baselines share out a round of the sets of inputs, if they alternate.
    sets: list[ArgumentSet] = [(given, {})]
    if harness.l2 == "rotate":
        sets = rotation(given, timeline.l2_bytes)
    functions = [call.fn, *call.baselines]
    ahead = 0 if harness.timer == "graph" else len(sets)
    launches = list[Timed]()
    witnesses = dict[str, float | str]()
    for number, (fn, name) in enumerate(zip(functions, (job.kernel, *job.baselines), strict=False)):
        first = number * ahead // len(functions)
        launch = _launch(session, call, fn, sets[first:] + sets[:first])
        launches.append(replace(launch, name=name, kernels=lambda: 1))  # at least

    def after(reading: Reading) -> list[Stage]:
        """Other timers read it, too. Raises LaunchFailed where nothing was enqueued, or work isn't joined."""
        us = reading.us(used.statistic)
        for number, fn in enumerate(functions):
            name = reading.samples.sides[number].name
            read_us = reading.us(used.statistic, number)
            of = f"the baseline {name}" if number else name
            if read_us <= overhead_us:
                few = f"no more than the overhead ({overhead_us:.2f} µs): {ON_THE_STREAM}"
                raise LaunchFailed(f"{of}: {read_us:.2f} µs were read, {few}")
            launch = _launch(session, call, fn, [(given, {})]).launch  # doesn't rotate

            def alone(launch: Callable[..., Any] = launch) -> None:
                launch(*([Stopwatch()] if call.timer else []))

            if not (left := session.idle_after(alone, used.queues, read_us)).passed:
                raise LaunchFailed(f"{of}: {left.detail}: let the current stream wait for it")
            if call.cross_check != "none" and (call.timer or not used.queue):
                witnesses[WALL_CLOCK] = PART_ONLY if call.timer else WHOLE
            elif call.cross_check != "none":
                constants = calibration.offset_us, calibration.launch_us
                wall_us, disagreements = batches.cross_check(
                    timeline, alone, *constants, call.cross_check_limit
                )
                said.extend(f"{of}: {words}" if number else words for words in disagreements)
                witnesses.setdefault(WALL_CLOCK, wall_us)
        beyond_us = us - (calibration.offset_us if harness.timer == "events" else 0.0)
        if beyond_us < TOLERANCE_US:
            said.append(NEARLY_NOTHING.format(beyond_us))
        return judge(us)

    amounts = (call.flops, call.elements, call.reads, call.writes)
    work = Work(*(None if amount is None else round(amount) for amount in amounts))
    around = _waiting(session, launches, used) if call.sync else nullcontext()
    datapath = call.datapath or ""
    how = {"offset_us": overhead_us}
    return Ready(used, work, said, verdict, launches, after, around, how, datapath, witnesses)


@contextmanager
def _waiting(session: Session, launches: Sequence[Timed], harness: Harness) -> Iterator[None]:
    """Open while calls that wait for the GPU are timed: they aren't queued, so the host time to enter the harness's
    stream in each launch would be part of their time. Each runs once before: it may import PyTorch, which has a current
    stream of its own.
    """
    with session.device.loan("cupy").current():
        batches.take_batch(session.timeline, launches, 1, harness)
    with session.device.loan("cupy").current():
        yield


def _launch(
    session: Session, call: Call, fn: Callable[..., Any], sets: Sequence[ArgumentSet]
) -> Timed:
    """Launches of a function on the harness's stream, rotating over the sets of arguments, or with a stopwatch."""
    current = nullcontext if call.sync else session.device.loan("cupy").current

    def enqueue(arguments: Arguments, dropped: Sequence[Any], *before: Any) -> None:
        for tensor in dropped:
            tensor.grad = None
        with current():
            fn(*before, *arguments[0], **arguments[1])

    launches = []
    for arguments, copies in sets:
        dropped = [copies.get(id(tensor), tensor) for tensor in call.grad_to_none]
        launches.append(partial(enqueue, arguments, dropped))
    if len(sets) > 1:
        return batches.rotating(launches, sum(int(array.nbytes) for array in arrays(sets[0][0])))
    return Timed(launches[0], partly=call.timer)


# ------------------------------------------------------------------------------------------ arrays among the arguments


def on_gpu(value: Any) -> bool:
    """A CuPy array or a PyTorch tensor on a GPU."""
    return hasattr(value, "__cuda_array_interface__") or bool(getattr(value, "is_cuda", False))


def arrays(value: Any) -> list[Any]:
    """The GPU arrays in a value, also inside lists, tuples, dicts and dataclasses, each once."""
    by_id: dict[int, Any] = {}
    _replaced(value, lambda array: by_id.setdefault(id(array), array))
    return list(by_id.values())


def rotation(given: Arguments, l2_bytes: int) -> list[ArgumentSet]:
    """The arguments and copies of them, as many as evict each other from L2; what isn't an array is shared. Raises
    BadSetting if there is no array: those in a closure or in an object's attributes can't be found.
    """
    if not (size := sum(int(array.nbytes) for array in arrays(given))):
        raise BadSetting(
            "l2 = rotate: no GPU array among the arguments to copy; pass the arrays as arguments"
        )
    sets: list[ArgumentSet] = [(given, {})]
    for _ in range(batches.input_sets(size, l2_bytes) - 1):
        copies = {id(array): _copy(array) for array in arrays(given)}
        sets.append((_replaced(given, lambda array, copies=copies: copies[id(array)]), copies))  # type: ignore[misc]
    return sets


def _replaced(value: Any, new: Callable[[Any], Any], inside: tuple[int, ...] = ()) -> Any:
    """The value with `new` of each GPU array in it; containers without one stay the same objects."""
    if on_gpu(value):
        return new(value)
    if id(value) in inside:
        raise BadSetting(
            f"l2 = rotate: a {type(value).__name__} among the arguments contains itself"
        )
    if isinstance(value, dict):
        parts = dict(value)
    elif isinstance(value, (list, tuple)):
        parts = dict(enumerate(value))
    elif is_dataclass(value) and not isinstance(value, type):
        parts = {
            field.name: getattr(value, field.name)
            for field in fields(value)
            if hasattr(value, field.name)
        }
    else:
        return value
    others = {key: _replaced(part, new, (*inside, id(value))) for key, part in parts.items()}
    changed = {key: other for key, other in others.items() if other is not parts[key]}
    if changed and isinstance(value, tuple):
        return (
            value._make(others.values())
            if hasattr(value, "_make")
            else type(value)(others.values())
        )
    same = copy(value) if changed else value
    for key, other in changed.items():
        if isinstance(same, (dict, list)):
            same[key] = other
        else:
            object.__setattr__(same, key, other)  # frozen ones too
    return same


def _copy(array: Any) -> Any:
    """With the same strides, since another order of the elements may run another kernel."""
    if hasattr(array, "detach"):
        return array.detach().clone().requires_grad_(array.requires_grad)
    if not hasattr(array, "copy"):
        kind = type(array).__name__
        raise BadSetting(
            f"l2 = rotate: a {kind} can't be copied: pass a CuPy array or a PyTorch tensor"
        )
    return array.copy(order="K")
