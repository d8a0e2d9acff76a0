"""What the answers of a child process, and its end, mean here: a verdict on a kernel, an error, or nothing sensible."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from worklog.bench import job
from worklog.bench.check import Checked
from worklog.bench.child import End
from worklog.errors import BadRunFile, BadShape, ChildFailed, LaunchFailed, OutOfMemory, WorklogError
from worklog.runs.run import Run

if TYPE_CHECKING:
    from worklog.kernel.user_kernel import Brought

EMULATE = "run it with `worklog check --emulate`: it names the line"


class Nonsense(Exception):
    """An answer that makes no sense."""


def verdict_on(last: Mapping[str, Any], end: End, advice: str, foreign: bool) -> tuple[str, str]:
    """At which stage and why a kernel is refused that ended its process. Raises what is no verdict on a kernel: errors
    of what was asked, and where no foreign code could have raised it, of this package.
    """
    kind = last.get("is")
    if kind == "error":
        error = error_of(last)
        if isinstance(error, OutOfMemory):
            return "memory", str(error)
        if isinstance(error, LaunchFailed):
            return "launch", f"{error}; {advice}"
        raise error
    if kind == "lost":
        return "launch", f"{last.get('fault')}; {advice}"
    if kind == "raised" and foreign:
        return "process", f"raised {last.get('what')}; {advice}"
    if kind == "raised":
        raise failure(last, end)
    return "process", f"{end}; {advice}"


def failure(last: Mapping[str, Any], end: End) -> WorklogError:
    """What ended a process that had come to no kernel yet."""
    if last.get("is") == "error":
        return error_of(last)
    if last.get("is") == "raised":
        return ChildFailed(
            f"{last.get('what')}: a mistake of worklog's own, or of a library that it uses\n{last.get('traceback')}"
        )
    return ChildFailed(f"no kernel was launched: {last.get('fault') or end}")


def error_of(answer: Mapping[str, Any]) -> WorklogError:
    """The error that was raised there, of the same type and with the same words."""
    module, name, message = (str(answer.get(word)) for word in ("module", "type", "message"))
    found: Any = None
    if module.startswith("worklog."):
        with suppress(ImportError):  # no module of ours
            found = getattr(importlib.import_module(module), name, None)
    if not (isinstance(found, type) and issubclass(found, WorklogError)):
        return ChildFailed(message)
    error: WorklogError = found.__new__(found, message)  # whatever else its own __init__ would want
    return error


def advice(kernel: Brought) -> str:
    """What to do about one that ruins its process."""
    return EMULATE if kernel.as_dict()["kind"] == "kernel" else "call it by itself in Python to see why"


def advised(checked: Checked, kernel: Brought) -> Checked:
    """With a word on what to do, where a GPU only says that a launch failed. Raises Nonsense for an empty verdict."""
    if not checked.verdict.stages:
        raise Nonsense("its process answered with a verdict that has no stage")
    *before, last = checked.verdict.stages
    if last.passed or last.name != "launch" or not checked.label.startswith("live"):
        return checked
    stages = (*before, replace(last, detail=f"{last.detail}; {advice(kernel)}"))
    return replace(checked, verdict=replace(checked.verdict, stages=stages))


def run_in(answer: Mapping[str, Any]) -> Run:
    """The run of an answer. Raises Nonsense."""
    try:
        return Run.from_document(answer["run"], "its process's answer")
    except (BadRunFile, KeyError) as error:
        raise Nonsense(f"its process answered with something that is no run: {error}") from error


def checked_in(answer: Mapping[str, Any]) -> Checked:
    """The result of an answer. Raises Nonsense."""
    try:
        return job.unpacked(answer["checked"])
    except (BadShape, AttributeError, KeyError, TypeError, ValueError) as error:
        raise Nonsense(f"its process answered with something that is no result: {error!r}") from error


def progress_in(answer: Mapping[str, Any]) -> tuple[int, int, str]:
    """Steps done, all steps, and what is being done. Raises Nonsense."""
    try:
        return int(answer["done"]), int(answer["total"]), str(answer["doing"])
    except (KeyError, TypeError, ValueError) as error:
        raise Nonsense(f"its process answered with something that is no progress: {error!r}") from error
