"""A declared benchmark (worklog.runner.declare) at one point, made ready in its child process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from worklog.errors import BadSetting
from worklog.runner.declare import State, benchmarks_of
from worklog.runner.job import Job, Skipped
from worklog.runner.session import Prepared, Session
from worklog.runner.timing import Call, name_of, prepare_call
from worklog.settings import Harness


def prepare(session: Session, job: Job, used: Harness) -> Prepared:
    """The benchmark's call and its baselines'. Raises what the benchmark's function raises."""
    session.device.empty_cache()
    call, *baselines = (called(session, name, dict(job.axes)) for name in (job.kernel, *job.baselines))
    if baselines and call.against:
        named = ", ".join(job.baselines)
        raise BadSetting(f"{job.kernel} has a baseline of its own, in state.run: omit --against {named}")
    call = replace(call, against=[baseline.alone for baseline in baselines] or call.against)
    return prepare_call(session, call, used, [job.kernel, *(job.against or map(name_of, call.baselines))])


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
    work: dict[str, Any] = dict(first.work)
    return replace(call, kwargs=kwargs, **work)


def _requires_stream(fn: Callable[..., Any]) -> bool:
    try:
        stream = inspect.signature(fn).parameters.get("stream")
    except (TypeError, ValueError):  # compiled code may have none
        return False
    return stream is not None and stream.default is stream.empty
