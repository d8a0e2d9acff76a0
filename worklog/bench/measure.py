"""Measure: the public calls. Gate, then harness, then a Run; in child processes, and on disk after each measurement."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from worklog.bench import job
from worklog.bench.child import Answer, Stop, failed_stage, failure, run_child
from worklog.bench.tasks import ABLATION_SIZES, BASELINE, Size, Task, ablation_tasks, each, tasks_of
from worklog.errors import BadRunFile, BadSetting, Interrupted, NoGpu
from worklog.gate import Stage, Verdict
from worklog.gpu.device import gpu_reason, require_gpu
from worklog.kernel import Kernel
from worklog.kernel.ladder import LADDER, rung
from worklog.problem.gemm import Shape
from worklog.runs.run import Measurement, Run, forced_source, new_path, open_run
from worklog.settings import Harness

if TYPE_CHECKING:
    from worklog.kernel import Kernel

PATIENCE_S = 120.0
GATE_S_PER_BYTE = 4e-8  # of A, B and C: ten times what the gate takes on the host


class Progress(Protocol):
    """Called before each step, and twice a second in between. It may raise KeyboardInterrupt to stop the work."""

    def __call__(self, done: int, total: int, doing: str) -> None: ...  # noqa: D102


def silent(done: int, total: int, doing: str) -> None:
    """No progress shown."""


def measure(
    kernels: Iterable[str | Kernel] | Kernel | None = None,
    sizes: Iterable[Size] | int = (4096,),
    *,
    harness: Harness | None = None,
    progress: Progress = silent,
    out: Path | None = None,
) -> Run:
    """Gate, then time, each kernel at each size, interleaved with cuBLAS. The run is saved after every measurement.

    kernels: names of rungs, "cuBLAS" for the baseline against itself, user kernels and host functions; None for the
    whole ladder and cuBLAS. A single kernel or size needs no list. A kernel that fails the gate is in the run with its
    verdict and without a time. out: the run's file (default: a new one among this machine's runs).
    Raises NoGpu where there is no CUDA device, UnknownRung, OutsideDomain, BadShape.
    """
    tasks, user_kernels = tasks_of(kernels, sizes)
    return carry_out(tasks, harness or Harness(), user_kernels=user_kernels, progress=progress, out=out)


def ablate(
    kernel: str,
    sizes: Iterable[Size] | int = ABLATION_SIZES,
    *,
    harness: Harness | None = None,
    progress: Progress = silent,
    out: Path | None = None,
) -> Run:
    """One kernel under a harness (default: the unbiased one), then with each pitfall alone, with the article's four,
    and with all.

    Live if there is a GPU, else recorded, like results(); harness and out are for a live run only.
    """
    tasks = ablation_tasks(kernel, [Shape.of(size) for size in each(sizes)])
    return carry_out(tasks, harness or Harness(), progress=progress, out=out) if live_wanted() else _recorded(tasks)


def results(
    kernels: Iterable[str] | None = None,
    sizes: Iterable[Size] | int = (4096,),
    *,
    progress: Progress = silent,
    **settings: Any,
) -> Run:
    """Live if there is a GPU, else recorded: the same call everywhere. The run's label states which it was.

    kernels: default: the whole ladder and cuBLAS. The run's notes name the rungs that are left out because the
    recording doesn't hold them. settings: biased ones, such as l2="warm". Raises BadRunFile, naming the recorded sizes,
    if a kernel that you name was never recorded.
    """
    tasks, _ = tasks_of(kernels, sizes, settings)
    Harness().but(**settings)
    if live_wanted():
        return carry_out(tasks, Harness(), progress=progress)
    if kernels is not None:
        return _recorded(tasks)
    held = {m.kernel for m in open_run().measurements}
    run = _recorded([task for task in tasks if task.kernel in held])
    absent = dict.fromkeys(task.kernel for task in tasks if task.kernel not in held)
    if absent:
        run.notes = [*run.notes, f"not in the {run.origin} run: {', '.join(absent)} (measure on a GPU)"]
    return run


def _recorded(tasks: Sequence[Task]) -> Run:
    """The tasks' measurements from the run to look at. Raises BadRunFile, naming what there is, if one is missing."""
    for task in tasks:
        if task.kernel != BASELINE:
            rung(task.kernel).check(task.shape)
    run = open_run()
    found = [run.select(task.kernel, task.shape, task.pitfalls) for task in tasks]
    for task, there in zip(tasks, found, strict=True):
        if not there:
            same = sorted(
                {m.problem for m in run.measurements if (m.kernel, m.changed) == (task.kernel, task.pitfalls)}
            )
            known = f" (it holds sizes {', '.join(map(str, same))}): ask for those, or" if same else " at any size:"
            raise BadRunFile(f"{task} is not in the {run.origin} run{known} measure on a GPU")
    run.measurements = [measurement for there in found for measurement in there]
    return run


