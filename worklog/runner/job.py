"""Jobs: what a run checks and times, and the jobs of the package's own runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from worklog.errors import BadSetting, listed
from worklog.kernel import LADDER, Kernel
from worklog.kernel.trial import completed
from worklog.problem import Point, Shape, Size, Sizes
from worklog.problem.axes import MAX_VALUES
from worklog.problem.formats import SINGLE, Types
from worklog.runs import CUBLAS, CUBLASLT, Measurement, Verdict
from worklog.settings import HOW_ONE_MEASURES, PITFALLS

Changes = tuple[tuple[str, Any], ...]
ARTICLE_SIZES = ABLATION_SIZES = [256, 512, 1024, 2048, 4096]
ABLATION_RUNGS = ("naive", "vectorized", "warptiled")
ABLATION_SAMPLING: Changes = (("most_samples", 200), ("budget_s", 2.0), ("hot_ms", 0.0))
# A host clock scatters between processes (worklog.runs.statistics.HOST_HALF). More samples in one
# process don't remove this scatter.
HOST_SAMPLING: Changes = (("most_samples", 200), ("budget_s", 0.3), ("hot_ms", 0.0))
GRID_SIZES = [256, 1024, 4096]
# At 4096 a launch of naive takes 0.28 s on an H200, so that its twelve settings alone would take
# 40 s.
ARTICLE_ABLATIONS = {"naive": GRID_SIZES[:2], "vectorized": GRID_SIZES, "warptiled": GRID_SIZES}
ALGORITHMS = 16  # of cuBLASLt's heuristic, unless the baseline's name states a number
MOST_ALGORITHMS = 100
# Gate and timing of one kernel at 4096 on an H200, from the stages' seconds in the recording.
SECONDS_EACH = 1.5


@dataclass(frozen=True)
class Job:
    """A loop to check and time: a kernel and its baselines at a point."""

    kernel: str  # the name; CUBLAS for cuBLAS itself
    point: Point
    changed: Changes = ()  # settings that differ from the run's harness
    # The names of the baselines that alternate with the kernel. The measurement's ratio is against
    # the first.
    against: tuple[str, ...] = ()
    types: Types = SINGLE  # the formats of A, B and C of a product

    @property
    def shape(self) -> Shape:
        """The shape of a matrix product. Raises BadSetting for anything else."""
        return self.point.shape

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
            self.point,
            status,
            reason or None,
            changed=self.pitfalls,
            verdict=verdict,
            against=dict.fromkeys(self.against),
        )

    def failed(self, verdict: Verdict) -> Measurement:
        """Return the job's measurement if the kernel fails the gate."""
        return self.without_time("failed", f"failed at {verdict.reason}", verdict)

    def __str__(self) -> str:
        place = f" at {self.point}" if self.point.axes else ""
        biased = ", ".join(f"{name}={value}" for name, value in self.pitfalls.items())
        return f"{self.kernel}{place}" + (f" with {biased}" if biased else "")


def algorithms_of(name: str) -> int | None:
    """Return how many algorithms a baseline asks cuBLASLt's heuristic for.

    None for any other kernel. Raises BadSetting for a number that is out of range.

    name: "cuBLASLt", or "cuBLASLt:N" for N algorithms
    """
    library, colon, number = name.partition(":")
    if library != CUBLASLT:
        return None
    if not colon:
        return ALGORITHMS
    if number.isascii() and number.isdigit() and 1 <= int(number) <= MOST_ALGORITHMS:
        return int(number)
    raise BadSetting(
        f"{name}: {number or 'nothing'} isn't a number of algorithms: give 1 to {MOST_ALGORITHMS}, "
        f"or {CUBLASLT} alone for {ALGORITHMS}"
    )


def product_job(
    kernel: str, size: Size, changed: Changes = (), *against: str, types: Types = SINGLE
) -> Job:
    """Return the job of a matrix product, which alternates with cuBLAS.

    changed: settings that differ from the run's harness
    against: further baselines
    types: the formats of A, B and C
    """
    return Job(kernel, Point.of_product(Shape.of(size)), changed, (CUBLAS, *against), types)


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

    Raises BadSetting, also for more than MAX_VALUES jobs.
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
    count = len(names) * len(sides)
    if count > MAX_VALUES:
        raise BadSetting(
            f"{len(names)} kernels x {len(sides)} sizes = {count} measurements: "
            f"more than {MAX_VALUES}; name fewer kernels or sizes"
        )
    types = _types_of([*chosen, *baselines])
    jobs = []
    for shape in sides:
        for name in names:
            others = [baseline for baseline in baseline_names if baseline != name]
            jobs.append(product_job(name, shape, changed, *others, types=types))
    user_kernels = [kernel for kernel in [*chosen, *baselines] if not isinstance(kernel, str)]
    return jobs, list(dict.fromkeys(user_kernels))


def _types_of(kernels: Iterable[str | Kernel]) -> Types:
    """Return the formats of the matrices that all kernels take.

    Raises BadSetting for kernels of different formats: their products aren't the same.
    """
    by_types = dict[Types, str]()
    for kernel in kernels:
        if isinstance(kernel, Kernel):
            by_types.setdefault(kernel.types, kernel.name)
        elif kernel != CUBLAS and algorithms_of(kernel) is None:  # these take any
            by_types.setdefault(SINGLE, kernel)
    if len(by_types) > 1:
        (first, name), (second, other), *_ = by_types.items()
        raise BadSetting(
            f"{name} takes {first} matrices, and {other} {second} ones: measure them in runs of "
            "their own"
        )
    return next(iter(by_types), SINGLE)


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
    jobs = [product_job(kernel, shape) for shape in sides]
    for shape in sides:
        for changes in biased:
            by_host = ("timer", "host") in changes
            sampling = HOST_SAMPLING if by_host else ABLATION_SAMPLING
            jobs.append(product_job(kernel, shape, changes + sampling))
    return jobs


def article_jobs() -> list[Job]:
    """Return the jobs of the article's figures.

    They are the ladder with cuBLAS and the ablation of three rungs, without hot times.
    """
    jobs, _ = jobs_of(None, ARTICLE_SIZES, (("hot_ms", 0.0),))
    for name, sizes in ARTICLE_ABLATIONS.items():
        jobs += [job for job in ablation_jobs(name, sizes) if job.pitfalls]
    cancel = (("l2", "warm"), ("queue", False))  # in the README's first picture
    jobs.append(product_job("vectorized", 1024, cancel + ABLATION_SAMPLING))
    return sorted(jobs, key=lambda job: job.shape.flops)
