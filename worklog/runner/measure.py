"""Measure: the public calls, and the jobs that they make.

A job goes through the gate, then through the harness, into a Run. Jobs run in child processes, and
each measurement is saved before the next job starts.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import astuple, dataclass, replace
from fnmatch import fnmatch
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Unpack

from worklog import runs
from worklog.errors import (
    BadRunFile,
    BadSetting,
    Interrupted,
    check_keywords,
    hinted,
    listed,
    meant,
)
from worklog.gpu.device import gpu_reason, require_gpu
from worklog.kernel import LADDER, RUNGS, Kernel, Solution, find_problem, rung, source_changed
from worklog.kernel.trial import completed
from worklog.problem import MOST_VALUES, Shape, Sizes, Value
from worklog.runner.child import Ended, run_child
from worklog.runs import CHAPTERS, CUBLAS, Measurement, Progress, Run, Verdict, silent
from worklog.settings import HOW_ONE_MEASURES, PITFALLS, Harness, HarnessSettings

Changes = tuple[tuple[str, Any], ...]
CASE = "case"  # the axis of a problem
ARTICLE_SIZES = ABLATION_SIZES = [256, 512, 1024, 2048, 4096]
ABLATION_RUNGS = ("naive", "vectorized", "warptiled")
ABLATION_SAMPLING: Changes = (("most_samples", 200), ("budget_s", 2.0), ("hot_ms", 0.0))
# A host clock scatters between processes (worklog.runs.estimates.HOST_HALF). More samples in one
# process don't remove this scatter.
HOST_SAMPLING: Changes = (("most_samples", 200), ("budget_s", 0.3), ("hot_ms", 0.0))
GRID_SIZES = [256, 1024, 4096]
# At 4096 a launch of naive takes 0.28 s on an H200, so that its twelve settings alone would take 40 s.
ARTICLE_ABLATIONS = {"naive": GRID_SIZES[:2], "vectorized": GRID_SIZES, "warptiled": GRID_SIZES}
SECONDS_EACH = 1.5  # gate and timing of one kernel at 4096 on an H200, from the stages' seconds in the recording
TIMEOUT_S = 120.0
CHANGED = "source changed since"  # in the label of a recorded time
CHECK_ONLY = "`worklog check FILE.cu` checks a .cu file on the emulator"
GATE_S_PER_BYTE = 4e-8  # of A, B and C: ten times what the gate needs on the host


class Skipped(Exception):
    """A benchmark or a solution isn't measured at a point; the message says why."""


@dataclass(frozen=True)
class Job:
    """A loop to check and time."""

    kernel: str  # the name; CUBLAS for cuBLAS itself
    shape: Shape | None  # None for a declared benchmark or a solution
    changed: Changes = ()  # settings that differ from the run's harness
    axes: tuple[tuple[str, Value], ...] = ()  # the values of a benchmark or of a solution
    # Names of the baselines that alternate with the kernel; for a matrix product, without cuBLAS.
    against: tuple[str, ...] = ()

    @property
    def baselines(self) -> tuple[str, ...]:
        """Every baseline. The measurement's ratio is against the first."""
        return self.against if self.shape is None else (CUBLAS, *self.against)

    @property
    def problem(self) -> Shape:
        """The shape of a matrix product. Raises BadSetting for anything else."""
        if self.shape is None:
            raise BadSetting(f"{self} isn't a product of matrices: it has no M, N and K")
        return self.shape

    @property
    def pitfalls(self) -> dict[str, Any]:
        """The changed settings of a pitfall. The others set how long to measure."""
        settings = {pitfall.setting for pitfall in PITFALLS}
        return {name: value for name, value in self.changed if name in settings}

    def without_time(
        self, status: Literal["failed", "skipped"], reason: str = "", verdict: Verdict | None = None
    ) -> Measurement:
        """Return the job's measurement if it is skipped or has failed."""
        return Measurement(
            self.kernel,
            None if self.shape is None else astuple(self.shape),
            status,
            reason or None,
            axes=dict(self.axes),
            changed=self.pitfalls,
            verdict=verdict,
            against=dict.fromkeys(self.baselines),
        )

    def failed(self, verdict: Verdict) -> Measurement:
        """Return the job's measurement if the kernel fails the gate."""
        return self.without_time("failed", f"failed at {verdict.reason}", verdict)

    def __str__(self) -> str:
        biased = ", ".join(f"{name}={value}" for name, value in self.pitfalls.items())
        return self.without_time("skipped").title + (f" with {biased}" if biased else "")