def live_wanted() -> bool:
    """Whether to measure: WORKLOG_SOURCE if it is set, else whether there is a GPU. Raises NoGpu if live is forced
    without one.
    """
    source = forced_source()
    if source == "live" and gpu_reason() is not None:
        raise NoGpu(
            f"WORKLOG_SOURCE=live, but there is no GPU to measure on: {gpu_reason()}; unset it to take the recording"
        )
    return source != "recorded" and gpu_reason() is None


def carry_out(
    tasks: Sequence[Task],
    harness: Harness,
    *,
    user_kernels: Sequence[Kernel] = (),
    progress: Progress = silent,
    out: Path | None = None,
    patience_s: float = PATIENCE_S,
    stop: Stop | None = None,
    command: Sequence[str] | None = None,
) -> Run:
    """Make each measurement in order, in child processes, and save the run after each.

    A kernel that hangs, crashes, exits or loses the GPU's context is refused, and the rest is measured in a fresh
    process; each host function gets a process that measures nothing else. Interrupting ends the child and keeps what is
    finished. CUDA is not initialised in this process.

    user_kernels: those that tasks name. progress: called at each step and twice a second in between.
    patience_s: seconds that a measurement may take beyond its budget before it counts as hung. stop: ends the run from
    another thread. command: the child's command line (default: worklog.bench.job). Raises what measure() raises, and
    GpuBusy while another run measures on this GPU.
    """
    own = require_measurable(tasks, harness, user_kernels)
    if command is None:
        require_gpu()
    log, stop = _Log(tasks, harness, own, out), stop or Stop()
    budget_s = max(harness.but(**dict(task.changed)).budget_s for task in tasks)
    patience_s += budget_s + GATE_S_PER_BYTE * max(task.shape.compulsory_bytes for task in tasks)
    try:
        while log.left:
            _measure_some(log, progress, patience_s, stop, command)
    except KeyboardInterrupt as interrupt:
        raise log.interrupted() from interrupt
    progress(len(tasks), len(tasks), "done")
    assert log.run is not None
    return log.run


def _measure_some(log: _Log, progress: Progress, patience_s: float, stop: Stop, command: Sequence[str] | None) -> None:
    """One child: as many of its tasks as it survives, and a verdict on the one that ended it."""
    first, its_tasks = log.done, log.next_together()

    def hear(answer: Answer) -> float | None:
        log.hear(answer, first)
        return patience_s if answer["is"] == "ready" else None

    last, end = run_child(
        job.measure_order(its_tasks, log.harness, list(log.user_kernels.values())),
        hear,
        lambda done, doing: progress(first + done, len(log.tasks), doing),
        patience_s=patience_s,
        stop=stop,
        command=command,
    )
    finished = log.done == first + len(its_tasks)
    if last.get("is") == "done" and finished:
        return
    if stop.pressed:
        raise log.interrupted()
    lost = last.get("is") == "lost"
    if not log.ready or (lost and log.done == first):
        raise failure(last, end)
    its_last = lost or finished  # the child ended after this measurement, not in one
    culprit = log.tasks[log.done - 1 if its_last else log.done].kernel
    log.refuse(failed_stage(last, end, log.user_kernels.get(culprit)), its_last=its_last)


