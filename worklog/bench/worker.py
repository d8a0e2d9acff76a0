"""Measure and check in a process of its own, so that nothing a kernel does can reach this one.

`measure` and `check` block like those of worklog.bench.measure and worklog.bench.check and take the same arguments. A kernel that
hangs, crashes, leaves, or loses the GPU's context is refused, in words that say what happened and what to do; what was
finished is kept, and what is left is measured in a fresh process. Ctrl-C ends the process, whatever it is doing. CUDA
is never touched here, so a notebook's own context is as it was.
"""

from __future__ import annotations

import math
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worklog.bench import job
from worklog.bench.answers import (
    EMULATE,
    Nonsense,
    advice,
    advised,
    checked_in,
    failure,
    progress_in,
    run_in,
    verdict_on,
)
from worklog.bench.check import Checked
from worklog.bench.child import Child, End
from worklog.bench.tasks import Size, Task, tasks_of
from worklog.errors import BadSetting, ChildFailed, Interrupted
from worklog.gate import Verdict
from worklog.gate.verdict import failed
from worklog.gpu.device import visible_to_a_child
from worklog.kernel.host_function import HostCallable
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement, Run, new_path

if TYPE_CHECKING:
    from worklog.bench.measure import Progress
    from worklog.kernel.user_kernel import Brought
    from worklog.settings import Harness