def jobs_of(
    kernels: Iterable[str | Kernel] | Kernel | str | None,
    shapes: Sizes,
    changed: Changes = (),
    against: Iterable[str | Kernel] = (),
) -> tuple[list[Job], list[Kernel]]:
    """Return a job for each kernel at each shape, shape by shape, and the user kernels.

    kernels: None for the whole ladder and cuBLAS; a single kernel needs no list
    shapes: a single size needs no list
    changed: settings that differ from the run's harness
    against: further baselines in the loop of each job. A kernel is no baseline of itself.

    Raises BadSetting, also for more than MOST_VALUES jobs.
    """
    if kernels is None:
        chosen: list[Any] = [record.name for record in LADDER] + [CUBLAS]
    else:
        chosen = listed("kernels", kernels)
    baselines = listed("against", against)
    for kernel in [*chosen, *baselines]:
        if not isinstance(kernel, str | Kernel):
            advice = "give a rung's name, Kernel.from_file(…) or from_function(…)"
            raise BadSetting(f"{kernel!r:.60} isn't a kernel: {advice}")
    chosen = _completed(chosen)
    baselines = _completed(baselines)
    sides = dict.fromkeys(Shape.list_of(shapes))
    names = _names(chosen)
    baseline_names = [name for name in _names(baselines) if name != CUBLAS]
    if len(names) * len(sides) > MOST_VALUES:
        count = (
            f"{len(names)} kernels x {len(sides)} sizes = {len(names) * len(sides)} measurements"
        )
        raise BadSetting(f"{count}: more than {MOST_VALUES}; name fewer kernels or sizes")
    jobs = []
    for shape in sides:
        for name in names:
            against_names = tuple(baseline for baseline in baseline_names if baseline != name)
            jobs.append(Job(name, shape, changed, against=against_names))
    user_kernels = [kernel for kernel in [*chosen, *baselines] if not isinstance(kernel, str)]
    return jobs, list(dict.fromkeys(user_kernels))


def _completed(kernels: Iterable[str | Kernel]) -> list[str | Kernel]:
    """Return names as they are, and kernels with their order of parameters and launch."""
    return [kernel if isinstance(kernel, str) else completed(kernel) for kernel in kernels]


def _names(kernels: Iterable[str | Kernel]) -> list[str]:
    """Return each name once."""
    names = [kernel if isinstance(kernel, str) else kernel.name for kernel in kernels]
    return list(dict.fromkeys(names))


def ablation_jobs(kernel: str, shapes: Sizes, unknown: Collection[str] = ()) -> list[Job]:
    """Return the unbiased job at each shape, and a job for each resampled pitfall.

    A resampled pitfall changes how samples are taken. The other pitfalls (statistic, offset, roof)
    are computed from the unbiased samples.

    unknown: settings that are newer than the run
    """
    pitfalls = [pitfall for pitfall in PITFALLS if pitfall.setting not in unknown]
    groups = [[pitfall] for pitfall in pitfalls if pitfall.resampled]
    groups.append([pitfall for pitfall in pitfalls if pitfall.article])
    groups.append([pitfall for pitfall in pitfalls if pitfall.setting in HOW_ONE_MEASURES])
    biased: list[Changes] = [
        tuple((pitfall.setting, pitfall.biased[0]) for pitfall in group) for group in groups
    ]
    sides = Shape.list_of(shapes)
    jobs = [Job(kernel, shape) for shape in sides]
    for shape in sides:
        for changes in biased:
            by_host = ("timer", "host") in changes
            sampling = HOST_SAMPLING if by_host else ABLATION_SAMPLING
            jobs.append(Job(kernel, shape, changes + sampling))
    return jobs


