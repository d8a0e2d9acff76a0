"""Measure and check in a process of its own, so that nothing a kernel does can reach this one.

`measure` and `check` block like those of worklog.bench and worklog.check and take the same arguments. A kernel that
hangs, crashes, leaves, or loses the GPU's context is refused, in words that say what happened and what to do; what was
finished is kept, and what is left is measured in a fresh process. Ctrl-C ends the process, whatever it is doing. CUDA
is never touched here, so a notebook's own context is as it was.

What cannot be excluded is native code that looks for the nonce in its own process and answers in our name.
"""

from __future__ import annotations

import importlib
import math
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worklog import job
from worklog.check import Checked
from worklog.child import Child, End
from worklog.device import visible_to_a_child
from worklog.errors import (
    BadRunFile,
    BadSetting,
    BadShape,
    ChildFailed,
    Interrupted,
    LaunchFailed,
    OutOfMemory,
    WorklogError,
)
from worklog.gate import Verdict
from worklog.gate.verdict import refused
from worklog.gemm import Shape
from worklog.ladder import LADDER
from worklog.plans import BASELINE, Task
from worklog.runs import Measurement, Run, new_path

if TYPE_CHECKING:
    from worklog.bench import Progress
    from worklog.brought import Brought
    from worklog.harness.settings import Harness

COMMAND = (sys.executable, "-P", "-m", "worklog.job")
MEASURE_PATIENCE_S = 120.0
CHECK_PATIENCE_S = 60.0
START_PATIENCE_S = 120.0  # at least, until the first kernel: libraries are loaded and compiled, the ruler is calibrated
EMULATE = "run it with `worklog check --emulate`: it names the line"


class Nonsense(Exception):
    """An answer that bears the nonce and is none."""


class Stop:
    """Ends a run from another thread. `pid`: of the process that works at the moment, if any."""

    def __init__(self) -> None:
        self.pressed = False
        self._lock = threading.Lock()
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """See the class."""
        return None if self._child is None else self._child.pid

    def press(self) -> None:
        """Returns when the process has gone. Raises ProcessStuck."""
        with self._lock:
            self.pressed = True
        if self._child is not None:
            self._child.cancel()

    def watch(self, child: Child) -> None:
        """End this one when pressed, or now."""
        with self._lock:
            self._child = child
        if self.pressed:
            child.cancel()


def measure(
    kernels: Iterable[str | Brought] | None = None,
    sizes: Iterable[Shape | int | str | Sequence[int]] = (4096,),
    *,
    harness: Harness | None = None,
    progress: Progress | None = None,
    out: Path | None = None,
    patience_s: float = MEASURE_PATIENCE_S,
) -> Run:
    """worklog.bench.measure in a process of its own.

    patience_s: seconds that one measurement may take beyond the harness's budget before it counts as hung. Raises what
    worklog.bench.measure does, Interrupted with what is kept included, and GpuBusy while another measurement runs.
    """
    from worklog.harness.settings import Harness

    asked = [r.name for r in LADDER] + [BASELINE] if kernels is None else list(kernels)
    brought = [kernel for kernel in asked if not isinstance(kernel, str)]
    names = [kernel if isinstance(kernel, str) else kernel.name for kernel in asked]
    tasks = [Task(name, shape) for shape in map(Shape.of, sizes) for name in names]
    return carry_out(tasks, harness or Harness(), brought=brought, progress=progress, out=out, patience_s=patience_s)


def carry_out(
    tasks: Sequence[Task],
    harness: Harness,
    *,
    brought: Sequence[Brought] = (),
    progress: Progress | None = None,
    out: Path | None = None,
    patience_s: float = MEASURE_PATIENCE_S,
    stop: Stop | None = None,
    command: Sequence[str] | None = None,
) -> Run:
    """worklog.bench.carry_out in processes of its own, a fresh one after each that a kernel took along.

    progress: told at each step, and twice a second in between; what it raises ends the work. stop: ends it from another
    thread, as Ctrl-C does from this one. command: what to start (default: worklog.job).
    """
    if not tasks:
        raise BadSetting("nothing to measure: name at least one kernel and one size")
    patience_s += max(harness.but(**dict(task.changed)).budget_s for task in tasks)
    log, stop = _Log(tasks, harness, brought, out), stop or Stop()
    try:
        while log.left:
            _measure_some(log, progress or _silent, patience_s, stop, command or COMMAND)
    except KeyboardInterrupt as interrupt:
        raise log.interrupted() from interrupt
    assert log.run is not None
    return log.run


