"""What to measure: lists of tasks, roughly how long they take, and the Measurement that a reading becomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from worklog.errors import BadSetting, BadShape
from worklog.gate import Verdict
from worklog.gpu import Gpu
from worklog.harness import IDLE_S, LEAST_WINDOWS, WINDOW_US, Harness, Reading
from worklog.kernel import LADDER
from worklog.problem import FLOAT_BYTES, MOST_VALUES, SGEMM, Shape, Value
from worklog.runs import AGAINST, Measurement, event_overhead_us, recorded_run, summarize
from worklog.settings import HOW_ONE_MEASURES, PITFALLS

if TYPE_CHECKING:
    from worklog.harness.calibration import Calibration
    from worklog.kernel import Kernel


Size = Shape | int | str | Sequence[int]
Changes = tuple[tuple[str, Any], ...]
# Called before each step, and twice a second in between, with the steps done, their number (0 if it isn't known) and
# what is being done. It may raise KeyboardInterrupt to stop the work.
Progress = Callable[[int, int, str], None]
BASELINE = "cuBLAS"
ARTICLE_SIZES = (256, 512, 1024, 2048, 4096, 8192)
ABLATION_SIZES = (256, 512, 1024, 2048, 4096)
ABLATION_RUNGS = ("naive", "vectorized", "warptiled")
ABLATION_SAMPLING: Changes = (("most_samples", 200), ("budget_s", 2.0), ("hot_ms", 0.0))
GRID_SIZES = (256, 1024, 4096)
# A second is a few launches of the slowest kernel; so few samples keep a recording small enough to be shipped.
GRID_SAMPLING: Changes = (("most_samples", 40), ("budget_s", 1.0), ("hot_ms", 0.0))


def silent(done: int, total: int, doing: str) -> None:
    """No progress shown."""


@dataclass(frozen=True)
class Task:
    """One measurement to make: a kernel's name (BASELINE for cuBLAS itself), a shape, and what differs from the run's
    harness. Without a shape, a declared benchmark at the values of its axes. against: the kernel, or the benchmark of
    the same file, that alternates with it; "" for cuBLAS, or for none. further: whether another task, with the baseline
    of its own kind, comes before it. beside: baselines of the tasks that are measured in the same loop.
    """

    kernel: str
    shape: Shape | None
    changed: Changes = ()
    axes: tuple[tuple[str, Value], ...] = ()
    against: str = ""
    further: bool = False
    beside: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of what takes turns in its loop: the kernel, and its baselines."""
        return self.kernel, self.against, *self.beside

    @property
    def alike(self) -> Task:
        """Equal for tasks that one loop measures, since only their baselines differ."""
        return replace(self, against="", further=False, beside=())

    @property
    def problem(self) -> Shape:
        """The shape of a matrix product. Raises BadShape for a declared benchmark."""
        if self.shape is None:
            raise BadShape(f"{self} isn't a product of matrices: it has no M, N and K")
        return self.shape

    @property
    def pitfalls(self) -> dict[str, Any]:
        """The changed settings that belong to a pitfall, and another baseline; the others say how long to measure."""
        found = {name: value for name, value in self.changed if any(g.setting == name for g in PITFALLS)}
        return found | ({AGAINST: self.against} if self.against and (self.shape or self.further) else {})

    def without_time(self, status: str, reason: str | None, verdict: Verdict | None = None) -> Measurement:
        """Its measurement, "skipped" or "refused"."""
        judged = None if verdict is None else verdict.as_dict()
        shape = None if self.shape is None else astuple(self.shape)
        other = self.against or ("" if shape is None else BASELINE)
        axes = dict(self.axes)
        return Measurement(self.kernel, shape, status, reason, self.pitfalls, judged, axes=axes, baseline=other)

    def refused(self, verdict: Verdict, of: str = "") -> Measurement:
        """Its measurement where the gate fails the kernel. of: named before the reason, where that isn't the kernel."""
        return self.without_time("refused", f"{of}failed at {verdict.reason}", verdict)

    def each(self) -> list[Task]:
        """A task for each of its baselines, in order."""
        own = replace(self, beside=())
        return [own, *(replace(own, against=name, further=True) for name in self.beside)]

    def joined(self, found: Sequence[Measurement]) -> Measurement:
        """One measurement of what was found against each baseline; of one that stands for all, the same for each."""
        first, *others = found if len(found) > 1 else [found[0]] * (1 + len(self.beside))
        others = [
            replace(one, baseline=task.against, changed=one.changed | task.pitfalls)
            for one, task in zip(others, self.each()[1:], strict=True)
        ]
        return replace(first, beside=tuple(others))

    def __str__(self) -> str:
        biased = ", ".join(f"{name}={value}" for name, value in self.pitfalls.items())
        return self.without_time("skipped", None).title + (f" with {biased}" if biased else "")


