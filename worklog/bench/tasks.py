"""What to measure: lists of tasks, one for each thing that a person asks for. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from worklog.errors import BadSetting
from worklog.kernel.ladder import LADDER
from worklog.problem.axes import MOST_VALUES
from worklog.problem.gemm import Shape
from worklog.settings import HOW_ONE_MEASURES, PITFALLS

if TYPE_CHECKING:
    from worklog.kernel import Kernel

Size = Shape | int | str | Sequence[int]
NOTHING: Mapping[str, Any] = MappingProxyType({})
BASELINE = "cuBLAS"
ARTICLE_SIZES = (256, 512, 1024, 2048, 4096, 8192)
ABLATION_SIZES = (256, 512, 1024, 2048, 4096)
ABLATION_RUNGS = ("naive", "vectorized", "warptiled")
ABLATION_SAMPLING: tuple[tuple[str, Any], ...] = (("most_samples", 200), ("budget_s", 2.0))
GRID_SIZES = (256, 1024, 4096)
# A second is a few launches of the slowest kernel; so few samples keep a recording small enough to be shipped.
GRID_SAMPLING: tuple[tuple[str, Any], ...] = (("most_samples", 60), ("budget_s", 1.0))


@dataclass(frozen=True)
class Task:
    """One measurement to make: a kernel's name (BASELINE for cuBLAS itself), a shape, and what differs from the run's
    harness.
    """

    kernel: str
    shape: Shape
    changed: tuple[tuple[str, Any], ...] = ()

    @property
    def pitfalls(self) -> dict[str, Any]:
        """The changed settings that are gremlins; the others are patience."""
        return {name: value for name, value in self.changed if any(g.setting == name for g in PITFALLS)}

    def __str__(self) -> str:
        biased = ", ".join(f"{name}={value}" for name, value in self.pitfalls.items())
        return f"{self.kernel} at {self.shape}" + (f" with {biased}" if biased else "")


def tasks_of(
    kernels: Iterable[str | Kernel] | Kernel | None, sizes: Iterable[Size] | int, changed: Mapping[str, Any] = NOTHING
) -> tuple[list[Task], list[Kernel]]:
    """Each kernel at each size once, sizes first, and which of them are user kernels; None for the whole ladder
    and cuBLAS. One kernel or one size needs no list around it. Raises BadShape, and BadSetting for more tasks than
    MOST_VALUES.
    """
    asked = [r.name for r in LADDER] + [BASELINE] if kernels is None else each(kernels)
    names = dict.fromkeys(kernel if isinstance(kernel, str) else kernel.name for kernel in asked)
    shapes = dict.fromkeys(Shape.of(size) for size in each(sizes))
    if len(names) * len(shapes) > MOST_VALUES:
        count = f"{len(names)} kernels x {len(shapes)} sizes = {len(names) * len(shapes)} measurements"
        raise BadSetting(f"{count}: more than {MOST_VALUES}; name fewer kernels or sizes")
    tasks = [Task(name, shape, tuple(changed.items())) for shape in shapes for name in names]
    return tasks, [kernel for kernel in asked if not isinstance(kernel, str)]  # for others to refuse two of one name


def each(words: Any) -> list[Any]:
    """A list of kernels or of sizes; one by itself is a list of one."""
    alone = isinstance(words, str | Shape) or not isinstance(words, Iterable)
    return [words] if alone else list(words)


def ablation_tasks(kernel: str, shapes: Sequence[Shape]) -> list[Task]:
    """The honest measurement and one for each lie that changes how samples are taken; what only changes the
    arithmetic on samples (statistic, offset, roof) is computed from the honest ones and needs no launch.
    """
    biased: list[tuple[tuple[str, Any], ...]] = [((g.setting, g.biased[0]),) for g in PITFALLS if g.resampled]
    biased.append(tuple((g.setting, g.biased[0]) for g in PITFALLS if g.article))
    biased.append(tuple((g.setting, g.biased[0]) for g in PITFALLS if g.setting in HOW_ONE_MEASURES))
    return [Task(kernel, shape) for shape in shapes] + [
        Task(kernel, shape, lie + ABLATION_SAMPLING) for shape in shapes for lie in biased
    ]


def article_tasks() -> list[Task]:
    """Everything that the article's figures show: the ladder over all sizes, and the ablation of three rungs."""
    names = [r.name for r in LADDER] + [BASELINE]
    tasks = [Task(name, Shape.of(n)) for n in ARTICLE_SIZES for name in names]
    for name in ABLATION_RUNGS:
        tasks += [task for task in ablation_tasks(name, [Shape.of(n) for n in ABLATION_SIZES]) if task.changed]
    return sorted(tasks, key=lambda task: task.shape.flops)


def grid_tasks() -> list[Task]:
    """What the panel answers from: every combination of the article's four fixes and the queue, the other lies that
    need launches each alone, and all of them together. What only changes the arithmetic on samples is computed, and a
    gate that is off times the same launches.
    """
    axes = [g for g in PITFALLS if g.article or g.setting == "queue"]
    choices = product(*(((), ((g.setting, g.biased[0]),)) for g in axes))
    biased = [tuple(lie for choice in chosen for lie in choice) for chosen in choices]
    naive = tuple((g.setting, g.biased[0]) for g in PITFALLS if g.resampled and g.setting != "gate")
    alone = [(lie,) for lie in naive if (lie,) not in biased]
    return [
        Task(name, Shape.of(size), lie + GRID_SAMPLING)
        for size in GRID_SIZES
        for name in ABLATION_RUNGS
        for lie in [*filter(_is_one_of_a_kind, biased), *alone, one_of_a_kind(naive)]
    ]


def _is_one_of_a_kind(biased: Sequence[tuple[str, Any]]) -> bool:
    return one_of_a_kind(biased) == biased


def one_of_a_kind(biased: Sequence[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """The lies without those that change nothing beside the others: by a host clock, launches never queue up."""
    by_host = ("timer", "host") in biased
    return tuple(lie for lie in biased if not (by_host and lie[0] == "queue"))
