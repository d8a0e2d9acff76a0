"""Carries out jobs in child processes, and saves each measurement before the next job starts."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from worklog.errors import BadSetting, Interrupted
from worklog.gpu.device import require_gpu
from worklog.harness.energy import LONGEST
from worklog.kernel import RUNGS, Kernel, rung
from worklog.runner.child import Ended, run_child
from worklog.runner.job import Job, algorithms_of
from worklog.runner.messages import Measured, MeasureOrder, Started
from worklog.runs import CUBLAS, CUBLASLT, Run, Verdict
from worklog.runs.files import reserve
from worklog.runs.sources import new_path
from worklog.runs.text import Progress, silent
from worklog.settings import Harness

TIMEOUT_S = 120.0
CHECK_ONLY = "`worklog check FILE.cu` checks a .cu file on the emulator"
GATE_S_PER_BYTE = 4e-8  # of A, B and C: ten times what the gate needs on the host


def carry_out(
    order: MeasureOrder,
    *,
    progress: Progress = silent,
    out: Path | None = None,
    resumed: Run | None = None,
    timeout_s: float = TIMEOUT_S,
    stop: threading.Event | None = None,
    command: Sequence[str] | None = None,
) -> Run:
    """Make an order's measurements in child processes, and save the run after each.

    A kernel that hangs, crashes, exits or loses the GPU's context fails, and the rest is measured
    in a fresh process; each host function gets a process that measures nothing else. An interrupt
    ends the child and keeps the finished measurements. CUDA is not initialised in this process.

    order: as order_of() returns it
    out: the file of a new run (default: one among this machine's runs)
    resumed: a run whose file gets these measurements, instead of a new run
    timeout_s: seconds that a measurement may take beyond its budget before it counts as hung
    stop: ends the run when another thread sets it
    command: the child's command line (default: worklog.runner.child)

    Raises what measure() raises, Interrupted, NoGpu while another run measures here, and BadSetting
    if this machine's setup differs from that of the resumed run.
    """
    jobs = order.jobs or []
    kernels = order.user_kernels
    if command is None:
        require_gpu(*([CHECK_ONLY] if kernels else []))
    writer = _Writer.of_new_run(out or new_path()) if resumed is None else _Writer(resumed)
    start = partial(
        run_child,
        progress=progress,
        total=len(jobs),
        timeout_s=limit_s(jobs, order.harness, timeout_s),
        stop=stop,
        command=command,
    )
    with reserve(writer.path) if resumed is None else nullcontext():
        try:
            while writer.count < len(jobs):
                group = _first_group(jobs[writer.count :], kernels)
                part = msgspec.structs.replace(order, jobs=group)
                writer.write(start(part, first=writer.count), part)
        except KeyboardInterrupt as interrupt:
            raise Interrupted(f"interrupted: {writer.outcome(len(jobs))}") from interrupt
    run = writer.run
    assert run is not None
    run.end()
    progress(len(jobs), len(jobs), "done")
    return run


class _Writer:
    """Writes the answers of child processes to a run file.

    run: None until a process is ready
    """

    def __init__(self, resumed: Run | None, path: Path | None = None) -> None:
        """Go on with a run, or begin one at a path."""
        self.run = resumed
        self.is_resumed = resumed is not None  # until the first process of this command is ready
        self._kept_count = 0
        if resumed is not None:
            resumed.complete = False
            path = resumed.save()  # without its end, or a line that was cut short
            self._kept_count = len(resumed.measurements)
        assert path is not None
        self.path = path

    @classmethod
    def of_new_run(cls, path: Path) -> _Writer:
        """Return a writer of a new file."""
        return cls(None, path)

    @property
    def count(self) -> int:
        """The number of measurements of this command."""
        return len(self.run.measurements) - self._kept_count if self.run else 0

    def outcome(self, count: int) -> str:
        """Describe what is saved of `count` measurements."""
        if self.run is None or not self.run.measurements:
            return "no measurement was finished, so nothing is saved"
        finished = len(self.run.measurements)
        return f"{finished} of {self._kept_count + count} measurements are kept in {self.run.path}"

    def write(self, answers: Generator[Any, Any], order: MeasureOrder) -> None:
        """Write a process's answers, and the failure of a job that has ended it.

        Raises the process's error if it ended before it was ready.
        """
        jobs = order.jobs or []
        first = self.count
        with closing(answers):
            for answer in answers:
                if isinstance(answer, Ended):
                    end = answer
                elif isinstance(answer, Started):
                    self._begin(answer.head, jobs[0])
                elif isinstance(answer, Measured) and self.run is not None:
                    self.run.add(answer.line, answer.description)
        is_cut_short = self.count < first + len(jobs)
        has_begun = end.last is not None and not end.is_done
        if self.run is None or (is_cut_short and not has_begun):
            raise end.error()
        if is_cut_short:
            job = jobs[self.count - first]
            stage = end.stage(order.user_kernels.get(job.kernel))
            self.run.add(job.failed(Verdict((stage,), None)))
        elif not end.is_done:
            self.run.add_note(f"the process of {jobs[-1]} ended early: {end}")

    def _begin(self, head: Sequence[str], job: Job) -> None:
        """Begin the run, or note that it continues in a fresh process from this job on.

        head: the head's lines of the fresh process

        Raises BadSetting if the setup differs from that of a resumed run.
        """
        if self.run is None:
            self.run = Run.begin(head, self.path)
        elif self.is_resumed:
            resuming = Run.of_head(head)
            self.run.require_same_setup(resuming)
            self.run.add_note(
                f"from {job} on: resumed at {resuming.created[:16]}, calibrated again"
            )
        elif self.run.measurements:
            self.run.add_note(f"from {job} on: in a fresh process, calibrated again")
        self.is_resumed = False


def _first_group(jobs: Sequence[Job], user_kernels: Mapping[str, Kernel]) -> list[Job]:
    """Return the first jobs, as many as share a process.

    A job with a host function, also as a baseline, shares its process only with jobs of the same
    kernel.
    """

    def process(job: Job) -> str:
        names = [name for name in (job.kernel, *job.against) if name in user_kernels]
        return job.kernel if any(user_kernels[name].host for name in names) else ""

    _, group = next(groupby(jobs, process))
    return list(group)


def limit_s(jobs: Sequence[Job], harness: Harness, timeout_s: float = TIMEOUT_S) -> float:
    """Return the seconds after which a measurement of any of the jobs counts as hung.

    They are the longest budget, the loop for the energy, the time of the gate and timeout_s. A
    baseline whose algorithm is chosen needs the budget of another loop.
    """
    budgets_s = []
    for job in jobs:
        choices = sum(algorithms_of(name) is not None for name in job.against)
        budgets_s.append((1 + choices) * harness.but(**dict(job.changed)).budget_s)
    sizes_bytes = [sum(job.point.matrix_bytes) for job in jobs]
    timeout_s += max([harness.budget_s, *budgets_s]) + LONGEST * harness.energy_s
    return timeout_s + GATE_S_PER_BYTE * max([0, *sizes_bytes])


def order_of(
    jobs: Sequence[Job], harness: Harness, user_kernels: Iterable[Kernel] = ()
) -> MeasureOrder:
    """Return the order to check and time jobs.

    user_kernels: the kernels that jobs name and the package doesn't have

    Raises BadSetting for each mistake, before anything is measured.
    """
    if not jobs:
        raise BadSetting("nothing to measure: name at least one kernel and one size")
    by_name: dict[str, Kernel] = {}
    for kernel in user_kernels:
        if kernel in RUNGS:
            continue
        taken_names = {CUBLAS, CUBLASLT, *(record.name for record in RUNGS)}
        if kernel.name in by_name or kernel.name in taken_names:
            raise BadSetting(f"two kernels are called {kernel.name}: rename one")
        by_name[kernel.name] = kernel
    for job in jobs:
        harness.but(**dict(job.changed))
        if job.point.is_product:  # a benchmark and a problem list their points themselves
            _require_in_domains(job, by_name)
    return MeasureOrder(jobs=jobs, harness=harness, user_kernels=by_name)


def _require_in_domains(job: Job, user_kernels: Mapping[str, Kernel]) -> None:
    """Raise BadSetting if a kernel of the job doesn't take its shape, or can't be a baseline."""
    if algorithms_of(job.kernel) is not None:
        raise BadSetting(
            f"{CUBLASLT} is a baseline: name a kernel, as in worklog run warptiled --against "
            f"{CUBLASLT.lower()}"
        )
    for name in (*job.against, job.kernel):
        if algorithms_of(name) is not None and job.shape.batch > 1:
            raise BadSetting(f"{name} computes one product in a launch: omit it, or omit the batch")
        if name == CUBLAS or algorithms_of(name) is not None:
            continue
        kernel = user_kernels.get(name) or rung(name)
        kernel.check(job.shape)
        if name in job.against and not kernel.domain.alpha:
            raise BadSetting(f"{name} can't be a baseline: it must take alpha, to compute -A B")
