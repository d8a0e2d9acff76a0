"""Measure: the public calls, and the jobs that they make. Gate, then harness, then a Run; in child processes, and on
disk after each measurement.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import astuple, dataclass, replace
from fnmatch import fnmatch
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from worklog import runs
from worklog.errors import BadSetting, Interrupted, listed, meant
from worklog.gpu.device import gpu_reason, require_gpu
from worklog.kernel import LADDER, RUNGS, Kernel, Solution, find_problem, rung, source_changed
from worklog.kernel.trial import completed
from worklog.problem import MOST_VALUES, Shape, Value
from worklog.runner.child import Ended, run_child
from worklog.runs import CHAPTERS, CUBLAS, BadRunFile, Measurement, Progress, Run, Verdict, silent
from worklog.settings import HOW_ONE_MEASURES, PITFALLS, Harness

Size = Shape | int | str | Sequence[int]
Changes = tuple[tuple[str, Any], ...]
CASE = "case"  # the axis of a problem
ARTICLE_SIZES = ABLATION_SIZES = (256, 512, 1024, 2048, 4096)
ABLATION_RUNGS = ("naive", "vectorized", "warptiled")
ABLATION_SAMPLING: Changes = (("most_samples", 200), ("budget_s", 2.0), ("hot_ms", 0.0))
# A host clock scatters between processes (worklog.runs.estimates.HOST_HALF), which no number of samples in one removes.
HOST_SAMPLING: Changes = (("most_samples", 200), ("budget_s", 0.3), ("hot_ms", 0.0))
GRID_SIZES = (256, 1024, 4096)
# At 4096 a launch of naive takes 0.28 s on an H200, so that its twelve settings alone would take 40 s.
ARTICLE_ABLATIONS = {"naive": GRID_SIZES[:2], "vectorized": GRID_SIZES, "warptiled": GRID_SIZES}
SECONDS_EACH = 1.5  # gate and timing of one kernel at 4096 on an H200, from the stages' seconds in the recording
TIMEOUT_S = 120.0
CHANGED = "source changed since"  # in the label of a recorded time
CHECK_ONLY = "`worklog check FILE.cu` checks a .cu file on the emulator"
GATE_S_PER_BYTE = 4e-8  # of A, B and C: ten times what the gate takes on the host


class Skipped(Exception):
    """A benchmark or a solution isn't measured at a point; the message says why."""


@dataclass(frozen=True)
class Job:
    """One loop to check and time: a kernel's name (CUBLAS for cuBLAS itself), a shape, and what differs from the
    run's harness. Without a shape, a declared benchmark or a solution at the values of its axes. against: baselines
    that take turns with it in the loop, by name; of a matrix product, those beside cuBLAS.
    """

    kernel: str
    shape: Shape | None
    changed: Changes = ()
    axes: tuple[tuple[str, Value], ...] = ()
    against: tuple[str, ...] = ()

    @property
    def baselines(self) -> tuple[str, ...]:
        """Every baseline, the one that its ratio is against first."""
        return self.against if self.shape is None else (CUBLAS, *self.against)

    @property
    def problem(self) -> Shape:
        """The shape of a matrix product. Raises BadSetting for anything else."""
        if self.shape is None:
            raise BadSetting(f"{self} isn't a product of matrices: it has no M, N and K")
        return self.shape

    @property
    def pitfalls(self) -> dict[str, Any]:
        """The changed settings that belong to a pitfall; the others say how long to measure."""
        settings = {pitfall.setting for pitfall in PITFALLS}
        return {name: value for name, value in self.changed if name in settings}

    def without_time(
        self, status: Literal["failed", "skipped"], reason: str = "", verdict: Verdict | None = None
    ) -> Measurement:
        """Its measurement if it is skipped or has failed."""
        against: dict[str, Any] = dict.fromkeys(self.baselines)
        shape = None if self.shape is None else astuple(self.shape)
        axes = dict(self.axes)
        changed = self.pitfalls
        return Measurement(
            self.kernel, shape, status, reason or None, axes, changed, verdict, against=against
        )

    def failed(self, verdict: Verdict) -> Measurement:
        """Its measurement where the gate fails the kernel."""
        return self.without_time("failed", f"failed at {verdict.reason}", verdict)

    def __str__(self) -> str:
        biased = ", ".join(f"{name}={value}" for name, value in self.pitfalls.items())
        return self.without_time("skipped").title + (f" with {biased}" if biased else "")