def article_jobs() -> list[Job]:
    """Return the jobs of the article's figures.

    They are the ladder with cuBLAS and the ablation of three rungs, without hot times.
    """
    jobs, _ = jobs_of(None, ARTICLE_SIZES, (("hot_ms", 0.0),))
    for name, sizes in ARTICLE_ABLATIONS.items():
        jobs += [job for job in ablation_jobs(name, sizes) if job.pitfalls]
    cancel = (("l2", "warm"), ("queue", False))  # in the README's first picture
    jobs.append(Job("vectorized", Shape.of(1024), cancel + ABLATION_SAMPLING))
    return sorted(jobs, key=lambda job: job.problem.flops)


@hinted
def measure(
    kernels: Iterable[str | Kernel] | Kernel | str | None = None,
    shapes: Sizes = 4096,
    *,
    harness: Harness | None = None,
    against: Iterable[str | Kernel] = (),
    progress: Progress = silent,
    out: Path | None = None,
) -> Run:
    """Check, then time, each kernel at each shape, alternating with cuBLAS.

    The run is saved after every measurement. A kernel that fails the gate is in the run with its
    verdict and without a time.

    kernels: names of rungs, "cuBLAS" for the baseline against itself, your kernels and host functions; None
        for the whole ladder and cuBLAS. A single kernel needs no list.
    shapes: N for a square problem, the tuple (M, N, K) or "MxNxK"; or a list of these
    against: further baselines, rungs or kernels, which alternate with each kernel and cuBLAS in the same loop
    out: the run's file (default: a new file among this machine's runs)

    Raises NoGpu if there is no CUDA device, BadSetting, OutOfMemory, and BadRunFile for an `out` that
    exists or a folder that can't be written. Nothing is measured then.
    """
    jobs, user_kernels = jobs_of(kernels, shapes, against=against)
    return carry_out(
        jobs, harness or Harness(), user_kernels=user_kernels, progress=progress, out=out
    )


def measure_solutions(
    solutions: Sequence[Solution],
    *,
    cases: Sequence[str] = (),
    harness: Harness | None = None,
    **how: Any,
) -> Run:
    """Check, then time, each solution at each test case, alternating with its baseline.

    Memory that CuPy and PyTorch hold is freed before each case. A harness with warmup and stopping
    "tensara" measures as Tensara does. A solution that fails is in the run with its verdict and
    without a time.

    solutions: of the same problem
    cases: names or patterns such as "4096*" (default: all)
    how: options of carry_out()

    Raises what worklog.measure raises, and BadSetting.
    """
    if harness is not None and harness.l2 == "rotate":
        raise BadSetting(
            "l2 = rotate: a solution's arrays aren't copied: take l2 = flush or l2 = warm"
        )
    problem = find_problem(solutions[0].problem, solutions[0].dtype)
    names = [case["name"] for case in problem.tests[1]]
    for pattern in cases:
        if not any(fnmatch(name, pattern) for name in names):
            raise BadSetting(
                f"{problem.name} has no case {pattern!r}{meant(pattern, names)}: it has {', '.join(names)}"
            )
    if cases:
        names = [name for name in names if any(fnmatch(name, pattern) for pattern in cases)]
    typed = [replace(solution, dtype=problem.dtype) for solution in solutions]
    jobs = []
    for solution in typed:
        for name in names:
            jobs.append(Job(solution.name, None, (), ((CASE, name),), ("baseline",)))
    return carry_out(jobs, harness or Harness(), user_kernels=typed, **how)


