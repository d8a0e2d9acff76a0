"""Measure: the public calls. Gate, then harness, then a Run; in child processes, and on disk after each measurement."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from threading import Event
from typing import Any

from worklog.errors import BadRunFile, BadSetting, Interrupted
from worklog.gate import Verdict
from worklog.gpu import gpu_reason, require_gpu
from worklog.kernel import RUNGS, Kernel, rung
from worklog.kernel.ladder import source_changed
from worklog.runner.child import Answer, run_child
from worklog.runner.tasks import ABLATION_SIZES, BASELINE, Progress, Size, Task, ablation_tasks, silent, tasks_of
from worklog.runs import CHAPTERS, Measurement, Run, claimed, forced_source, new_path, newest_run, recordings, runs_dir
from worklog.settings import PITFALLS, Harness

TIMEOUT_S = 120.0
CHANGED = "source changed since"  # in the label of a recorded time
CHECK_ONLY = "`worklog check FILE.cu` checks a .cu file on the emulator"
GATE_S_PER_BYTE = 4e-8  # of A, B and C: ten times what the gate takes on the host


def measure(
    kernels: Iterable[str | Kernel] | Kernel | str | None = None,
    shapes: Iterable[Size] | Size = (4096,),
    *,
    harness: Harness | None = None,
    against: Iterable[str | Kernel] = (),
    progress: Progress = silent,
    out: Path | None = None,
) -> Run:
    """Gate, then time, each kernel at each shape, interleaved with cuBLAS. The run is saved after every measurement.

    kernels: names of rungs, "cuBLAS" for the baseline against itself, your kernels and host functions; None for the
    whole ladder and cuBLAS. shapes: N for a square problem, (M, N, K) or "MxNxK". One kernel or shape needs no list.
    against: further baselines beside cuBLAS: rungs or kernels, which take turns with each kernel in the same loop.
    A kernel that fails the gate is in the run with its verdict and without a time. out: the run's file (default: a new
    one among this machine's runs).
    Raises NoGpu where there is no CUDA device, BadSetting, OutOfMemory, and BadRunFile for an `out` that
    exists or a folder that cannot be written, before anything is measured.
    """
    tasks, user_kernels = tasks_of(kernels, shapes, against=against)
    return carry_out(tasks, harness or Harness(), user_kernels=user_kernels, progress=progress, out=out)


def ablate(
    kernel: str,
    shapes: Iterable[Size] | Size = ABLATION_SIZES,
    *,
    harness: Harness | None = None,
    progress: Progress = silent,
    out: Path | None = None,
) -> Run:
    """One rung with a harness (default: the unbiased one), then with each pitfall alone, with the article's four, and
    with all.

    Live if there is a GPU, else recorded, like results(); harness and out are for a live run only. Raises what
    measure() and results() raise.
    """
    if live_wanted():
        return carry_out(ablation_tasks(kernel, shapes), harness or Harness(), progress=progress, out=out)
    run = newest_run(lambda run: all(held_by(run, task) for task in ablation_tasks(kernel, shapes, run.unknown)))
    return recorded(ablation_tasks(kernel, shapes, run.unknown), run)


def results(
    kernels: Iterable[str] | str | None = None,
    shapes: Iterable[Size] | Size = (4096,),
    *,
    progress: Progress = silent,
    **settings: Any,
) -> Run:
    """Live if there is a GPU, else recorded: the same call everywhere. The run's label states which it was.

    kernels: names of rungs and "cuBLAS"; None for the whole ladder and cuBLAS. The run's notes name the rungs that the
    recording doesn't hold. shapes: as for measure(). settings: biased ones, such as l2="warm". Raises what measure()
    raises, and BadRunFile, naming the recorded sizes, if a kernel that you name was never recorded.
    """
    tasks, _ = tasks_of(kernels, shapes, tuple(settings.items()))
    if live_wanted():
        return carry_out(tasks, Harness(), progress=progress)
    return recorded(tasks, holding(tasks), partly=kernels is None)


def holding(tasks: Sequence[Task]) -> Run:
    """The newest run of this machine that holds all of these, else a recording that does, else the article's."""
    return newest_run(lambda run: all(held_by(run, task) for task in tasks))


def held_by(run: Run, task: Task) -> list[Measurement]:
    """The run's measurements of a task. A run with a biased harness has none of a task without that bias."""
    biased = {g.setting for g in PITFALLS if g.is_biased(run.harness.get(g.setting, g.unbiased))}
    return run.select(task.kernel, task.shape, task.pitfalls) if biased <= task.pitfalls.keys() else []