def _measure_some(log: _Log, progress: Progress, patience_s: float, stop: Stop, command: Sequence[str]) -> None:
    """One process: as many of the tasks as it lives through, and a verdict on the one that ended it."""
    first, ready, last = log.done, False, dict[str, Any]()
    how_far: list[Any] = [first, len(log.tasks), "starting"]

    def hear(answer: dict[str, Any]) -> None:
        nonlocal ready, last
        if answer["is"] in ("ready", "measured"):
            log.take(_run(answer))
            ready, child.patience_s = True, patience_s
        elif answer["is"] == "progress":
            done, _, doing = _how_far(answer)
            how_far[:] = first + done, len(log.tasks), doing
            progress(*how_far)
        else:
            last = answer

    progress(*how_far)
    with tempfile.TemporaryDirectory(prefix="worklog-", ignore_cleanup_errors=True) as folder:
        order = job.measure_order(log.left, log.harness, log.brought, Path(folder) / "run.json")
        try:
            with Child(command, order, max(patience_s, START_PATIENCE_S), _environment()) as child:
                stop.watch(child)
                end = child.wait(hear, lambda: progress(*how_far))
        except Nonsense as error:
            if not ready:
                raise ChildFailed(f"nothing was measured: {error}") from error
            log.blame("process", str(error))
            return
    _show(end)
    if last.get("is") == "done" and not log.left:
        progress(len(log.tasks), len(log.tasks), "done")
        return
    if stop.pressed:
        raise log.interrupted()
    if not ready or (last.get("is") == "lost" and log.done == first):
        raise _failure(last, end)
    culprit = log.tasks[log.done - 1 if last.get("is") == "lost" or not log.left else log.done].kernel
    its = [one for one in log.brought if one.name == culprit]
    stage, why = _verdict(last, end, _advice(its[0]) if its else EMULATE, bool(its))
    log.blame(stage, why, its_last=last.get("is") == "lost")


def check(
    kernel: Brought,
    shape: Shape | None = None,
    *,
    on: str | None = None,
    seed: int | None = None,
    patience_s: float = CHECK_PATIENCE_S,
    progress: Progress | None = None,
) -> Checked:
    """worklog.check.check in a process of its own.

    patience_s: seconds that one launch may take before the kernel counts as hung; on the emulator, which ends an
    endless kernel by itself, there is no such limit. progress is told at each launch, and twice a second in between;
    its total is 0, since the last launch is not known before. Raises what worklog.check.check does, and Interrupted.
    """
    begun: Checked | None = None
    last: dict[str, Any] = {}
    how_far: list[Any] = [0, 0, "starting"]
    tell = progress or _silent
    order = job.check_order(kernel, shape, on, seed)

    def hear(answer: dict[str, Any]) -> None:
        nonlocal begun, last
        if answer["is"] == "begun":
            begun = _checked(answer)
            child.patience_s = math.inf if answer.get("bounded") is True else patience_s
        elif answer["is"] == "progress":
            how_far[:] = _how_far(answer)
            tell(*how_far)
        else:
            last = answer

    try:
        with Child(COMMAND, order, max(patience_s, START_PATIENCE_S), _environment()) as child:
            end = child.wait(hear, lambda: tell(*how_far))
        _show(end)
        if last.get("is") == "checked":
            return _advised(_checked(last), kernel)
        if begun is None:
            raise _failure(last, end)
        stage, why = _verdict(last, end, _advice(kernel), True)
    except Nonsense as error:
        if begun is None:
            raise ChildFailed(f"{kernel.name} was not judged: {error}") from error
        stage, why = "process", str(error)
    except KeyboardInterrupt as interrupt:
        raise Interrupted(f"interrupted: {kernel.name} was not judged, and nothing runs any more") from interrupt
    return replace(begun, verdict=Verdict((refused(stage, why),), None))


