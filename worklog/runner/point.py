"""One point of a declared benchmark (worklog.runner.declare), timed in its child process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from worklog.errors import BadSetting, CompileFailed, LaunchFailed, OutOfMemory, WorklogError, memory_is_full
from worklog.kernel import words_of
from worklog.runner import timing
from worklog.runner.declare import Benchmark, Skipped, State, benchmarks_of
from worklog.runner.session import Session
from worklog.runner.tasks import Task
from worklog.runs import Measurement
from worklog.settings import Harness

# What CuPy, Triton and Numba raise where one combination of values can't be compiled, or needs too much of an SM.
NOT_COMPILED = ("CompileException", "NVRTCError", "CompilationError", "OutOfResources", "PTXASError", "TypingError")


def measurement(
    session: Session, task: Task, used: Harness, notes: Sequence[str], earlier: Sequence[Measurement] = ()
) -> Measurement:
    """Time a declared benchmark at one point on this session's GPU, in its child process."""
    made: list[Called] = []
    session.device.empty_cache()
    try:
        for name in filter(None, task.names):
            made.append(called(session, name, dict(task.axes)))
        return _timed(session, task, used, notes, made)
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


@dataclass(frozen=True)
class Called:
    """What to time at one point. how: further arguments of worklog.time. work: of one call."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    how: dict[str, Any]
    work: dict[str, float]

    def alone(self, *_: Any, **__: Any) -> None:
        """Call it on its own arguments."""
        self.fn(*self.args, **self.kwargs)


def called(session: Session, name: str, axes: Mapping[str, Any]) -> Called:
    """The decorated function's answer at a point: its launcher, its state.run, or itself. Raises Skipped, and what the
    function raises.
    """
    host = session.kernel(name).host
    assert host is not None
    benchmark = benchmarks_of(host)[name]
    if reason := benchmark.space.skip(axes):
        raise Skipped(reason)
    loan = session.device.loan("cupy")

    def state() -> State:
        return State(benchmark.values(axes), loan.handle, session.gpu)

    first = state()
    with loan.current():
        returned = benchmark(first)
    fn, args, kwargs, how = first.call or (returned, (), {}, {})
    if not callable(fn):
        fn = partial(_enqueue, benchmark, state)
    with_stream = {"stream": loan.handle} if "stream" not in kwargs and _requires_stream(fn) else {}
    return Called(fn, args, kwargs | with_stream, how, first.work)


def _enqueue(benchmark: Benchmark, state: Callable[[], State]) -> None:
    benchmark(state())


def _requires_stream(fn: Callable[..., Any]) -> bool:
    try:
        stream = inspect.signature(fn).parameters.get("stream")
    except (TypeError, ValueError):  # compiled code may have none
        return False
    return stream is not None and stream.default is stream.empty


def _timed(session: Session, task: Task, used: Harness, notes: Sequence[str], made: Sequence[Called]) -> Measurement:
    subject, how = made[0], made[0].how
    baselines = [timing.name_of(how.get("against"))]
    if task.against:
        if how.get("against"):
            raise BadSetting(f"{task.kernel} has a baseline of its own, in state.run: omit --against {task.against}")
        how, baselines = how | {"against": [one.alone for one in made[1:]]}, [task.against, *task.beside]
    how = {**how, **subject.work, "kwargs": subject.kwargs}
    found = timing.time_on(session, timing.Call(subject.fn, subject.args, name=task.kernel, **how), used)
    return timing.of_task(task, used, found, baselines, notes)
