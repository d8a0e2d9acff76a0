"""One point of a declared benchmark (worklog.runner.declare), timed in its child process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from worklog.errors import BadSetting, CompileFailed, LaunchFailed, OutOfMemory, WorklogError, memory_is_full
from worklog.kernel import words_of
from worklog.runner.declare import Skipped, State, benchmarks_of
from worklog.runner.session import Session
from worklog.runner.tasks import Task
from worklog.runner.timing import Call, name_of, time_task
from worklog.runs import Measurement
from worklog.settings import Harness

# What CuPy, Triton and Numba raise where one combination of values can't be compiled, or needs too much of an SM.
NOT_COMPILED = ("CompileException", "NVRTCError", "CompilationError", "OutOfResources", "PTXASError", "TypingError")


def measurements(session: Session, task: Task, used: Harness, notes: Sequence[str]) -> list[Measurement]:
    """Time a declared benchmark at one point on this session's GPU, against each of its baselines."""
    session.device.empty_cache()
    try:
        call, *baselines = (called(session, name, dict(task.axes)) for name in (task.kernel, *task.baselines))
        if baselines and call.against:
            named = ", ".join(task.baselines)
            raise BadSetting(f"{task.kernel} has a baseline of its own, in state.run: omit --against {named}")
        task = replace(task, against=task.against or tuple(map(name_of, call.baselines)))
        call = replace(call, against=[one.alone for one in baselines] or call.against)
        return time_task(session, task, call, used, notes)
    except (Skipped, CompileFailed, OutOfMemory) as reason:
        return task.without_time("skipped", str(reason).partition("\n")[0])
    except LaunchFailed:
        raise
    except (Exception, SystemExit) as error:
        if full := memory_is_full(error):
            return task.without_time("skipped", str(full))
        if type(error).__name__ in NOT_COMPILED:
            return task.without_time("skipped", f"it does not compile: {words_of(error)}")
        known = isinstance(error, WorklogError)
        return task.without_time("refused", str(error) if known else f"raised {words_of(error)}")


def called(session: Session, name: str, axes: Mapping[str, Any]) -> Call:
    """What the decorated function gives to be timed at a point: its launcher, its state.run, or itself. Raises Skipped,
    and what the function raises.
    """
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
    if _requires_stream(call.fn):
        kwargs.setdefault("stream", loan.handle)
    return replace(call, kwargs=kwargs, **first.work)


def _requires_stream(fn: Callable[..., Any]) -> bool:
    try:
        stream = inspect.signature(fn).parameters.get("stream")
    except (TypeError, ValueError):  # compiled code may have none
        return False
    return stream is not None and stream.default is stream.empty
