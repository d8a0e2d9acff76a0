"""Stages of a verdict: how one is made, timed, and run until one fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from worklog.errors import LaunchFailed
from worklog.runs.records import ErrorMap, Stage

LAUNCH = "launch"


def passed(name: str, detail: str, measured: float = 0, limit: float = 0, note: str = "") -> Stage:
    """A stage that passed; by default an exact one, with no element wrong."""
    return Stage(name, True, measured, limit, detail, note=note)


def failed(name: str, detail: str, wrong: float = 1, where: ErrorMap | None = None) -> Stage:
    """An exact stage that failed."""
    return Stage(name, False, wrong, 0, detail, where)


def timed(stage: Callable[[], Stage]) -> Stage:
    """Run a stage, and note the seconds that it took."""
    started = time.perf_counter()
    return replace(stage(), seconds=time.perf_counter() - started)


def until_failure(stages: Iterator[Stage]) -> tuple[Stage, ...]:
    """The stages up to the first that fails, each with the seconds that it took. A launch that fails is a stage too."""
    ran: list[Stage] = []
    try:
        while not ran or ran[-1].passed:
            ran.append(timed(lambda: next(stages)))
    except StopIteration:
        pass
    except LaunchFailed as error:
        ran.append(failed(LAUNCH, str(error)))
    return tuple(ran)