class _Log:
    """The run as it grows, on disk after every measurement."""

    def __init__(
        self, tasks: Sequence[Task], harness: Harness, user_kernels: Mapping[str, Kernel], out: Path | None
    ) -> None:
        self.tasks, self.harness, self.user_kernels, self.out = tasks, harness, user_kernels, out
        self.run: Run | None = None
        self.ready = False  # the child at hand

    @property
    def done(self) -> int:
        return 0 if self.run is None else len(self.run.measurements)

    @property
    def left(self) -> Sequence[Task]:
        return self.tasks[self.done :]

    def next_together(self) -> list[Task]:
        """What the next child measures: one host function's tasks, or all up to the next host function's."""
        self.ready = False

        def home(task: Task) -> str:
            own = self.user_kernels.get(task.kernel)
            return task.kernel if own is not None and own.host is not None else ""

        return list(takewhile(lambda task: home(task) == home(self.left[0]), self.left))

    def hear(self, answer: Answer, first: int) -> None:
        """Take in "ready" and "measured". first: number of the child's first task. An answer may come twice, if an
        interrupt came while it was taken in.
        """
        if answer["is"] == "ready":
            self.ready = True
            if self.run is None:
                self.run = Run(**answer["head"])
            elif self.done:
                self.run.notes.append(f"from {self.left[0]} on: in a fresh process, calibrated again")
        elif answer["is"] == "measured" and first + answer["number"] > self.done:
            assert self.run is not None
            found = Measurement.from_dict(answer["measurement"])
            self.run.kernels.setdefault(found.kernel, answer["description"])
            self.run.add(found)
            self._save()

    def refuse(self, stage: Stage, *, its_last: bool) -> None:
        """Refuse the measurement at hand, or the last one that the child made, for how the child ended."""
        assert self.run is not None
        verdict = Verdict((stage,), None)
        reason = f"refused at {verdict.reason}"
        if its_last:
            last = self.run.measurements.pop()
            if last.status == "refused":  # for the same fault, seen earlier: add what to do
                new = replace(last, reason=f"{last.reason}; {reason.rpartition('; ')[2]}")
            else:
                new = Measurement(last.kernel, last.shape, "refused", reason, last.changed, verdict.as_dict())
        else:
            task = self.left[0]
            shape = (task.shape.m, task.shape.n, task.shape.k)
            new = Measurement(task.kernel, shape, "refused", reason, task.pitfalls, verdict.as_dict())
        self.run.add(new)
        self._save()

    def _save(self) -> None:
        assert self.run is not None
        self.run.complete = not self.left
        path = self.run.path or self.out
        self.run.save(path or new_path(self.run.device["name"], self.run.created, secrets.token_hex(2)))

    def interrupted(self) -> Interrupted:
        """To be raised."""
        if self.run is None or not self.run.measurements:
            return Interrupted("interrupted before the first measurement: nothing is saved")
        self._save()
        return Interrupted(f"interrupted: {self.done} of {len(self.tasks)} measurements are kept in {self.run.path}")


def require_measurable(
    tasks: Sequence[Task], harness: Harness, user_kernels: Iterable[Kernel] = ()
) -> dict[str, Kernel]:
    """Find every mistake in the tasks before anything is measured. Returns users' kernels by name. Raises BadSetting,
    UnknownRung, OutsideDomain.
    """
    if not tasks:
        raise BadSetting("nothing to measure: name at least one kernel and one size")
    own = _by_name(user_kernels)
    for task in tasks:
        _require_domain(task, own)
        harness.but(**dict(task.changed))
    return own


def _by_name(user_kernels: Iterable[Kernel]) -> dict[str, Kernel]:
    """Raises BadSetting for a name that is taken."""
    own: dict[str, Kernel] = {}
    taken = {BASELINE, *(r.name for r in LADDER)}
    for one in user_kernels:
        if one in LADDER:
            continue
        if one.name in taken:
            raise BadSetting(f"two kernels are called {one.name}: rename one")
        taken.add(one.name)
        own[one.name] = one
    return own


def _require_domain(task: Task, own: Mapping[str, Kernel]) -> None:
    """Raise UnknownRung or OutsideDomain for what cannot be measured."""
    if task.kernel != BASELINE:
        (own.get(task.kernel) or rung(task.kernel)).check(task.shape)