def jobs_of(
    kernels: Iterable[str | Kernel] | Kernel | str | None,
    shapes: Iterable[Size] | Size,
    changed: Changes = (),
    against: Iterable[str | Kernel] = (),
) -> tuple[list[Job], list[Kernel]]:
    """Each kernel at each shape once, shape by shape, and those of the kernels that aren't given by name.

    kernels: None for the whole ladder and cuBLAS. One kernel or one size needs no list around it. changed: settings
    that differ from the run's harness. against: further baselines in each job's loop, but for the kernel itself.
    Raises BadSetting, for more jobs than MOST_VALUES too.
    """
    chosen = [r.name for r in LADDER] + [CUBLAS] if kernels is None else listed("kernels", kernels)
    others = listed("against", against)
    for given in [*chosen, *others]:
        if not isinstance(given, str | Kernel):
            advice = "give a rung's name, Kernel.from_file(…) or from_function(…)"
            raise BadSetting(f"{given!r:.60} isn't a kernel: {advice}")
    chosen, others = (
        [given if isinstance(given, str) else completed(given) for given in group]
        for group in (chosen, others)
    )
    sides = dict.fromkeys(Shape.of(size) for size in listed("shapes", shapes))
    names, beside = (
        dict.fromkeys(k if isinstance(k, str) else k.name for k in of) for of in (chosen, others)
    )
    if len(names) * len(sides) > MOST_VALUES:
        count = (
            f"{len(names)} kernels x {len(sides)} sizes = {len(names) * len(sides)} measurements"
        )
        raise BadSetting(f"{count}: more than {MOST_VALUES}; name fewer kernels or sizes")
    jobs = [
        Job(
            name,
            shape,
            changed,
            against=tuple(other for other in beside if other not in (name, CUBLAS)),
        )
        for shape in sides
        for name in names
    ]
    return jobs, [
        *dict.fromkeys(kernel for kernel in [*chosen, *others] if not isinstance(kernel, str))
    ]


def ablation_jobs(
    kernel: str, shapes: Iterable[Size] | Size, unknown: Collection[str] = ()
) -> list[Job]:
    """The unbiased measurement at each shape, and one for each pitfall that changes how samples are taken; the others
    (statistic, offset, roof) are computed from the unbiased samples. unknown: settings that the run is older than.
    """
    known = [g for g in PITFALLS if g.setting not in unknown]
    groups = [[g] for g in known if g.resampled]
    groups += [[g for g in known if g.article], [g for g in known if g.setting in HOW_ONE_MEASURES]]
    biased: list[Changes] = [tuple((g.setting, g.biased[0]) for g in group) for group in groups]
    at = [Shape.of(size) for size in listed("shapes", shapes)]
    jobs = [Job(kernel, shape) for shape in at]
    for shape in at:
        for changes in biased:
            by_host = ("timer", "host") in changes
            sampling = HOST_SAMPLING if by_host else ABLATION_SAMPLING
            jobs.append(Job(kernel, shape, changes + sampling))
    return jobs


