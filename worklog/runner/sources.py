"""Where results come from: a measurement, a saved run, or a recording of the package."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from worklog import runs
from worklog.errors import BadRunFile, BadSetting
from worklog.gpu.device import gpu_reason, require_gpu
from worklog.kernel import RUNGS, Kernel
from worklog.kernel.ladder import source_changed
from worklog.runner.job import Job, jobs_of
from worklog.runs import CUBLAS, Measurement, Run
from worklog.runs.sources import CHAPTERS, forced_source, load_recording, newest_run
from worklog.settings import PITFALLS

CHANGED = "source changed since"  # in the label of a recorded time


def live_wanted() -> bool:
    """Return whether to measure: as WORKLOG_SOURCE states, else if there is a GPU.

    Raises NoGpu if live is forced without a GPU.
    """
    if forced_source() == "live":
        require_gpu("unset WORKLOG_SOURCE=live to take the recording")
    return why_not_live() is None


def why_not_live() -> str | None:
    """Return why nothing can be measured here, or None."""
    return "WORKLOG_SOURCE=recorded" if forced_source() == "recorded" else gpu_reason()


def holding(jobs: Sequence[Job]) -> Run:
    """Return the newest run of this machine that holds all jobs.

    Without one, return a recording that holds all jobs, else the article's recording.
    """
    return newest_run(lambda run: all(held_by(run, job) for job in jobs))


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
    some: whether measurements that no recording holds are only counted in the notes, unless the
        recordings hold no measurement at all

    Raises BadRunFile, with the recorded sizes, if a measurement is missing.
    """
    sources = [run]
    if not all(held_by(run, job) for job in jobs):
        sources += map(load_recording, runs.recordings(CHAPTERS).values())
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
        lacks = (
            f"the recording lacks {len(jobs) - len(recorded_jobs)} of these {len(jobs)} "
            "measurements"
        )
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


def at_4096(rungs: Iterable[Kernel] = RUNGS) -> Run:
    """Return the recordings of these rungs, if there are any, and of cuBLAS at 4096."""
    planned, _ = jobs_of([*(rung.name for rung in rungs), CUBLAS], [4096])
    return recorded(planned, runs.recorded_run(), partly=True)


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
            f"the source of {', '.join(changed)} has changed since {run.path} was measured: "
            "measure anew"
        )
    return [job for job in jobs if not held_by(run, job)]