@hinted
def ablate(
    kernel: str,
    shapes: Sizes = ABLATION_SIZES,
    *,
    harness: Harness | None = None,
    progress: Progress = silent,
    out: Path | None = None,
) -> Run:
    """Measure a rung unbiased, with each pitfall, the article's four, and all.

    The run is live if there is a GPU, else recorded, like results().

    shapes: as for measure()
    harness, progress, out: as for measure(), if the run is live

    Raises what measure() and results() raise.
    """
    if live_wanted():
        jobs = ablation_jobs(kernel, shapes)
        return carry_out(jobs, harness or Harness(), progress=progress, out=out)
    live_options = {"harness": harness not in (None, Harness()), "out": bool(out)}
    for name, is_used in live_options.items():
        if is_used:
            raise BadSetting(
                f"ablate: {name} needs a live measurement, and there is no GPU here: omit it"
            )
    require_measurable(ablation_jobs(kernel, shapes), Harness())
    run = runs.newest_run(
        lambda run: all(held_by(run, job) for job in ablation_jobs(kernel, shapes, run.unknown))
    )
    return recorded(ablation_jobs(kernel, shapes, run.unknown), run)


def results(
    kernels: Iterable[str] | str | None = None,
    shapes: Sizes = 4096,
    *,
    some: bool = False,
    progress: Progress = silent,
    **settings: Unpack[HarnessSettings],
) -> Run:
    """Measure if there is a GPU, else load a recording: the same call works everywhere.

    The run's label states whether it is live or recorded. If you name a user kernel, the result is
    the newest saved run that has all kernels. The run's notes name the rungs that the recording
    doesn't hold.

    kernels: names of rungs and "cuBLAS"; None for the whole ladder and cuBLAS
    shapes: as for measure()
    some: whether the recording may lack measurements; a note counts them
    settings: biased settings, such as l2="warm"

    Raises what measure() raises, and BadSetting or BadRunFile if a kernel that you name was never
    measured or recorded at these sizes.
    """
    check_keywords("there is no setting", settings, HarnessSettings.__annotations__)
    jobs, _ = jobs_of(kernels, shapes, tuple(settings.items()))
    rungs = {record.name for record in RUNGS} | {CUBLAS}
    user_job = next((job for job in jobs if job.kernel not in rungs), None)
    if user_job is None and live_wanted():
        return carry_out(jobs, Harness(), progress=progress)
    run = holding(jobs)
    if user_job is None:
        require_measurable(jobs, Harness())
    elif not all(held_by(run, job) for job in jobs):
        name = user_job.kernel
        names = ", ".join(dict.fromkeys(job.kernel for job in jobs)) + meant(name, rungs)
        advice = (
            "worklog.measure and %%rung measure it on a GPU; "
            f"open_run(kernels=[{name!r}]) takes any size"
        )
        raise BadSetting(f"no saved run has {names} at {user_job.shape}: {advice}")
    return recorded(jobs, run, partly=kernels is None, some=some)


def pairs(
    kernel: str, shapes: Sizes, setting: Mapping[str, Any]
) -> list[tuple[Run, Measurement, Measurement]]:
    """Return the unbiased and the biased measurement of a kernel at each shape.

    Each pair comes with the run that holds both: live if there is a GPU, else recorded. Shapes may
    come from several runs. Raises what results() raises.
    """
    unbiased, _ = jobs_of(kernel, shapes)
    biased, _ = jobs_of(kernel, shapes, tuple(setting.items()))
    require_measurable(biased, Harness())
    all_jobs = [*unbiased, *biased]
    run = carry_out(all_jobs, Harness()) if live_wanted() else holding(all_jobs)
    results = list[tuple[Run, Measurement, Measurement]]()
    for pair in zip(unbiased, biased, strict=True):
        source = run if all(held_by(run, job) for job in pair) else holding(pair)
        if not all(held_by(source, job) for job in pair):
            names = " and ".join(map(str, pair))
            raise BadRunFile(f"no run holds both {names}: measure them on a GPU")
        measurements = recorded(pair, replace(source)).measurements
        results.append((source, measurements[0], measurements[-1]))
    return results