def article_jobs() -> list[Job]:
    """What the article's figures show: the ladder with cuBLAS, and the ablation of three rungs, without hot times."""
    jobs, _ = jobs_of(None, ARTICLE_SIZES, (("hot_ms", 0.0),))
    for name, of_ablation in ARTICLE_ABLATIONS.items():
        jobs += [job for job in ablation_jobs(name, of_ablation) if job.pitfalls]
    cancel = (("l2", "warm"), ("queue", False))  # in the README's first picture
    jobs.append(Job("vectorized", Shape.of(1024), cancel + ABLATION_SAMPLING))
    return sorted(jobs, key=lambda job: job.problem.flops)


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
    """Check, then time, each solution at each test case of the one problem that they solve, beside its baseline. cases:
    names or patterns such as "4096*" (default: all). how: for carry_out.

    Memory that CuPy and PyTorch hold is given back before each case. A harness with warmup and stopping "tensara"
    measures as Tensara does. A solution that fails is in the run with its verdict and without a time. Raises what
    worklog.measure raises, and BadSetting.
    """
    if harness is not None and harness.l2 == "rotate":
        raise BadSetting(
            "l2 = rotate: a solution's arrays aren't copied: take l2 = flush or l2 = warm"
        )
    posed = find_problem(solutions[0].problem, solutions[0].dtype)
    names = [words["name"] for words in posed.tests[1]]
    for pattern in cases:
        if not any(fnmatch(name, pattern) for name in names):
            raise BadSetting(
                f"{posed.name} has no case {pattern!r}{meant(pattern, names)}: it has {', '.join(names)}"
            )
    chosen = [
        name for name in names if not cases or any(fnmatch(name, pattern) for pattern in cases)
    ]
    own = [replace(solution, dtype=posed.dtype) for solution in solutions]
    jobs = [
        Job(solution.name, None, (), ((CASE, name),), ("baseline",))
        for solution in own
        for name in chosen
    ]
    return carry_out(jobs, harness or Harness(), user_kernels=own, **how)


def ablate(kernel: str, shapes: Iterable[Size] | Size = ABLATION_SIZES, **how: Any) -> Run:
    """One rung with the unbiased harness, then with each pitfall alone, with the article's four, and with all.

    Live if there is a GPU, else recorded, like results(). how: of a live run, as for measure(): harness, progress, out.
    Raises what measure() and results() raise.
    """
    if live_wanted():
        return carry_out(
            ablation_jobs(kernel, shapes), how.pop("harness", None) or Harness(), **how
        )
    for name, is_given in (
        ("harness", how.get("harness") not in (None, Harness())),
        ("out", how.get("out")),
    ):
        if is_given:
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
    shapes: Iterable[Size] | Size = (4096,),
    *,
    some: bool = False,
    progress: Progress = silent,
    **settings: Any,
) -> Run:
    """Live if there is a GPU, else recorded: the same call everywhere. The run's label states which it was.

    kernels: names of rungs and "cuBLAS"; None for the whole ladder and cuBLAS. With a user kernel's name among them,
    the newest saved run that has all of them. The run's notes name the rungs that the recording doesn't hold. shapes:
    as for measure(). some: the recording need not hold all measurements; a note counts the others. settings: biased
    ones, such as l2="warm". Raises what measure() raises, and BadSetting or BadRunFile if a kernel that you name was
    never measured or recorded at these sizes.
    """
    jobs, _ = jobs_of(kernels, shapes, tuple(settings.items()))
    rungs = {known.name for known in RUNGS} | {CUBLAS}
    own = next((job for job in jobs if job.kernel not in rungs), None)
    if own is None and live_wanted():
        return carry_out(jobs, Harness(), progress=progress)
    run = holding(jobs)
    if own is None:
        require_measurable(jobs, Harness())
    elif not all(held_by(run, job) for job in jobs):
        names = ", ".join(dict.fromkeys(job.kernel for job in jobs)) + meant(own.kernel, rungs)
        advice = f"worklog.measure and %%rung measure it on a GPU; open_run(kernels=[{own.kernel!r}]) takes any size"
        raise BadSetting(f"no saved run has {names} at {own.shape}: {advice}")
    return recorded(jobs, run, partly=kernels is None, some=some)


def pairs(
    kernel: str, shapes: Iterable[Size] | Size, setting: Mapping[str, Any]
) -> list[tuple[Run, Measurement, Measurement]]:
    """Return the unbiased and the biased measurement of a kernel at each shape, with the run that holds both: live if
    there is a GPU, else recorded. Shapes may come from several runs. Raises what results() raises.
    """
    unbiased, _ = jobs_of(kernel, shapes)
    biased, _ = jobs_of(kernel, shapes, tuple(setting.items()))
    require_measurable(biased, Harness())
    together = [*zip(unbiased, biased, strict=True)]
    every = [*unbiased, *biased]
    run = carry_out(every, Harness()) if live_wanted() else holding(every)
    found = list[tuple[Run, Measurement, Measurement]]()
    for pair in together:
        of_pair = run if all(held_by(run, job) for job in pair) else holding(pair)
        if not all(held_by(of_pair, job) for job in pair):
            names = " and ".join(map(str, pair))
            raise BadRunFile(f"no run holds both {names}: measure them on a GPU")
        measurements = recorded(pair, replace(of_pair)).measurements
        found.append((of_pair, measurements[0], measurements[-1]))
    return found


