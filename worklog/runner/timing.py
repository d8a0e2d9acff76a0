"""`worklog.time`: time any callable that enqueues GPU work (CuPy, PyTorch, Triton).

The harness is the same as the ladder's. It doesn't know what the callable computes, so the result
isn't checked.
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
from typing import Any, Literal, TypedDict, Unpack

from worklog.errors import BadSetting, LaunchFailed, check_keywords
from worklog.gpu.clocks import DATAPATHS, Clocks, Datapath
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

CrossCheck = Literal["wall clock", "none"]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
# Arguments with the copy of each original, by the original's id.
ArgumentSet = tuple[Arguments, dict[int, Any]]
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
# Settings that concern a ladder's kernel, not any callable.
IRRELEVANT = ("inputs", "gate", "baseline", "roof", "order", "placement")


@dataclass(frozen=True)
class Call:
    """The arguments of worklog.time, which describes them.

    Raises BadSetting for wrong arguments.
    """

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
        self._require_callables()
        # A tensor would be split into its rows.
        if not isinstance(self.grad_to_none, list | tuple):
            raise BadSetting(
                f"worklog.time: grad_to_none: give a list, not {type(self.grad_to_none).__name__}"
            )
        advice = dict.fromkeys(WORK, "give the work of one call, a positive number, or nothing")
        advice["cross_check_limit"] = "give a share above 0, such as 0.05"
        for name, correction in advice.items():
            number = getattr(self, name)
            is_number = isinstance(number, Real) and not isinstance(number, bool)
            if number is not None and not (is_number and 0 < float(number) < math.inf):
                raise BadSetting(f"worklog.time: {name} = {number!r}: {correction}")
        choices: dict[str, tuple[str | None, ...]] = {
            "cross_check": (WALL_CLOCK, "none"),
            "datapath": (*DATAPATHS, None),
        }
        for name, values in choices.items():
            value = getattr(self, name)
            if value not in values:
                names = ", ".join(filter(None, values))
                raise BadSetting(f"worklog.time: {name} = {value!r}: take one of {names}")

    def _require_callables(self) -> None:
        """Raise BadSetting if fn or a baseline can't be called, or runs nothing when called."""
        calls = [("fn", self.fn), *(("against", baseline) for baseline in self.baselines)]
        for name, call in calls:
            if not callable(call):
                raise BadSetting(
                    f"worklog.time: {name} is {type(call).__name__}, which cannot be called"
                )
            for runs_nothing in RUN_NOTHING:
                if runs_nothing(call) or runs_nothing(type(call).__call__):
                    raise BadSetting(
                        f"worklog.time: {name} is a coroutine or generator: calling it runs nothing"
                    )

    def require_timeable(self, harness: Harness) -> None:
        """Raise BadSetting if the call can't be timed under this harness."""
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
        """The names of fn and the baselines, with a number if a name repeats."""
        names = [
            str(getattr(call, "__name__", type(call).__name__))
            for call in (self.fn, *self.baselines)
        ]
        names[0] = self.name or names[0]
        numbered = []
        for index, name in enumerate(names):
            repetitions = names[:index].count(name)
            numbered.append(f"{name} ({repetitions + 1})" if repetitions else name)
        return numbered

    @property
    def baselines(self) -> list[Callable[..., Any]]:
        """The callables that alternate with fn."""
        if self.against is None:
            return []
        return [*self.against] if isinstance(self.against, list | tuple) else [self.against]  # type: ignore[list-item]

    def alone(self, *_: Any, **__: Any) -> None:
        """Call fn on the arguments of this record, and ignore others."""
        self.fn(*self.args, **(self.kwargs or {}))


class CallOptions(TypedDict, total=False):
    """The fields of a Call as keywords of time(), for type checkers."""

    kwargs: Mapping[str, Any] | None
    against: Callable[..., Any] | Sequence[Callable[..., Any]] | None
    flops: float | None
    reads: float | None
    writes: float | None
    elements: float | None
    grad_to_none: Sequence[Any]
    cross_check: CrossCheck
    cross_check_limit: float | None
    sync: bool
    timer: bool
    name: str | None
    datapath: Datapath | None