def holding(jobs: Sequence[Job]) -> Run:
    """Return the newest run of this machine that holds all jobs.

    Without one, return a recording that holds all jobs, else the article's recording.
    """
    return runs.newest_run(lambda run: all(held_by(run, job) for job in jobs))


def held_by(run: Run, job: Job) -> list[Measurement]:
    """Return the run's measurements of a job.

    A run with a biased harness has no measurement of a job without that bias.
    """
    biased = set()
    for pitfall in PITFALLS:
        if pitfall.is_biased(run.harness.get(pitfall.setting, pitfall.unbiased)):
            biased.add(pitfall.setting)
    if not biased <= job.pitfalls.keys():
        return []
    return run.select(job.kernel, job.shape, job.pitfalls)


def recorded(jobs: Sequence[Job], run: Run, partly: bool = False, some: bool = False) -> Run:
    """Return the run with only the jobs' measurements.

    Measurements that the run lacks come from the recordings of the chapters past the ladder. Each
    such measurement has its label, which states if the rung's source has changed since.

    partly: whether kernels that were never recorded are only named in the run's notes
    some: whether measurements that no recording holds are only counted in the notes, unless the recordings
        hold no measurement at all

    Raises BadRunFile, with the recorded sizes, if a measurement is missing.
    """
    sources = [run]
    if not all(held_by(run, job) for job in jobs):
        sources += [Run.load(path, "recorded") for path in runs.recordings(CHAPTERS).values()]
    absent = _unrecorded_kernels(jobs, sources) if partly else []
    if absent:
        note = f"not in the {run.origin} run: {', '.join(absent)} (measure on a GPU)"
        run.notes = [*run.notes, note]
    recorded_jobs = [job for job in jobs if some and _source_of(job, sources)]
    if recorded_jobs and len(recorded_jobs) < len(jobs):
        for source in sources:
            if all(held_by(source, job) for job in recorded_jobs):
                run = source
                break
        lacks = f"the recording lacks {len(jobs) - len(recorded_jobs)} of these {len(jobs)} measurements"
        run.notes = [*run.notes, f"{lacks}: measure on a GPU"]
        jobs = recorded_jobs
    measurements = list[Measurement]()
    kernels = dict[str, dict[str, Any]]()
    for job in jobs:
        if job.kernel in absent:
            continue
        holder = _source_of(job, sources)
        if holder is None:
            raise BadRunFile(_missing(job, run, sources))
        if job.kernel in holder.kernels:
            kernels[job.kernel] = holder.kernels[job.kernel]
        measurements += _labelled(job, holder)
    run.measurements = measurements
    run.kernels = run.kernels | kernels
    return run


def _source_of(job: Job, sources: Sequence[Run]) -> Run | None:
    """Return the first run that holds a job."""
    for run in sources:
        if held_by(run, job):
            return run
    return None


def _unrecorded_kernels(jobs: Sequence[Job], sources: Sequence[Run]) -> list[str]:
    """Return the jobs' kernels that no run has measured."""
    measured = set()
    for run in sources:
        measured |= {m.kernel for m in run.measurements}
    return list(dict.fromkeys(job.kernel for job in jobs if job.kernel not in measured))


def _missing(job: Job, run: Run, sources: Sequence[Run]) -> str:
    """Return the message that no source holds a job, with what the sources hold."""
    rows = list[Measurement]()
    for source in sources:
        rows += [m for m in source.measurements if m.changed == job.pitfalls]
    sizes = ", ".join(map(str, sorted({m.problem for m in rows if m.kernel == job.kernel})))
    if sizes:
        advice = f" (it holds sizes {sizes}): take one of them"
    else:
        names = ", ".join(dict.fromkeys(m.kernel for m in rows)) or "another"
        advice = f" at any size: take {names}"
    return f"{job} is not in the {run.origin} run{advice}, or measure on a GPU"


def _labelled(job: Job, run: Run) -> list[Measurement]:
    """Return the run's measurements of a job, labelled if the rung's source has changed since."""
    measurements = held_by(run, job)
    if not source_changed(job.kernel, run.kernels):
        return measurements
    context = replace(run.context, remark=f" · {CHANGED}")
    return [replace(m, context=context) for m in measurements]