def recorded(tasks: Sequence[Task], run: Run, partly: bool = False) -> Run:
    """The run with the tasks' measurements only. What the recording doesn't hold comes from those of the chapters past
    the ladder: from one that holds all tasks, or from several, each measurement with its label, which states that the
    rung's source has changed since. partly: kernels that were never recorded are only named in the run's notes. Raises
    BadRunFile, naming the recorded sizes, if a measurement is missing.
    """
    require_measurable(tasks, Harness())

    runs = [run]
    if not all(held_by(run, task) for task in tasks):
        runs += [Run.load(path, "recorded") for path in recordings(CHAPTERS).values()]
    known = {m.kernel for one in runs for m in one.measurements}
    if absent := [name for name in dict.fromkeys(task.kernel for task in tasks) if partly and name not in known]:
        tasks = [task for task in tasks if task.kernel not in absent]
    if absent:
        run.notes = [*run.notes, f"not in the {run.origin} run: {', '.join(absent)} (measure on a GPU)"]
    found, kernels = list[Measurement](), dict[str, dict[str, Any]]()
    for task in tasks:
        by = next((one for one in (run, *runs) if held_by(one, task)), run)
        if not (there := held_by(by, task)):
            rows = [m for one in runs for m in one.measurements if m.changed == task.pitfalls]
            held = ", ".join(map(str, sorted({m.problem for m in rows if m.kernel == task.kernel})))
            others = ", ".join(dict.fromkeys(m.kernel for m in rows)) or "another"
            advice = f" (it holds sizes {held}): take one of them" if held else f" at any size: take {others}"
            raise BadRunFile(f"{task} is not in the {run.origin} run{advice}, or measure on a GPU")
        kernels |= {task.kernel: by.kernels[task.kernel]} if task.kernel in by.kernels else {}
        since = f" · {CHANGED}" if source_changed(task.kernel, by.kernels) else ""
        found += [replace(m, label=m.label + since) for m in there]
    run.measurements, run.kernels = found, run.kernels | kernels
    return run


def live_wanted() -> bool:
    """Whether to measure: WORKLOG_SOURCE if it is set, else whether there is a GPU. Raises NoGpu if live is forced
    without one.
    """
    source = forced_source()
    if source == "live":
        require_gpu("unset WORKLOG_SOURCE=live to take the recording")
    return source != "recorded" and gpu_reason() is None


def carry_out(
    tasks: Sequence[Task],
    harness: Harness,
    *,
    user_kernels: Sequence[Kernel] = (),
    progress: Progress = silent,
    out: Path | None = None,
    timeout_s: float = TIMEOUT_S,
    stop: Event | None = None,
    command: Sequence[str] | None = None,
) -> Run:
    """Make each measurement in order, in child processes, and save the run after each.

    A kernel that hangs, crashes, exits or loses the GPU's context fails, and the rest is measured in a fresh process;
    each host function gets a process that measures nothing else. An interrupt ends the child and keeps the finished
    measurements. CUDA is not initialised in this process.

    user_kernels: those that tasks name. timeout_s: seconds that a measurement may take beyond its budget before it
    counts as hung. stop: ends the run when another thread sets it. command: the child's command line (default:
    worklog.runner.job). Raises what measure() raises, Interrupted, and NoGpu while another run measures on this GPU.
    """
    own = require_measurable(tasks, harness, user_kernels)
    if command is None:
        require_gpu(*([CHECK_ONLY] if own else []))
    budget_s = max(harness.but(**dict(task.changed)).budget_s for task in tasks)
    timeout_s += budget_s + GATE_S_PER_BYTE * max(task.shape.compulsory_bytes if task.shape else 0 for task in tasks)
    growing = _Growing(tasks, harness, own, out)
    # Without `out`, the name needs the GPU's: another file then shows that the folder is writable.
    with claimed(out or runs_dir() / f".{secrets.token_hex(8)}"):
        try:
            while growing.done < len(tasks):
                growing.measure_some(progress=progress, timeout_s=timeout_s, stop=stop, command=command)
        except KeyboardInterrupt as interrupt:
            raise Interrupted(f"interrupted: {growing.kept()}") from interrupt
    progress(len(tasks), len(tasks), "done")
    assert growing.run is not None
    return growing.run


