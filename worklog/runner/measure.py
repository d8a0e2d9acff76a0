"""The public calls that measure: each makes jobs, and carries them out or reads them from a run.

A job goes through the gate, then through the harness, into a Run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Unpack

from worklog.benchmarks import Benchmark
from worklog.errors import BadRunFile, BadSetting, check_keywords, hinted, listed, meant
from worklog.kernel import RUNGS, Kernel
from worklog.kernel.solution import Solution, find_problem
from worklog.problem import Point, Sizes
from worklog.runner import execute, sources
from worklog.runner.execute import order_of
from worklog.runner.job import ABLATION_SIZES, Job, ablation_jobs, jobs_of
from worklog.runs import CUBLAS, Measurement, Run
from worklog.runs.sources import newest_run
from worklog.runs.text import Progress, silent
from worklog.settings import Harness, HarnessSettings


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

    kernels: names of rungs, "cuBLAS" for the baseline against itself, your kernels and host
        functions; None for the whole ladder and cuBLAS. A single kernel needs no list.
    shapes: N for a square problem, the tuple (M, N, K) or "MxNxK"; or a list of these. "512 batch
        8" computes 8 products in a launch, for kernels that take `int batch`.
    against: further baselines, rungs, kernels or "cuBLASLt", which alternate with each kernel and
        cuBLAS in the same loop. "cuBLASLt" is the fastest of its heuristic's first 16 algorithms,
        "cuBLASLt:N" of the first N; the measurement's `choices` has the algorithm.
    out: the run's file (default: a new file among this machine's runs)

    Raises NoGpu if there is no CUDA device, BadSetting, OutOfMemory, and BadRunFile for an `out`
    that exists or a folder that can't be written. Nothing is measured then.
    """
    jobs, user_kernels = jobs_of(kernels, shapes, against=against)
    order = order_of(jobs, harness or Harness(), user_kernels)
    return execute.carry_out(order, progress=progress, out=out)


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
                f"{problem.name} has no case {pattern!r}{meant(pattern, names)}: it has "
                f"{', '.join(names)}"
            )
    if cases:
        names = [name for name in names if any(fnmatch(name, pattern) for pattern in cases)]
    typed = [replace(solution, dtype=problem.dtype) for solution in solutions]
    jobs = []
    for solution in typed:
        for name in names:
            point = Point.of_case(problem.name, name)
            jobs.append(Job(solution.name, point, against=("baseline",)))
    return execute.carry_out(order_of(jobs, harness or Harness(), typed), **how)


def measure_benchmarks(
    benchmarks: Sequence[Benchmark],
    against: Benchmark | Sequence[Benchmark] | None = None,
    *,
    harness: Harness | None = None,
    progress: Progress = silent,
    out: Path | None = None,
) -> Run:
    """Time each benchmark at each of its points into one run.

    against: benchmarks that are timed in the same loop at the same values
    harness, out: as for worklog.measure

    Raises what worklog.measure raises, and BadSetting for a baseline that lacks an axis.
    """
    baselines = [] if against is None else listed("against", against)
    for baseline in baselines:
        if not isinstance(baseline, Benchmark):
            raise BadSetting(
                f"against: give benchmarks, as @worklog.bench declares them, not {baseline!r:.60}"
            )
    names = tuple(baseline.name for baseline in baselines)
    others = [benchmark for benchmark in benchmarks if benchmark.name not in names]
    if not others:
        raise BadSetting(f"nothing to compare: {', '.join(names)} is the baseline of itself")
    jobs = list[Job]()
    for benchmark in others:
        for baseline in baselines:
            _require_same_axes(benchmark, baseline)
        jobs += [Job(benchmark.name, point, against=names) for point in benchmark.points()]
    kernels = [benchmark.kernel for benchmark in (*others, *baselines)]
    order = order_of(jobs, harness or Harness(), kernels)
    return execute.carry_out(order, progress=progress, out=out)


def _require_same_axes(benchmark: Benchmark, baseline: Benchmark) -> None:
    """Raise BadSetting unless a benchmark and its baseline have the same axes."""
    axes = {axis.name for axis in benchmark.space.axes}
    lacking = axes ^ {axis.name for axis in baseline.space.axes}
    if lacking:
        names = ", ".join(sorted(lacking))
        raise BadSetting(f"{benchmark.name} against {baseline.name}: only one has an axis {names}")


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
    order = order_of(ablation_jobs(kernel, shapes), harness or Harness())
    if sources.live_wanted():
        return execute.carry_out(order, progress=progress, out=out)
    live_options = {"harness": harness not in (None, Harness()), "out": bool(out)}
    for name, is_used in live_options.items():
        if is_used:
            raise BadSetting(
                f"ablate: {name} needs a live measurement, and there is no GPU here: omit it"
            )
    run = newest_run(
        lambda run: all(
            sources.held_by(run, job) for job in ablation_jobs(kernel, shapes, run.unknown)
        )
    )
    return sources.recorded(ablation_jobs(kernel, shapes, run.unknown), run)


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
    if user_job is None:
        order = order_of(jobs, Harness())
        if sources.live_wanted():
            return execute.carry_out(order, progress=progress)
    run = sources.holding(jobs)
    if user_job is not None and not all(sources.held_by(run, job) for job in jobs):
        name = user_job.kernel
        names = ", ".join(dict.fromkeys(job.kernel for job in jobs)) + meant(name, rungs)
        advice = (
            "worklog.measure and %%rung measure it on a GPU; "
            f"open_run(kernels=[{name!r}]) takes any size"
        )
        raise BadSetting(f"no saved run has {names} at {user_job.point}: {advice}")
    return sources.recorded(jobs, run, partly=kernels is None, some=some)


def pairs(
    kernel: str, shapes: Sizes, setting: Mapping[str, Any]
) -> list[tuple[Run, Measurement, Measurement]]:
    """Return the unbiased and the biased measurement of a kernel at each shape.

    Each pair comes with the run that holds both: live if there is a GPU, else recorded. Shapes may
    come from several runs. Raises what results() raises.
    """
    unbiased, _ = jobs_of(kernel, shapes)
    biased, _ = jobs_of(kernel, shapes, tuple(setting.items()))
    order = order_of([*unbiased, *biased], Harness())
    if sources.live_wanted():
        run = execute.carry_out(order)
    else:
        run = sources.holding([*unbiased, *biased])
    results = list[tuple[Run, Measurement, Measurement]]()
    for pair in zip(unbiased, biased, strict=True):
        source = run if all(sources.held_by(run, job) for job in pair) else sources.holding(pair)
        if not all(sources.held_by(source, job) for job in pair):
            names = " and ".join(map(str, pair))
            raise BadRunFile(f"no run holds both {names}: measure them on a GPU")
        measurements = sources.recorded(pair, replace(source)).measurements
        results.append((source, measurements[0], measurements[-1]))
    return results