def missing_from(run: Run, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs that the run has no measurement of.

    Raises BadSetting if the source of a measured rung has changed since.
    """
    changed = [name for name in run.kernels if source_changed(name, run.kernels)]
    if changed:
        raise BadSetting(
            f"the source of {', '.join(changed)} has changed since {run.path} was measured: measure anew"
        )
    return [job for job in jobs if not held_by(run, job)]


def live_wanted() -> bool:
    """Return whether to measure: as WORKLOG_SOURCE states, else if there is a GPU.

    Raises NoGpu if live is forced without a GPU.
    """
    if runs.forced_source() == "live":
        require_gpu("unset WORKLOG_SOURCE=live to take the recording")
    return why_not_live() is None


def why_not_live() -> str | None:
    """Return why nothing can be measured here, or None."""
    return "WORKLOG_SOURCE=recorded" if runs.forced_source() == "recorded" else gpu_reason()


def carry_out(
    jobs: Sequence[Job],
    harness: Harness,
    *,
    user_kernels: Sequence[Kernel] = (),
    progress: Progress = silent,
    out: Path | None = None,
    resumed: Run | None = None,
    timeout_s: float = TIMEOUT_S,
    stop: threading.Event | None = None,
    command: Sequence[str] | None = None,
) -> Run:
    """Make each measurement in order, in child processes, and save the run after each.

    A kernel that hangs, crashes, exits or loses the GPU's context fails, and the rest is measured in a fresh process;
    each host function gets a process that measures nothing else. An interrupt ends the child and keeps the finished
    measurements. CUDA is not initialised in this process.

    user_kernels: those that jobs name.
    out: the file of a new run (default: one among this machine's runs).
    resumed: a run whose file gets these measurements, instead of a new run.
    timeout_s: seconds that a measurement may take beyond its budget before it counts as hung.
    stop: ends the run when another thread sets it.
    command: the child's command line (default: worklog.runner.child).

    Raises what measure() raises, Interrupted, NoGpu while another run measures here, and BadSetting if this machine's
    setup differs from that of the resumed run.
    """
    kernels = require_measurable(jobs, harness, user_kernels)
    if command is None:
        require_gpu(*([CHECK_ONLY] if kernels else []))
    timeout_s = limit_s(jobs, harness, timeout_s)
    path = out or runs.new_path()
    kept_count = 0
    if resumed is not None:
        resumed.complete = False
        path = resumed.save()  # without its end, or a line that was cut short
        kept_count = len(resumed.measurements)
    writer = _Writer(path, resumed)
    first = 0
    with runs.claimed(path) if resumed is None else nullcontext():
        try:
            while first < len(jobs):
                together = _first_group(jobs[first:], kernels)
                order = {
                    "do": "measure",
                    "jobs": together,
                    "harness": harness,
                    "user_kernels": kernels,
                }
                answers = run_child(
                    order,
                    progress,
                    first=first,
                    total=len(jobs),
                    timeout_s=timeout_s,
                    stop=stop,
                    command=command,
                )
                is_resumed = resumed is not None and first == 0
                end = writer.write(answers, jobs[first], is_resumed=is_resumed)
                count = len(writer.run.measurements) - kept_count if writer.run is not None else 0
                is_cut_short = count < first + len(together)
                if writer.run is None or (is_cut_short and end.kind in ("", "done")):
                    raise end.error()
                if is_cut_short:
                    stage = end.stage(kernels.get(jobs[count].kernel))
                    writer.run.add(jobs[count].failed(Verdict((stage,), None)))
                elif end.kind != "done":
                    writer.run.add_note(f"the process of {together[-1]} ended early: {end}")
                first = len(writer.run.measurements) - kept_count
        except KeyboardInterrupt as interrupt:
            outcome = "no measurement was finished, so nothing is saved"
            if writer.run is not None and writer.run.measurements:
                finished = len(writer.run.measurements)
                total = kept_count + len(jobs)
                outcome = f"{finished} of {total} measurements are kept in {writer.run.path}"
            raise Interrupted(f"interrupted: {outcome}") from interrupt
    run = writer.run
    assert run is not None
    run.end()
    progress(len(jobs), len(jobs), "done")
    return run


@dataclass
class _Writer:
    """Writes the answers of child processes to a run file."""

    path: Path
    run: Run | None  # None until a process is ready

    def write(self, answers: Generator[Any, Any], job: Job, *, is_resumed: bool) -> Ended:
        """Write a process's answers as they come, and return how the process ended.

        job: the first of the process
        is_resumed: whether an earlier command has begun the run
        """
        with closing(answers):
            for answer in answers:
                if isinstance(answer, Ended):
                    end = answer
                elif answer["is"] == "ready" and self.run is None:
                    self.run = Run.begin(answer["head"], self.path)
                elif answer["is"] == "ready" and self.run is not None:
                    _go_on(self.run, answer["head"], job, is_resumed=is_resumed)
                elif answer["is"] == "measured" and self.run is not None:
                    self.run.add(answer["line"], answer["description"])
        return end


def _first_group(jobs: Sequence[Job], user_kernels: Mapping[str, Kernel]) -> list[Job]:
    """Return the first jobs, as many as share a process.

    A job with a host function, also as a baseline, shares its process only with jobs of the same kernel.
    """

    def process(job: Job) -> str:
        names = [name for name in (job.kernel, *job.baselines) if name in user_kernels]
        return job.kernel if any(user_kernels[name].host for name in names) else ""

    _, group = next(groupby(jobs, process))
    return list(group)


def _go_on(run: Run, head: Sequence[str], job: Job, *, is_resumed: bool) -> None:
    """Note that the run continues in a fresh process, from this job on.

    head: the head's lines of the fresh process
    is_resumed: whether the process belongs to a later command. Raises BadSetting if its setup differs.
    """
    if is_resumed:
        resuming = Run.of_head(head)
        run.require_same_setup(resuming)
        run.add_note(f"from {job} on: resumed at {resuming.created[:16]}, calibrated again")
    elif run.measurements:
        run.add_note(f"from {job} on: in a fresh process, calibrated again")


def limit_s(jobs: Sequence[Job], harness: Harness, timeout_s: float = TIMEOUT_S) -> float:
    """Return the seconds after which a measurement of any of the jobs counts as hung.

    They are the longest budget, the time of the gate and timeout_s.
    """
    budgets_s = [harness.but(**dict(job.changed)).budget_s for job in jobs]
    sizes_bytes = [job.shape.compulsory_bytes for job in jobs if job.shape]
    timeout_s += max([harness.budget_s, *budgets_s])
    return timeout_s + GATE_S_PER_BYTE * max([0, *sizes_bytes])


def require_measurable(
    jobs: Sequence[Job], harness: Harness, user_kernels: Iterable[Kernel] = ()
) -> dict[str, Kernel]:
    """Return the user kernels by name.

    Raises BadSetting for each mistake, before anything is measured.
    """
    if not jobs:
        raise BadSetting("nothing to measure: name at least one kernel and one size")
    by_name: dict[str, Kernel] = {}
    for kernel in user_kernels:
        if kernel in RUNGS:
            continue
        if kernel.name in by_name or kernel.name in (CUBLAS, *(record.name for record in RUNGS)):
            raise BadSetting(f"two kernels are called {kernel.name}: rename one")
        by_name[kernel.name] = kernel
    for job in jobs:
        for name in job.against if job.shape else ():
            baseline = by_name.get(name) or rung(name)
            baseline.check(job.problem)
            if not baseline.domain.alpha:
                raise BadSetting(f"{name} can't be a baseline: it must take alpha, to compute -A B")
        if job.kernel != CUBLAS and job.shape:
            (by_name.get(job.kernel) or rung(job.kernel)).check(job.problem)
        harness.but(**dict(job.changed))
    return by_name