class _Log:
    """The run as it grows, on disk after every measurement."""

    def __init__(self, tasks: Sequence[Task], harness: Harness, brought: Sequence[Brought], out: Path | None) -> None:
        self.tasks, self.harness, self.brought, self.out = tasks, harness, brought, out
        self.run: Run | None = None
        self._again = False

    @property
    def done(self) -> int:
        return 0 if self.run is None else len(self.run.measurements)

    @property
    def left(self) -> Sequence[Task]:
        return self.tasks[self.done :]

    def take(self, found: Run) -> None:
        """Append what a process has measured; a run without measurements says that it is ready. Raises Nonsense."""
        asked = [(task.kernel, task.shape, task.gremlins) for task in self.left[: len(found.measurements)]]
        harness = {**self.harness.as_dict(), "clocks": found.harness.get("clocks")}  # where they cannot be locked
        if [(m.kernel, m.problem, m.changed) for m in found.measurements] != asked or found.harness != harness:
            raise Nonsense("its process answered for something else than was asked for")
        if self.run is None:
            self.run = replace(found, measurements=[])
        if not asked:
            self._again = bool(self.run.calibration)
            return
        run = self.run
        if not run.calibration:
            run.calibration, run.harness = found.calibration, found.harness
        elif self._again:
            run.notes.append(f"from {asked[0][0]} at {asked[0][1]} on: in a fresh process, calibrated again")
        self._again = False
        run.software = {**run.software, **found.software}
        run.kernels = {**found.kernels, **run.kernels}
        run.notes += [note for note in found.notes if note not in run.notes]
        run.measurements += found.measurements
        self._save()

    def blame(self, stage: str, why: str, *, its_last: bool = False) -> None:
        """Refuse the measurement at hand, or the last one that the process made; a refusal keeps its own words too."""
        assert self.run is not None
        verdict = Verdict((refused(stage, why),), None)
        reason = f"refused at {verdict.reason}"
        if self.left and not its_last:
            task = self.left[0]
            shape = (task.shape.m, task.shape.n, task.shape.k)
            new = Measurement(task.kernel, shape, "refused", reason, task.gremlins, verdict.as_dict())
        else:
            last = self.run.measurements.pop()
            new = replace(last, reason=f"{last.reason}; {why}")
            if last.status != "refused":
                new = Measurement(last.kernel, last.shape, "refused", reason, last.changed, verdict.as_dict())
        self.run.measurements.append(new)
        self._save()

    def _save(self) -> None:
        assert self.run is not None
        self.run.complete = not self.left
        path = self.run.path or self.out
        self.run.save(path or new_path(self.run.device["name"], self.run.created, secrets.token_hex(2)))

    def interrupted(self) -> Interrupted:
        if self.run is None or not self.run.measurements:
            return Interrupted("interrupted before the first measurement: nothing is saved")
        kept = f"{self.done} of {len(self.tasks)} measurements are kept in {self.run.path}"
        return Interrupted(f"interrupted: {kept}")


def _verdict(last: Mapping[str, Any], end: End, advice: str, foreign: bool) -> tuple[str, str]:
    """At which stage and why a kernel is refused that ended its process. Raises what is no verdict on a kernel: errors
    of what was asked, and where no foreign code could have raised it, of this package.
    """
    kind = last.get("is")
    if kind == "error":
        error = _error(last)
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
        raise _failure(last, end)
    return "process", f"{end}; {advice}"


def _failure(last: Mapping[str, Any], end: End) -> WorklogError:
    """What ended a process that had come to no kernel yet."""
    if last.get("is") == "error":
        return _error(last)
    if last.get("is") == "raised":
        return ChildFailed(
            f"{last.get('what')}: a mistake of worklog's own, or of a library that it uses\n{last.get('traceback')}"
        )
    return ChildFailed(f"no kernel was launched: {last.get('fault') or end}")


def _error(answer: Mapping[str, Any]) -> WorklogError:
    """The error that was raised there, of the same type and with the same words."""
    module, name, message = (str(answer.get(word)) for word in ("module", "type", "message"))
    found = getattr(importlib.import_module(module), name, None) if module.startswith("worklog.") else None
    if not (isinstance(found, type) and issubclass(found, WorklogError)):
        return ChildFailed(message)
    return found.__new__(found, message)  # whatever else its own __init__ would want


def _advice(kernel: Brought) -> str:
    """What to do about one that ruins its process."""
    return EMULATE if kernel.as_dict()["kind"] == "kernel" else "call it by itself in Python to see why"


def _advised(checked: Checked, kernel: Brought) -> Checked:
    """With a word on what to do, where a GPU only says that a launch failed."""
    *before, last = checked.verdict.stages
    if last.passed or last.name != "launch" or not checked.label.startswith("live"):
        return checked
    stages = (*before, replace(last, detail=f"{last.detail}; {_advice(kernel)}"))
    return replace(checked, verdict=replace(checked.verdict, stages=stages))


def _run(answer: Mapping[str, Any]) -> Run:
    try:
        return Run.from_document(answer["run"], "its process's answer")
    except (BadRunFile, KeyError) as error:
        raise Nonsense(f"its process answered with something that is no run: {error}") from error


def _checked(answer: Mapping[str, Any]) -> Checked:
    try:
        return job.unpacked(answer["checked"])
    except (BadShape, AttributeError, KeyError, TypeError, ValueError) as error:
        raise Nonsense(f"its process answered with something that is no result: {error!r}") from error


def _how_far(answer: Mapping[str, Any]) -> tuple[int, int, str]:
    try:
        return int(answer["done"]), int(answer["total"]), str(answer["doing"])
    except (KeyError, TypeError, ValueError) as error:
        raise Nonsense(f"its process answered with something that is no progress: {error!r}") from error


def _environment() -> dict[str, str]:
    """This process's, with its import path, and the one GPU that it has chosen."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    visible = visible_to_a_child()
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": visible}


def _show(end: End) -> None:
    """What kernels and libraries have printed, where errors go."""
    if end.words.strip():
        print(end.words.rstrip(), file=sys.stderr)


def _silent(done: int, total: int, doing: str) -> None:
    """No progress shown."""