def holding(jobs: Sequence[Job]) -> Run:
    """The newest run of this machine that holds all of these, else a recording that does, else the article's."""
    return runs.newest_run(lambda run: all(held_by(run, job) for job in jobs))


def held_by(run: Run, job: Job) -> list[Measurement]:
    """The run's measurements of a job. A run with a biased harness has none of a job without that bias."""
    biased = {g.setting for g in PITFALLS if g.is_biased(run.harness.get(g.setting, g.unbiased))}
    return run.select(job.kernel, job.shape, job.pitfalls) if biased <= job.pitfalls.keys() else []


def recorded(jobs: Sequence[Job], run: Run, partly: bool = False, some: bool = False) -> Run:
    """The run with the jobs' measurements only. What it doesn't hold comes from the recordings of the chapters past the
    ladder, each measurement with its label, which states that the rung's source has changed since. partly: kernels that
    were never recorded are only named in the run's notes. some: measurements that no recording holds are counted there,
    unless none is held. Raises BadRunFile, naming the recorded sizes, if a measurement is missing.
    """
    sources = [run]
    if not all(held_by(run, job) for job in jobs):
        sources += [Run.load(path, "recorded") for path in runs.recordings(CHAPTERS).values()]
    known = {m.kernel for held in sources for m in held.measurements}
    absent = list(dict.fromkeys(job.kernel for job in jobs if partly and job.kernel not in known))
    if absent:
        run.notes = [
            *run.notes,
            f"not in the {run.origin} run: {', '.join(absent)} (measure on a GPU)",
        ]
    there = [job for job in jobs if some and any(held_by(held, job) for held in sources)]
    if there and len(there) < len(jobs):
        run = next((held for held in sources if all(held_by(held, job) for job in there)), run)
        lacks = f"the recording lacks {len(jobs) - len(there)} of these {len(jobs)} measurements"
        run.notes, jobs = [*run.notes, f"{lacks}: measure on a GPU"], there
    measurements = list[Measurement]()
    kernels = dict[str, dict[str, Any]]()
    for job in jobs:
        if job.kernel in absent:
            continue
        by = next((held for held in sources if held_by(held, job)), None)
        if by is None:
            rows = [m for held in sources for m in held.measurements if m.changed == job.pitfalls]
            sizes = ", ".join(map(str, sorted({m.problem for m in rows if m.kernel == job.kernel})))
            others = ", ".join(dict.fromkeys(m.kernel for m in rows)) or "another"
            advice = (
                f" (it holds sizes {sizes}): take one of them"
                if sizes
                else f" at any size: take {others}"
            )
            raise BadRunFile(f"{job} is not in the {run.origin} run{advice}, or measure on a GPU")
        kernels |= {job.kernel: by.kernels[job.kernel]} if job.kernel in by.kernels else {}
        remark = f" · {CHANGED}" if source_changed(job.kernel, by.kernels) else ""
        of_job = held_by(by, job)
        measurements += (
            [replace(m, context=replace(by.context, remark=remark)) for m in of_job]
            if remark
            else of_job
        )
    run.measurements, run.kernels = measurements, run.kernels | kernels
    return run


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
    """Whether to measure: WORKLOG_SOURCE, else whether there is a GPU. Raises NoGpu if live is forced without one."""
    if runs.forced_source() == "live":
        require_gpu("unset WORKLOG_SOURCE=live to take the recording")
    return why_not_live() is None