def time(
    fn: Callable[..., Any],
    *args: Any,
    harness: Harness | None = None,
    **how: Unpack[CallOptions],
) -> Measurement:
    """Time `fn(*args, **kwargs)` on this GPU, alone or alternating with `against`.

    Baselines get the same arguments. With a list of baselines, all alternate in one loop, and the
    result's `against` has the ratio to each baseline, by name.

    The call must enqueue its work on the current stream (CuPy's and PyTorch's are set) and not wait for
    the work. Pass sync=True for a call that waits. With timer=True, fn and against get a stopwatch before
    their arguments, and only the work between stopwatch.start() and stopwatch.stop() is timed. The result
    states the cost of either option. With l2="rotate", GPU arrays among the arguments, also in lists,
    tuples, dicts and dataclasses, are copied until a round exceeds L2.

    The interval is for a call of one kernel. The gaps between the kernels of a call may add time in
    another process, which the interval doesn't include.

    flops, elements, reads, writes: the work of one call, for its rates; reads and writes are in bytes
    grad_to_none: tensors whose gradient is dropped before each call
    cross_check: "wall clock", which also times each callable, or "none"
    cross_check_limit: the result states larger disagreements, a share of the time (default: 2 %, and at
        least 2 µs)
    datapath: the TFLOP/s are a share of this datapath's peak (worklog.peaks)

    Raises NoGpu without a GPU, BadSetting for what can't be timed this way, and LaunchFailed if the GPU
    fails, nothing was enqueued, or work is left on a stream that isn't joined. Exceptions of `fn` pass
    through.

    Example: `worklog.time(torch.mm, a, b, flops=2 * 4096**3)`.
    """
    harness = Harness() if harness is None else harness
    check_keywords("worklog.time has no argument", how, CallOptions.__annotations__)
    call = Call(fn, args, **how)
    call.require_timeable(harness)  # before a GPU is needed
    require_gpu()
    with Clocks() as clocks:
        setting, notes = clocks.hold(harness.clocks)
        return time_on(own_session(), call, harness.but(clocks=setting), notes)


# A notebook shows the fields of a Call as the parameters of time().
_CALL_PARAMETERS = [
    parameter
    for parameter in inspect.signature(Call).parameters.values()
    if parameter.name not in ("fn", "args")
]
_PARAMETERS = [*inspect.signature(time).parameters.values()]
_PARAMETERS[3:] = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in _CALL_PARAMETERS]
time.__signature__ = inspect.signature(time).replace(parameters=_PARAMETERS)  # type: ignore[attr-defined]


def own_session() -> Session:
    """Return the session of the current GPU, which is calibrated once per process."""
    return _session_on(bus_id())


_session_on = cache(lambda current: Session())


def time_on(
    session: Session, call: Call, harness: Harness, notes: Sequence[str] = ()
) -> Measurement:
    """Time a call on a session.

    The caller has locked the clocks as harness.clocks states.

    notes: for the result
    """
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
    """Return a call and its baselines, ready to be timed on a session.

    The caller has locked the clocks as harness.clocks states.

    stated: the result's degradations so far
    verdict: of the gate before
    judge: returns the stages on the timed output, for the measured microseconds of the call

    Raises what worklog.time raises.
    """
    call.require_timeable(harness)
    sync_harness = harness.but(queue=False) if call.sync else harness
    overhead_us = session.overhead_us(sync_harness)
    if call.datapath:
        session.peaks.of(call.datapath)  # raises if the datapath is unknown
    degradations = [*stated, *_degradations(session, call, harness)]
    launches = _launches(session, job, call, harness)
    witnesses = dict[str, float | str]()

    def after(reading: Reading) -> list[Stage]:
        """Check that the calls were joined, and cross-check with the wall clock.

        Raises LaunchFailed if nothing was enqueued, or work isn't joined.
        """
        us = reading.us(sync_harness.statistic)
        for number, fn in enumerate((call.fn, *call.baselines)):
            name = reading.samples.sides[number].name
            subject = f"the baseline {name}" if number else name
            read_us = reading.us(sync_harness.statistic, number)
            _require_enqueued(subject, read_us, overhead_us)
            lone_launch = _lone_launch(session, call, fn)
            _require_joined(session, subject, lone_launch, sync_harness, read_us)
            wall_us, disagreements = _wall_clock(session, call, lone_launch, sync_harness)
            if number:
                disagreements = [f"{subject}: {text}" for text in disagreements]
            degradations.extend(disagreements)
            if wall_us is not None:
                witnesses.setdefault(WALL_CLOCK, wall_us)
        offset_us = session.calibration.offset_us if harness.timer == "events" else 0.0
        if us - offset_us < TOLERANCE_US:
            degradations.append(NEARLY_NOTHING.format(us - offset_us))
        return judge(us)

    return Ready(
        sync_harness,
        _work(call),
        degradations,
        verdict,
        launches,
        after,
        around=_waiting(session, launches, sync_harness) if call.sync else nullcontext(),
        how={"offset_us": overhead_us},
        datapath=call.datapath or "",
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


def _launches(session: Session, job: Job, call: Call, harness: Harness) -> list[Timed]:
    """Return the launches of the function and of its baselines.

    If they alternate, they share out a round of the sets of inputs.
    """
    arguments: Arguments = (call.args, dict(call.kwargs or {}))
    sets: list[ArgumentSet] = [(arguments, {})]
    if harness.l2 == "rotate":
        sets = rotation(arguments, session.timeline.l2_bytes)
    functions = [call.fn, *call.baselines]
    shared_sets = 0 if harness.timer == "graph" else len(sets)
    launches = list[Timed]()
    names = (job.kernel, *job.baselines)
    for number, (fn, name) in enumerate(zip(functions, names, strict=False)):
        first = number * shared_sets // len(functions)
        launch = _launch(session, call, fn, sets[first:] + sets[:first])
        launches.append(replace(launch, name=name, kernels=lambda: 1))  # at least
    return launches


def _work(call: Call) -> Work:
    """Return the work of a call."""
    amounts = (call.flops, call.elements, call.reads, call.writes)
    return Work(*(None if amount is None else round(amount) for amount in amounts))


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
    session: Session, subject: str, launch: Callable[[], None], harness: Harness, read_us: float
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
    return batches.cross_check(session.timeline, launch, offset_us, launch_us, limit)


@contextmanager
def _waiting(session: Session, launches: Sequence[Timed], harness: Harness) -> Iterator[None]:
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
) -> Timed:
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
    return Timed(launches[0], partly=call.timer)