def tasks_of(
    kernels: Iterable[str | Kernel] | Kernel | str | None,
    shapes: Iterable[Size] | Size,
    changed: Changes = (),
    against: Iterable[str | Kernel] = (),
) -> tuple[list[Task], list[Kernel]]:
    """Each kernel at each shape once, shape by shape, and those of the kernels that aren't given by name.

    kernels: None for the whole ladder and cuBLAS. One kernel or one size needs no list around it. changed: settings
    that differ from the run's harness. against: further baselines, each of which gets a task of its own behind the one
    with cuBLAS; one loop measures them all. Raises BadShape, and BadSetting for more tasks than MOST_VALUES.
    """
    others = [*against]
    chosen = [r.name for r in LADDER] + [BASELINE] if kernels is None else _listed(kernels)
    names = dict.fromkeys(kernel if isinstance(kernel, str) else kernel.name for kernel in chosen)
    sides = dict.fromkeys(Shape.of(size) for size in _listed(shapes))
    beside = ["", *dict.fromkeys(one if isinstance(one, str) else one.name for one in others)]
    if len(names) * len(sides) * len(beside) > MOST_VALUES:
        count = f"{len(names)} kernels x {len(sides)} sizes = {len(names) * len(sides)} measurements"
        raise BadSetting(f"{count}: more than {MOST_VALUES}; name fewer kernels or sizes")
    tasks = [
        Task(name, shape, changed, against=other)
        for shape in sides
        for name in names
        for other in beside
        if other not in (name, BASELINE)
    ]
    own = [kernel for kernel in chosen if not isinstance(kernel, str)]
    return tasks, own + [kernel for kernel in others if not isinstance(kernel, str) and kernel not in own]


def _listed(words: Any) -> list[Any]:
    alone = isinstance(words, str | Shape) or not isinstance(words, Iterable)
    return [words] if alone else list(words)


def ablation_tasks(kernel: str, shapes: Iterable[Size] | Size) -> list[Task]:
    """The unbiased measurement at each shape, and one for each pitfall that changes how samples are taken. What only
    changes the arithmetic on samples (statistic, offset, roof) is computed from the unbiased ones.
    """
    biased: list[Changes] = [((g.setting, g.biased[0]),) for g in PITFALLS if g.resampled]
    biased.append(tuple((g.setting, g.biased[0]) for g in PITFALLS if g.article))
    biased.append(tuple((g.setting, g.biased[0]) for g in PITFALLS if g.setting in HOW_ONE_MEASURES))
    at = [Shape.of(size) for size in _listed(shapes)]
    unbiased = [Task(kernel, shape) for shape in at]
    return unbiased + [Task(kernel, shape, changes + ABLATION_SAMPLING) for shape in at for changes in biased]


def article_tasks() -> list[Task]:
    """Everything that the article's figures show: the ladder at all sizes, and the ablation of three rungs."""
    tasks, _ = tasks_of(None, ARTICLE_SIZES)
    for name in ABLATION_RUNGS:
        tasks += [task for task in ablation_tasks(name, ABLATION_SIZES) if task.changed]
    return sorted(tasks, key=lambda task: task.problem.flops)


def grid_tasks() -> list[Task]:
    """The measurements that the panel answers from, for each rung at each size: each pitfall that needs launches alone,
    each two of them together, every combination of the article's four fixes and the blocking kernel, and all together.
    What only changes the arithmetic on samples is computed, and the gate doesn't change the launches.
    """
    every = [g for g in PITFALLS if g.resampled and g.setting != "gate"]
    fixes = [g for g in every if g.article or g.setting == "queue"]
    chosen = [both for count in range(3) for both in combinations(every, count)]
    chosen += [several for count in range(3, len(fixes) + 1) for several in combinations(fixes, count)]
    changes = [distinct([(g.setting, g.biased[0]) for g in pitfalls]) for pitfalls in [*chosen, every]]
    return [
        Task(name, Shape.of(size), changed + GRID_SAMPLING)
        for size in GRID_SIZES
        for name in ABLATION_RUNGS
        for changed in dict.fromkeys(changes)
    ]


def distinct(biased: Sequence[tuple[str, Any]]) -> Changes:
    """The changes without those that have no effect beside the others: a host clock needs no blocking kernel."""
    by_host = ("timer", "host") in biased
    return tuple(change for change in biased if not (by_host and change[0] == "queue"))