class _Growing:
    """The run as it grows, on disk after every task. done: the tasks that have their measurements."""

    def __init__(
        self, tasks: Sequence[Task], harness: Harness, user_kernels: Mapping[str, Kernel], out: Path | None
    ) -> None:
        self.tasks, self.harness, self.user_kernels, self.out = tasks, harness, user_kernels, out
        self.run: Run | None = None
        self.done = 0

    def measure_some(self, **how: Any) -> None:
        """One child: as many of its tasks as it survives, and a verdict on the kernel that ended it. how: for
        run_child.
        """
        first, home = self.done, self._home(self.tasks[self.done])
        its_tasks = list(takewhile(lambda task: self._home(task) == home, self.tasks[first:]))

        def take(answer: Answer) -> None:
            if answer["is"] == "ready":
                self._begin(answer["head"])
            elif answer["is"] == "measured" and first + answer["number"] > self.done:  # else it came twice
                self._add([Measurement.from_dict(one) for one in answer["measurements"]], answer["description"])

        order = {"do": "measure", "tasks": its_tasks, "harness": self.harness, "user_kernels": self.user_kernels}
        end = run_child(order, take, first=first, total=len(self.tasks), **how)
        finished, lost = self.done == first + len(its_tasks), end.kind == "lost"
        if end.kind == "done" and finished:
            return
        if self.run is None or not end.kind or (lost and self.done == first):
            raise end.error()
        self.done -= lost or finished  # the child ended after its last measurement, not in one
        task = self.tasks[self.done]
        failed = task.refused(Verdict((end.stage(self.user_kernels.get(task.kernel)),), None))
        if lost or finished:
            last = self.run.measurements[-len(failed) :]
            del self.run.measurements[-len(failed) :]
            failed = [_after(one, failure) for one, failure in zip(last, failed, strict=True)]
        self._add(failed)

    def _home(self, task: Task) -> str:
        """Tasks with the same one share a process: a host function has its own, with its baselines, and a kernel with
        one among its baselines too.
        """
        own = [self.user_kernels[name] for name in (task.kernel, *task.baselines) if name in self.user_kernels]
        return task.kernel if any(kernel.host for kernel in own) else ""

    def _begin(self, head: Mapping[str, Any]) -> None:
        if self.run is None:
            self.run = Run(**head)
        elif self.done:
            self.run.notes.append(f"from {self.tasks[self.done]} on: in a fresh process, calibrated again")

    def _add(self, found: Sequence[Measurement], description: Mapping[str, Any] | None = None) -> None:
        assert self.run is not None
        if description is not None:
            own, here = dict(description), found[0].place
            choices = own.pop("choices", {})  # at each shape that was launched, the gate's too
            about = self.run.kernels.setdefault(found[0].kernel, own)
            if here in choices:
                about.setdefault("choices", {})[here] = choices[here]
        for one in found:
            self.run.add(one)
        self.done += 1
        self._save(self.run)

    def _save(self, run: Run) -> None:
        run.complete = self.done == len(self.tasks)
        run.save(run.path or self.out or new_path(run.device["name"], run.created, secrets.token_hex(2)))

    def kept(self) -> str:
        """What an interrupt leaves, saved again: it may have come while the run was saved."""
        if self.run is None or not self.run.measurements:
            return "no measurement was finished, so nothing is saved"
        self._save(self.run)
        return f"{self.done} of {len(self.tasks)} measurements are kept in {self.run.path}"


def _after(found: Measurement, failure: Measurement) -> Measurement:
    """The failure of a process that ended once the kernel had this measurement. One that was refused for the same fault
    before gets what to do.
    """
    if found.status == "refused":
        return replace(found, reason=f"{found.reason}; {str(failure.reason).rpartition('; ')[2]}")
    return replace(failure, changed=found.changed)


def require_measurable(
    tasks: Sequence[Task], harness: Harness, user_kernels: Iterable[Kernel] = ()
) -> dict[str, Kernel]:
    """The user kernels by name. Raises BadSetting for each mistake, before anything is measured."""
    if not tasks:
        raise BadSetting("nothing to measure: name at least one kernel and one size")
    own: dict[str, Kernel] = {}
    for kernel in user_kernels:
        if kernel in RUNGS:
            continue
        if kernel.name in own or kernel.name in (BASELINE, *(record.name for record in RUNGS)):
            raise BadSetting(f"two kernels are called {kernel.name}: rename one")
        own[kernel.name] = kernel
    for task in tasks:
        for name in task.against if task.shape else ():
            baseline = own.get(name) or rung(name)
            baseline.check(task.problem)
            if not baseline.domain.alpha:
                raise BadSetting(f"{name} can't be a baseline: it must take alpha, to compute -A B")
        if task.kernel != BASELINE and task.shape:
            (own.get(task.kernel) or rung(task.kernel)).check(task.problem)
        harness.but(**dict(task.changed))
    return own
