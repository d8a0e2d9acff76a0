"""`worklog.time`: time any callable that enqueues GPU work (CuPy, PyTorch, Triton).

The harness is the same as the ladder's. It doesn't know what the callable computes, so the result
isn't checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, Unpack

from worklog.benchmarks import Call, CallOptions
from worklog.errors import check_keywords
from worklog.gpu.clocks import Clocks
from worklog.gpu.device import bus_id, require_gpu
from worklog.harness import Harness
from worklog.problem import Point
from worklog.runner.calls import UNCHECKED, prepare_call
from worklog.runner.job import Job
from worklog.runner.prepared import measure_prepared
from worklog.runner.session import Session
from worklog.runs import Context, Measurement


def time(
    fn: Callable[..., Any],
    *args: Any,
    harness: Harness | None = None,
    **how: Unpack[CallOptions],
) -> Measurement:
    """Time `fn(*args, **kwargs)` on this GPU, alone or alternating with `against`.

    Baselines get the same arguments. With a list of baselines, all alternate in one loop, and the
    result's `against` has the ratio to each baseline, by name.

    The call must enqueue its work on the current stream (CuPy's and PyTorch's are set) and not wait
    for the work. Pass sync=True for a call that waits. With timer=True, fn and against get a
    stopwatch before their arguments, and only the work between stopwatch.start() and
    stopwatch.stop() is timed. The result states the cost of either option. With l2="rotate", GPU
    arrays among the arguments, also in lists, tuples, dicts and dataclasses, are copied until a
    round exceeds L2.

    The interval is for a call of one kernel. The gaps between the kernels of a call may add time in
    another process, which the interval doesn't include.

    flops, elements, reads, writes: the work of one call, for its rates; reads and writes are
        in bytes
    grad_to_none: tensors whose gradient is dropped before each call
    cross_check: "wall clock", which also times each callable, or "none"
    cross_check_limit: the result states larger disagreements, a share of the time (default: 2 %,
        and at least 2 µs)
    datapath: the TFLOP/s are a share of this datapath's peak (worklog.peaks)

    Raises NoGpu without a GPU, BadSetting for what can't be timed this way, and LaunchFailed if the
    GPU fails, nothing was enqueued, or work is left on a stream that isn't joined. Exceptions of
    `fn` pass through.

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


_session_on = cache(lambda _bus_id: Session())


def time_on(
    session: Session, call: Call, harness: Harness, notes: Sequence[str] = ()
) -> Measurement:
    """Time a call on a session.

    The caller has locked the clocks as harness.clocks states.

    notes: for the result
    """
    name, *against = call.names
    job = Job(name, Point(), against=tuple(against))
    prepared = prepare_call(session, job, call, harness, notes=[*notes, UNCHECKED])
    m = measure_prepared(session, prepared)
    clocks = m.changed.pop("clocks", harness.clocks)  # the label states it
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return replace(m, context=Context("live", clocks, created, session.gpu, session.calibration))