def why_not_live() -> str | None:
    """Why nothing can be measured here, or None."""
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
    own = require_measurable(jobs, harness, user_kernels)
    if command is None:
        require_gpu(*([CHECK_ONLY] if own else []))
    timeout_s = limit_s(jobs, harness, timeout_s)
    run = resumed
    before = 0
    path = out or runs.new_path()
    if resumed is not None:
        resumed.complete = False
        path = resumed.save()  # without its end, or a line that was cut short
        before = len(resumed.measurements)
    first = 0

    def home(job: Job) -> str:
        """Jobs with the same one share a process; one with a host function, also as a baseline, has its own."""
        kernels = [own[name] for name in (job.kernel, *job.baselines) if name in own]
        return job.kernel if any(kernel.host for kernel in kernels) else ""

    with runs.claimed(path) if resumed is None else nullcontext():
        try:
            while first < len(jobs):
                some = next([*together] for _, together in groupby(jobs[first:], home))
                order = {"do": "measure", "jobs": some, "harness": harness, "user_kernels": own}
                how: dict[str, Any] = {"timeout_s": timeout_s, "stop": stop, "command": command}
                with closing(
                    run_child(order, progress, first=first, total=len(jobs), **how)
                ) as answers:
                    for answer in answers:
                        if isinstance(answer, Ended):
                            end = answer
                        elif answer["is"] == "ready" and run is None:
                            run = Run.begin(answer["head"], path)
                        elif answer["is"] == "ready" and run is not None:
                            _go_on(
                                run,
                                answer["head"],
                                jobs[first],
                                is_resumed=run is resumed and first == 0,
                            )
                        elif answer["is"] == "measured" and run:
                            run.add(answer["line"], answer["description"])
                done = len(run.measurements) - before if run else 0
                if run is None or (done < first + len(some) and end.kind in ("", "done")):
                    raise end.error()
                if done < first + len(some):
                    stage = end.stage(own.get(jobs[done].kernel))
                    run.add(jobs[done].failed(Verdict((stage,), None)))
                elif end.kind != "done":
                    run.add_note(f"the process of {some[-1]} ended early: {end}")
                first = len(run.measurements) - before
        except KeyboardInterrupt as interrupt:
            kept = "no measurement was finished, so nothing is saved"
            if run is not None and run.measurements:
                finished = len(run.measurements)
                kept = f"{finished} of {before + len(jobs)} measurements are kept in {run.path}"
            raise Interrupted(f"interrupted: {kept}") from interrupt
    assert run is not None
    run.end()
    progress(len(jobs), len(jobs), "done")
    return run


def _go_on(run: Run, head: Sequence[str], job: Job, *, is_resumed: bool) -> None:
    """Note that the run goes on in a fresh process, from this job on.

    head: the lines of the process.
    is_resumed: whether the process belongs to a later command. Raises BadSetting if its setup differs.
    """
    if is_resumed:
        now = Run.of_head(head)
        run.require_same_setup(now)
        run.add_note(f"from {job} on: resumed at {now.created[:16]}, calibrated again")
    elif run.measurements:
        run.add_note(f"from {job} on: in a fresh process, calibrated again")


def limit_s(jobs: Sequence[Job], harness: Harness, timeout_s: float = TIMEOUT_S) -> float:
    """Seconds after which a measurement of these counts as hung: their longest budgets beside timeout_s."""
    timeout_s += max(
        [harness.budget_s, *(harness.but(**dict(job.changed)).budget_s for job in jobs)]
    )
    return timeout_s + GATE_S_PER_BYTE * max(
        [0, *(job.shape.compulsory_bytes for job in jobs if job.shape)]
    )


def require_measurable(
    jobs: Sequence[Job], harness: Harness, user_kernels: Iterable[Kernel] = ()
) -> dict[str, Kernel]:
    """The user kernels by name. Raises BadSetting for each mistake, before anything is measured."""
    if not jobs:
        raise BadSetting("nothing to measure: name at least one kernel and one size")
    own: dict[str, Kernel] = {}
    for kernel in user_kernels:
        if kernel in RUNGS:
            continue
        if kernel.name in own or kernel.name in (CUBLAS, *(record.name for record in RUNGS)):
            raise BadSetting(f"two kernels are called {kernel.name}: rename one")
        own[kernel.name] = kernel
    for job in jobs:
        for name in job.against if job.shape else ():
            baseline = own.get(name) or rung(name)
            baseline.check(job.problem)
            if not baseline.domain.alpha:
                raise BadSetting(f"{name} can't be a baseline: it must take alpha, to compute -A B")
        if job.kernel != CUBLAS and job.shape:
            (own.get(job.kernel) or rung(job.kernel)).check(job.problem)
        harness.but(**dict(job.changed))
    return own