# Seconds of the gate for one kernel, from its stages' times in the recording of an H200. Most of it is the host's work
# on the elements of the matrices.
GATE_S = 0.15
GATE_S_PER_BYTE = 4e-9
GATE_LAUNCHES = 11  # at the benchmark shape: exact families, repetitions, products, precision


def estimate(tasks: Sequence[Task], harness: Harness) -> tuple[list[float], str]:
    """Roughly the seconds per task, and the label of the run whose rates are used. A task takes the gate, which grows
    with the matrices, if it is the first of its kernel and shape; the warm-up, or the idle second before a cold start;
    and the least number of samples of the kernel and of cuBLAS, up to the budget.
    """
    run = recorded_run()
    known = [(m.kernel, m.problem.flops, m.problem.flops / m.us * 1e6) for m in run.select() if m.us]
    checked: set[tuple[str, Shape]] = set()

    def launch_s(kernel: str, flops: int) -> float:
        """At this kernel's rate at the nearest size, or at the slowest rate for a kernel that wasn't recorded."""
        same = [one for one in known if one[0] == kernel] or known
        _, _, rate = min(same, key=lambda one: (abs(math.log(flops / one[1])), one[2]))
        return flops / rate

    def task_s(task: Task) -> float:
        used, where = harness.but(**dict(task.changed)), (task.kernel, task.problem)
        kernel_s, flops = launch_s(task.kernel, task.problem.flops), task.problem.flops
        pair_s, gate_s = kernel_s + launch_s(BASELINE, flops), 0.0
        if used.gate and where not in checked:
            checked.add(where)
            gate_s = GATE_S + GATE_S_PER_BYTE * task.problem.compulsory_bytes + GATE_LAUNCHES * kernel_s
        warm_up_s = IDLE_S if used.warmup == "none" else LEAST_WINDOWS * max(WINDOW_US / 1e6, pair_s)
        return gate_s + warm_up_s + min(used.budget_s, used.least_samples * pair_s)

    return [task_s(task) for task in tasks], run.label


def measurement_of(
    blank: Measurement,
    used: Harness,
    reading: Reading,
    calibration: Calibration,
    device: Gpu,
    degradations: Sequence[str] = (),
) -> Measurement:
    """The measurement that a reading on this device gives. blank: without a time; its work gives the rates."""
    peak = device.fp32_peak_tflops * ((reading.sm_mhz or device.sm_clock_mhz) / device.sm_clock_mhz)
    found = summarize(reading, used.as_dict(), calibration.as_dict(), blank.flops, peak)
    time, ratio = found.time, found.ratio
    moved = None if blank.bytes_read is None and blank.bytes_written is None else blank.moved_bytes
    gbs = None if moved is None else moved / time.value / 1e3
    return replace(
        blank,
        status="measured",
        us=time.value,
        us_low=time.low,
        us_high=time.high,
        us_launches=time.launches,
        us_placement=time.placement,
        overhead_us=event_overhead_us(used.as_dict(), calibration.as_dict()),
        tflops=found.tflops,
        ratio=None if ratio is None else ratio.value,
        ratio_low=None if ratio is None else ratio.low,
        ratio_high=None if ratio is None else ratio.high,
        ratio_launches=None if ratio is None else ratio.launches,
        ratio_placement=None if ratio is None else ratio.placement,
        of_ceiling=found.tflops and found.tflops / calibration.fp32_tflops,
        of_roof=found.of_peak,
        gbs=gbs,
        of_copy=gbs and gbs / calibration.copy_gbs,
        of_memory_peak=gbs and gbs / device.memory_peak_gbs,
        hot_us=None if found.hot is None else found.hot.value,
        hot_low=None if found.hot is None else found.hot.low,
        hot_high=None if found.hot is None else found.hot.high,
        hot_ratio=None if found.hot_ratio is None else found.hot_ratio.value,
        **({} if reading.energy is None else asdict(reading.energy)),
        sm_mhz=found.sm_mhz,
        throttle_mask=reading.throttle_mask,
        converged=reading.converged,
        degradations=(*degradations, *reading.degradations),
        samples=reading.columns(),
    )


def work_of(shape: Shape) -> dict[str, Any]:
    """The work of a matrix product, by the names of a Measurement. elements: of A and B, inputs, as NVBench counts."""
    case = SGEMM.of(shape)
    read, written = SGEMM.get_bytes(case)
    elements = read // FLOAT_BYTES
    return {"flops": SGEMM.get_flops(case), "elements": elements, "bytes_read": read, "bytes_written": written}