COMMAND = (sys.executable, "-P", "-m", "worklog.bench.job")
MEASURE_PATIENCE_S = 120.0
CHECK_PATIENCE_S = 60.0
START_PATIENCE_S = 120.0  # at least, until the first kernel: libraries are loaded and compiled, the ruler is calibrated


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
    kernels: Iterable[str | Brought] | Brought | None = None,
    sizes: Iterable[Size] | int = (4096,),
    *,
    harness: Harness | None = None,
    progress: Progress | None = None,
    out: Path | None = None,
    patience_s: float = MEASURE_PATIENCE_S,
) -> Run:
    """worklog.bench.measure.measure in a process of its own.

    patience_s: seconds that one measurement may take beyond the harness's budget before it counts as hung. Raises what
    worklog.bench.measure.measure does, Interrupted with what is kept included, and GpuBusy while another measurement runs.
    """
    from worklog.settings import Harness

    tasks, brought = tasks_of(kernels, sizes)
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
    """worklog.bench.measure.carry_out in processes of its own: a fresh one after each that a kernel took along, and for each
    callable one that nothing else is measured in, since host code may have changed it.

    progress: told at each step, and twice a second in between; what it raises ends the work. stop: ends it from another
    thread, as Ctrl-C does from this one. command: what to start (default: worklog.bench.job).
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
    """One process: as many of its tasks as it lives through, and a verdict on the one that ended it."""
    first, ready, last = log.done, False, dict[str, Any]()
    its_tasks = log.next_together()
    end_of_its = first + len(its_tasks)
    how_far: list[Any] = [first, len(log.tasks), "starting"]

    def hear(answer: dict[str, Any]) -> None:
        nonlocal ready, last
        if log.heard(answer, first):
            ready, child.patience_s = True, patience_s
        elif answer.get("is") == "progress":
            done, _, doing = progress_in(answer)
            how_far[:] = first + done, len(log.tasks), doing
            progress(*how_far)
        else:
            last = answer

    progress(*how_far)
    with tempfile.TemporaryDirectory(prefix="worklog-", ignore_cleanup_errors=True) as folder:
        order = job.measure_order(its_tasks, log.harness, log.brought, Path(folder) / "run.json")
        try:
            with Child(command, order, max(patience_s, START_PATIENCE_S), environment()) as child:
                stop.watch(child)
                try:
                    end = child.wait(hear, lambda: progress(*how_far))
                except KeyboardInterrupt:
                    child.end()
                    for answer in child.unheard():
                        log.heard(answer, first)
                    raise
        except Nonsense as error:
            if not ready:
                raise ChildFailed(f"nothing was measured: {error}") from error
            log.blame("process", str(error), its_last=log.done == end_of_its)
            return
    _show(end)
    finished = log.done == end_of_its
    if last.get("is") == "done" and finished:
        progress(log.done, len(log.tasks), "starting" if log.left else "done")
        return
    if stop.pressed:
        raise log.interrupted()
    if not ready or (last.get("is") == "lost" and log.done == first):
        raise failure(last, end)
    its_last = last.get("is") == "lost" or finished
    culprit = log.tasks[log.done - 1 if its_last else log.done].kernel
    its = [one for one in log.brought if one.name == culprit]
    stage, why = verdict_on(last, end, advice(its[0]) if its else EMULATE, bool(its))
    log.blame(stage, why, its_last=its_last)


def check(
    kernel: Brought,
    shape: Shape | None = None,
    *,
    on: str | None = None,
    seed: int | None = None,
    patience_s: float = CHECK_PATIENCE_S,
    progress: Progress | None = None,
) -> Checked:
    """worklog.bench.check.check in a process of its own.

    patience_s: seconds that one launch may take before the kernel counts as hung; on the emulator, which ends an
    endless kernel by itself, there is no such limit. progress is told at each launch, and twice a second in between;
    its total is 0, since the last launch is not known before. Raises what worklog.bench.check.check does, and Interrupted.
    """
    begun: Checked | None = None
    last: dict[str, Any] = {}
    how_far: list[Any] = [0, 0, "starting"]
    tell = progress or _silent
    order = job.check_order(kernel, shape, on, seed)

    def hear(answer: dict[str, Any]) -> None:
        nonlocal begun, last
        if answer.get("is") == "begun":
            begun = checked_in(answer)
            child.patience_s = math.inf if answer.get("bounded") is True else patience_s
        elif answer.get("is") == "progress":
            how_far[:] = progress_in(answer)
            tell(*how_far)
        else:
            last = answer

    try:
        with Child(COMMAND, order, max(patience_s, START_PATIENCE_S), environment()) as child:
            end = child.wait(hear, lambda: tell(*how_far))
        _show(end)
        if last.get("is") == "checked":
            return advised(checked_in(last), kernel)
        if begun is None:
            raise failure(last, end)
        stage, why = verdict_on(last, end, advice(kernel), True)
    except Nonsense as error:
        if begun is None:
            raise ChildFailed(f"{kernel.name} was not judged: {error}") from error
        stage, why = "process", str(error)
    except KeyboardInterrupt as interrupt:
        raise Interrupted(f"interrupted: {kernel.name} was not judged, and nothing runs any more") from interrupt
    return replace(begun, verdict=Verdict((failed(stage, why),), None))


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

    def next_together(self) -> Sequence[Task]:
        """What the next process measures: one callable's tasks, or all up to the next callable's."""
        callables = {one.name for one in self.brought if isinstance(one, HostCallable)}

        def home(task: Task) -> str:
            return task.kernel if task.kernel in callables else ""

        together = takewhile(lambda task: home(task) == home(self.left[0]), self.left)
        return list(together)

    def heard(self, answer: Mapping[str, Any], first: int) -> bool:
        """Whether an answer was about the run: that a process is ready to measure, or has, from task number `first`
        on. It may come twice, where an interrupt came between. Raises Nonsense.
        """
        if answer.get("is") == "ready":
            found = run_in(answer)
            self._require(found)
            self.run = self.run or replace(found, measurements=[])
            self._again = bool(self.run.calibration)
        elif answer.get("is") == "measured" and first + progress_in(answer)[0] > self.done:
            self._take(run_in(answer))
        return answer.get("is") in ("ready", "measured")

    def _take(self, found: Run) -> None:
        self._require(found)
        if self.run is None or not found.measurements:
            raise Nonsense("its process measured nothing, or before it was ready")
        run, task = self.run, self.left[0]
        if not run.calibration:
            run.calibration, run.harness = found.calibration, found.harness
        elif self._again:
            run.notes.append(f"from {task.kernel} at {task.shape} on: in a fresh process, calibrated again")
        self._again = False
        run.software = {**run.software, **found.software}
        run.kernels = {**found.kernels, **run.kernels}
        run.notes += [note for note in found.notes if note not in run.notes]
        run.measurements += found.measurements
        self._save()

    def _require(self, found: Run) -> None:
        """Raise Nonsense for a run of something else than was asked for."""
        asked = [(task.kernel, task.shape, task.pitfalls) for task in self.left[: len(found.measurements)]]
        harness = {**self.harness.as_dict(), "clocks": found.harness.get("clocks")}  # where they cannot be locked
        if [(m.kernel, m.problem, m.changed) for m in found.measurements] != asked or found.harness != harness:
            raise Nonsense("its process answered for something else than was asked for")

    def blame(self, stage: str, why: str, *, its_last: bool = False) -> None:
        """Refuse the measurement at hand, or the last one that the process made; what was refused already is told only
        what to do.
        """
        assert self.run is not None
        verdict = Verdict((failed(stage, why),), None)
        reason = f"refused at {verdict.reason}"
        if self.left and not its_last:
            task = self.left[0]
            shape = (task.shape.m, task.shape.n, task.shape.k)
            new = Measurement(task.kernel, shape, "refused", reason, task.pitfalls, verdict.as_dict())
        else:
            last = self.run.measurements.pop()
            new = replace(last, reason=f"{last.reason}; {why.rpartition('; ')[2]}")
            if last.status != "refused":
                new = Measurement(last.kernel, last.shape, "refused", reason, last.changed, verdict.as_dict())
        self.run.add(new)
        self._save()

    def _save(self) -> None:
        assert self.run is not None
        self.run.complete = not self.left
        path = self.run.path or self.out
        self.run.save(path or new_path(self.run.device["name"], self.run.created, secrets.token_hex(2)))

    def interrupted(self) -> Interrupted:
        """To be raised. What an interrupt kept from the file is in it now."""
        if self.run is None or not self.run.measurements:
            return Interrupted("interrupted before the first measurement: nothing is saved")
        self._save()
        kept = f"{self.done} of {len(self.tasks)} measurements are kept in {self.run.path}"
        return Interrupted(f"interrupted: {kept}")


def environment() -> dict[str, str]:
    """A child's: this process's, with its import path, and the one GPU that it has chosen."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    visible = visible_to_a_child()
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": visible}


def _show(end: End) -> None:
    """What kernels and libraries have printed, where errors go."""
    if end.words.strip():
        print(end.words.rstrip(), file=sys.stderr)


def _silent(done: int, total: int, doing: str) -> None:
    """No progress shown."""
