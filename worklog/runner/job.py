"""What to measure: jobs, lists of them, and roughly how long they take."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal

from worklog.errors import BadSetting, listed
from worklog.kernel import LADDER, Kernel
from worklog.problem import FLOAT_BYTES, MOST_VALUES, SGEMM, Shape, Value
from worklog.runs import CUBLAS, Measurement, Verdict, Work
from worklog.settings import HOW_ONE_MEASURES, PITFALLS

Size = Shape | int | str | Sequence[int]
Changes = tuple[tuple[str, Any], ...]
CASE = "case"  # the axis of a problem
ARTICLE_SIZES = ABLATION_SIZES = (256, 512, 1024, 2048, 4096)
ABLATION_RUNGS = ("naive", "vectorized", "warptiled")
ABLATION_SAMPLING: Changes = (("most_samples", 200), ("budget_s", 2.0), ("hot_ms", 0.0))
GRID_SIZES = (256, 1024, 4096)
# At 4096 a launch of naive takes 0.28 s on an H200, so that its twelve settings alone would take 40 s.
ARTICLE_ABLATIONS = {"naive": GRID_SIZES[:2], "vectorized": GRID_SIZES, "warptiled": GRID_SIZES}
SECONDS_EACH = 1.5  # gate and timing of one kernel at 4096 on an H200, from the stages' seconds in the recording


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
        axes, changed = dict(self.axes), self.pitfalls
        return Measurement(self.kernel, shape, status, reason or None, axes, changed, verdict, against=against)

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
    sides = dict.fromkeys(Shape.of(size) for size in listed("shapes", shapes))
    names, beside = (dict.fromkeys(k if isinstance(k, str) else k.name for k in of) for of in (chosen, others))
    if len(names) * len(sides) > MOST_VALUES:
        count = f"{len(names)} kernels x {len(sides)} sizes = {len(names) * len(sides)} measurements"
        raise BadSetting(f"{count}: more than {MOST_VALUES}; name fewer kernels or sizes")
    jobs = [
        Job(name, shape, changed, against=tuple(other for other in beside if other not in (name, CUBLAS)))
        for shape in sides
        for name in names
    ]
    return jobs, [*dict.fromkeys(kernel for kernel in [*chosen, *others] if not isinstance(kernel, str))]


def ablation_jobs(kernel: str, shapes: Iterable[Size] | Size, unknown: Collection[str] = ()) -> list[Job]:
    """The unbiased measurement at each shape, and one for each pitfall that changes how samples are taken; the others
    (statistic, offset, roof) are computed from the unbiased samples. unknown: settings that the run is older than.
    """
    known = [g for g in PITFALLS if g.setting not in unknown]
    groups = [[g] for g in known if g.resampled]
    groups += [[g for g in known if g.article], [g for g in known if g.setting in HOW_ONE_MEASURES]]
    biased: list[Changes] = [tuple((g.setting, g.biased[0]) for g in group) for group in groups]
    at = [Shape.of(size) for size in listed("shapes", shapes)]
    jobs = [Job(kernel, shape) for shape in at]
    return jobs + [Job(kernel, shape, changes + ABLATION_SAMPLING) for shape in at for changes in biased]


def article_jobs() -> list[Job]:
    """What the article's figures show: the ladder with cuBLAS, and the ablation of three rungs, without hot times."""
    jobs, _ = jobs_of(None, ARTICLE_SIZES, (("hot_ms", 0.0),))
    for name, of_ablation in ARTICLE_ABLATIONS.items():
        jobs += [job for job in ablation_jobs(name, of_ablation) if job.pitfalls]
    cancel = (("l2", "warm"), ("queue", False))  # in the README's first picture
    jobs.append(Job("vectorized", Shape.of(1024), cancel + ABLATION_SAMPLING))
    return sorted(jobs, key=lambda job: job.problem.flops)


def work_of(shape: Shape) -> Work:
    """The work of a matrix product. elements: of A and B, inputs, as NVBench counts."""
    case = SGEMM.of(shape)
    read, written = SGEMM.get_bytes(case)
    return Work(SGEMM.get_flops(case), read // FLOAT_BYTES, read, written)