# ------------------------------------------------------------------------------------------ arrays among the arguments


def on_gpu(value: Any) -> bool:
    """Return whether a value is a CuPy array or a PyTorch tensor on a GPU."""
    return hasattr(value, "__cuda_array_interface__") or bool(getattr(value, "is_cuda", False))


def arrays(value: Any) -> list[Any]:
    """Return the GPU arrays in a value, each once.

    Arrays are also found inside lists, tuples, dicts and dataclasses.
    """
    by_id: dict[int, Any] = {}
    _replaced(value, lambda array: by_id.setdefault(id(array), array))
    return list(by_id.values())


def rotation(arguments: Arguments, l2_bytes: int) -> list[ArgumentSet]:
    """Return the arguments and copies of them, as many as evict each other from L2.

    Values that aren't arrays are shared. Arrays in a closure or in an object's attributes aren't found.

    Raises BadSetting if there is no array.
    """
    size_bytes = sum(int(array.nbytes) for array in arrays(arguments))
    if not size_bytes:
        raise BadSetting(
            "l2 = rotate: no GPU array among the arguments to copy; pass the arrays as arguments"
        )
    sets: list[ArgumentSet] = [(arguments, {})]
    for _ in range(batches.input_sets(size_bytes, l2_bytes) - 1):
        copies = {id(array): _copy(array) for array in arrays(arguments)}
        replaced = _replaced(arguments, lambda array, copies=copies: copies[id(array)])  # type: ignore[misc]
        sets.append((replaced, copies))
    return sets


def _replaced(value: Any, new: Callable[[Any], Any], containers: tuple[int, ...] = ()) -> Any:
    """Return the value with each of its GPU arrays replaced.

    Containers without a GPU array stay the same objects.

    new: returns the replacement of an array
    containers: ids of the containers that hold the value
    """
    if on_gpu(value):
        return new(value)
    if id(value) in containers:
        raise BadSetting(
            f"l2 = rotate: a {type(value).__name__} among the arguments contains itself"
        )
    parts = _parts(value)
    if parts is None:
        return value
    containers = (*containers, id(value))
    replaced = {key: _replaced(part, new, containers) for key, part in parts.items()}
    changed = {key: part for key, part in replaced.items() if part is not parts[key]}
    if not changed:
        return value
    if isinstance(value, tuple):
        if hasattr(value, "_make"):
            return value._make(replaced.values())
        return type(value)(replaced.values())
    container = copy(value)
    for key, part in changed.items():
        if isinstance(container, (dict, list)):
            container[key] = part
        else:
            object.__setattr__(container, key, part)  # frozen ones too
    return container


def _parts(value: Any) -> dict[Any, Any] | None:
    """Return the parts of a container by key, index or field; None if the value isn't a container."""
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if hasattr(value, field.name)]
        return {name: getattr(value, name) for name in names}
    return None


def _copy(array: Any) -> Any:
    """Return a copy with the same strides.

    Another order of the elements may run another kernel.
    """
    if hasattr(array, "detach"):
        return array.detach().clone().requires_grad_(array.requires_grad)
    if not hasattr(array, "copy"):
        kind = type(array).__name__
        raise BadSetting(
            f"l2 = rotate: a {kind} can't be copied: pass a CuPy array or a PyTorch tensor"
        )
    return array.copy(order="K")
