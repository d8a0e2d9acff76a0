"""What to measure: lists of tasks, roughly how long they take, and the Measurement that a reading becomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from worklog.errors import BadSetting, listed
from worklog.gate import Verdict
from worklog.gpu import Peaks
from worklog.harness import IDLE_S, LEAST_WINDOWS, WINDOW_US, Harness, Reading, off_the_lock
from worklog.kernel import LADDER, Kernel
from worklog.problem import FLOAT_BYTES, MOST_VALUES, SGEMM, Shape, Value
from worklog.runs import AGAINST, Estimate, Measurement, event_overhead_us, recorded_run, summarize
from worklog.settings import HOW_ONE_MEASURES, PITFALLS

if TYPE_CHECKING:
    from worklog.runner.session import Session


Size = Shape | int | str | Sequence[int]
Changes = tuple[tuple[str, Any], ...]
# Called before each step, and twice a second in between, with the steps done, their number (0 if it isn't known) and
# what is being done. It may raise KeyboardInterrupt to stop the work.
Progress = Callable[[int, int, str], None]
BASELINE = "cuBLAS"
ARTICLE_SIZES = ABLATION_SIZES = (256, 512, 1024, 2048, 4096)
ABLATION_RUNGS = ("naive", "vectorized", "warptiled")
ABLATION_SAMPLING: Changes = (("most_samples", 200), ("budget_s", 2.0), ("hot_ms", 0.0))
GRID_SIZES = (256, 1024, 4096)
# At 4096 a launch of naive takes 0.28 s on an H200, so that its twelve settings alone would take 40 s.
ARTICLE_ABLATIONS = {"naive": GRID_SIZES[:2], "vectorized": GRID_SIZES, "warptiled": GRID_SIZES}
# A second is a few launches of the slowest kernel; so few samples keep a recording small enough to be shipped.
GRID_SAMPLING: Changes = (("most_samples", 40), ("budget_s", 1.0), ("hot_ms", 0.0))


def silent(done: int, total: int, doing: str) -> None:
    """No progress shown."""


@dataclass(frozen=True)
class Task:
    """One loop to time: a kernel's name (BASELINE for cuBLAS itself), a shape, and what differs from the run's harness.
    Without a shape, a declared benchmark or a solution at the values of its axes. against: baselines that take turns
    with it in the loop, by name; of a matrix product, those beside cuBLAS. Its result is a measurement for each.
    """

    kernel: str
    shape: Shape | None
    changed: Changes = ()
    axes: tuple[tuple[str, Value], ...] = ()
    against: tuple[str, ...] = ()

    @property
    def baselines(self) -> tuple[str, ...]:
        """Every baseline, the one that its ratio is against first."""
        return self.against if self.shape is None else (BASELINE, *self.against)

    @property
    def problem(self) -> Shape:
        """The shape of a matrix product. Raises BadSetting for a declared benchmark."""
        if self.shape is None:
            raise BadSetting(f"{self} isn't a product of matrices: it has no M, N and K")
        return self.shape

    @property
    def pitfalls(self) -> dict[str, Any]:
        """The changed settings that belong to a pitfall; the others say how long to measure."""
        return {name: value for name, value in self.changed if any(g.setting == name for g in PITFALLS)}

    def without_time(self, status: str, reason: str | None = None) -> list[Measurement]:
        """A measurement against each baseline, "skipped" or "refused"; against none where there are none."""
        shape = None if self.shape is None else astuple(self.shape)
        first, *further = self.baselines or ("",)
        found = Measurement(self.kernel, shape, status, reason, self.pitfalls, axes=dict(self.axes), baseline=first)
        return [found, *(replace(found, baseline=one, changed=found.changed | {AGAINST: one}) for one in further)]

    def refused(self, verdict: Verdict) -> list[Measurement]:
        """Its measurements where the gate fails the kernel."""
        return [judged(one, verdict) for one in self.without_time("refused")]

    def __str__(self) -> str:
        biased = ", ".join(f"{name}={value}" for name, value in self.pitfalls.items())
        return self.without_time("skipped")[0].title + (f" with {biased}" if biased else "")


def tasks_of(
    kernels: Iterable[str | Kernel] | Kernel | str | None,
    shapes: Iterable[Size] | Size,
    changed: Changes = (),
    against: Iterable[str | Kernel] = (),
) -> tuple[list[Task], list[Kernel]]:
    """Each kernel at each shape once, shape by shape, and those of the kernels that aren't given by name.

    kernels: None for the whole ladder and cuBLAS. One kernel or one size needs no list around it. changed: settings
    that differ from the run's harness. against: further baselines in each task's loop, but for the kernel itself.
    Raises BadSetting for more tasks than MOST_VALUES.
    """
    chosen = [r.name for r in LADDER] + [BASELINE] if kernels is None else listed("kernels", kernels)
    others = listed("against", against)
    if (wrong := next((one for one in [*chosen, *others] if not isinstance(one, str | Kernel)), None)) is not None:
        raise BadSetting(f"{wrong!r:.60} isn't a kernel: give a rung's name, Kernel.from_file(…) or from_function(…)")
    names = dict.fromkeys(kernel if isinstance(kernel, str) else kernel.name for kernel in chosen)
    sides = dict.fromkeys(Shape.of(size) for size in listed("shapes", shapes))
    beside = dict.fromkeys(one if isinstance(one, str) else one.name for one in others)
    if len(names) * len(sides) > MOST_VALUES:
        count = f"{len(names)} kernels x {len(sides)} sizes = {len(names) * len(sides)} measurements"
        raise BadSetting(f"{count}: more than {MOST_VALUES}; name fewer kernels or sizes")
    tasks = [
        Task(name, shape, changed, against=tuple(one for one in beside if one not in (name, BASELINE)))
        for shape in sides
        for name in names
    ]
    own = dict.fromkeys(kernel for kernel in [*chosen, *others] if not isinstance(kernel, str))
    return tasks, [*own]


def ablation_tasks(kernel: str, shapes: Iterable[Size] | Size, unknown: Collection[str] = ()) -> list[Task]:
    """The unbiased measurement at each shape, and one for each pitfall that changes how samples are taken; the others
    (statistic, offset, roof) are computed from the unbiased samples. unknown: settings that the run is older than.
    """
    known = [g for g in PITFALLS if g.setting not in unknown]
    biased: list[Changes] = [((g.setting, g.biased[0]),) for g in known if g.resampled]
    biased.append(tuple((g.setting, g.biased[0]) for g in known if g.article))
    biased.append(tuple((g.setting, g.biased[0]) for g in known if g.setting in HOW_ONE_MEASURES))
    at = [Shape.of(size) for size in listed("shapes", shapes)]
    unbiased = [Task(kernel, shape) for shape in at]
    return unbiased + [Task(kernel, shape, changes + ABLATION_SAMPLING) for shape in at for changes in biased]


def article_tasks() -> list[Task]:
    """What the article's figures show: the ladder with cuBLAS, and the ablation of three rungs, without hot times."""
    tasks, _ = tasks_of(None, ARTICLE_SIZES, (("hot_ms", 0.0),))
    for name, of_ablation in ARTICLE_ABLATIONS.items():
        tasks += [task for task in ablation_tasks(name, of_ablation) if task.pitfalls]
    cancel = (("l2", "warm"), ("queue", False))  # in the README's first picture
    tasks.append(Task("vectorized", Shape.of(1024), cancel + ABLATION_SAMPLING))
    return sorted(tasks, key=lambda task: task.problem.flops)


def grid_tasks() -> list[Task]:
    """The measurements that the panel answers from, for each rung at each size: each pitfall that needs launches alone,
    each two of them together, every combination of the article's four fixes and the blocking kernel, and all together;
    and from all together and from the article's four, each setting changed alone. What only changes the arithmetic on
    samples is computed, and the gate doesn't change the launches.
    """
    every = [g for g in PITFALLS if g.resampled and g.setting != "gate"]
    fixes = [g for g in every if g.article or g.setting == "queue"]
    chosen = [both for count in range(3) for both in combinations(every, count)]
    chosen += [several for count in range(3, len(fixes) + 1) for several in combinations(fixes, count)]
    for changed in every:
        chosen.append(tuple(g for g in every if g is not changed))
        chosen.append(tuple(g for g in every if (g.article is not None) != (g is changed)))
    changes = [{g.setting: g.biased[0] for g in pitfalls} for pitfalls in [*chosen, every]]
    for biased in changes:
        if biased.get("timer") == "host":  # which needs no blocking kernel
            biased.pop("queue", None)
    return [
        Task(name, Shape.of(size), changed + GRID_SAMPLING)
        for size in GRID_SIZES
        for name in ABLATION_RUNGS
        for changed in dict.fromkeys(tuple(biased.items()) for biased in changes)
    ]


# Seconds of the gate for one kernel, from its stages' times in the recording of an H200. Most of it is the host's work
# on the elements of the matrices.
GATE_S = 0.15
GATE_S_PER_BYTE = 4e-9
GATE_LAUNCHES = 11  # at the benchmark shape: exact families, repetitions, products, precision


def estimate(tasks: Sequence[Task], harness: Harness) -> tuple[list[float], str]:
    """Roughly the seconds per task, and the label of the run whose rates are used. A task takes the gate, which grows
    with the matrices, if it is the first of its kernel and shape; the warm-up, or the idle second before a cold start;
    and the least number of samples of the kernel and of its baselines, up to the budget.
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
        kernel_s, *others_s = (launch_s(name, task.problem.flops) for name in (task.kernel, *task.baselines))
        turn_s, gate_s = kernel_s + sum(others_s), 0.0
        if used.gate and where not in checked:
            checked.add(where)
            gate_s = GATE_S + GATE_S_PER_BYTE * task.problem.compulsory_bytes + GATE_LAUNCHES * kernel_s
        warm_up_s = IDLE_S if used.warmup == "none" else LEAST_WINDOWS * max(WINDOW_US / 1e6, turn_s)
        return gate_s + warm_up_s + min(used.budget_s, used.least_samples * turn_s)

    return [task_s(task) for task in tasks], run.label


def judged(found: Measurement, verdict: Verdict, of: str = "") -> Measurement:
    """The measurement with its verdict, and without a time where that is a failure. of: what fails, with a space behind
    it, where that isn't the kernel.
    """
    if verdict.accepted:
        return replace(found, verdict=verdict.as_dict())
    reason, baseline = f"{of}failed at {verdict.reason}", found.baseline
    failed = Measurement(found.kernel, found.shape, "refused", reason, found.changed, verdict.as_dict())
    return replace(failed, axes=found.axes, baseline=baseline)


def timed(
    blanks: Sequence[Measurement],
    reading: Reading,
    used: Harness,
    session: Session,
    notes: Sequence[str],
    **known: Any,
) -> list[Measurement]:
    """The measurements of a kernel and each of its baselines by a reading on the session's GPU. blanks: without a time.
    notes: for their degradations. known: further fields, such as the work, which gives the rates.
    """
    watched = {}
    if off := off_the_lock(used.clocks, reading.sm_mhz):
        watched, notes = {"clocks": "watched"}, [*notes, off]
    return [
        _timed(replace(one, changed=one.changed | watched, **known), its, used, session, notes)
        for one, its in zip(blanks, reading.pairs(), strict=True)
    ]


def _timed(
    blank: Measurement, reading: Reading, used: Harness, session: Session, degradations: Sequence[str]
) -> Measurement:
    """The measurement of a kernel and one baseline."""
    calibration, device = session.calibration, session.gpu
    peak = device.fp32_peak_tflops * ((reading.sm_mhz or device.sm_clock_mhz) / device.sm_clock_mhz)
    found = summarize(reading, used.as_dict(), calibration.as_dict(), blank.flops, peak)
    moved = None if blank.bytes_read is None and blank.bytes_written is None else blank.moved_bytes
    gbs = None if moved is None else moved / found.time.value / 1e3
    impossible = Peaks(device, device.sm_clock_mhz).impossible(found.time.value, blank)
    return replace(
        blank,
        status="measured",
        **_columns(found.time, us="value", us_low="low", us_high="high"),
        **_columns(found.time, us_launches="launches", us_placement="placement", us_process="process"),
        **_columns(found.ratio, ratio="value", ratio_low="low", ratio_high="high"),
        **_columns(found.ratio, ratio_launches="launches", ratio_placement="placement", ratio_process="process"),
        **_columns(found.hot, hot_us="value", hot_low="low", hot_high="high"),
        **_columns(found.hot_ratio, hot_ratio="value"),
        overhead_us=event_overhead_us(used.as_dict(), calibration.as_dict()),
        tflops=found.tflops,
        of_ceiling=found.tflops and found.tflops / calibration.fp32_tflops,
        of_roof=found.of_peak,
        gbs=gbs,
        of_copy=gbs and gbs / calibration.copy_gbs,
        of_memory_peak=gbs and gbs / device.memory_peak_gbs,
        sm_mhz=found.sm_mhz,
        throttle_mask=reading.throttle_mask,
        converged=reading.converged,
        degradations=(*degradations, *reading.degradations, *impossible),
        samples=reading.columns(),
    )


def _columns(found: Estimate | None, **columns: str) -> dict[str, Any]:
    """Parts of an estimate under the names of a Measurement; none where there is no estimate."""
    return {} if found is None else {name: getattr(found, part) for name, part in columns.items()}


def work_of(shape: Shape) -> dict[str, Any]:
    """The work of a matrix product, by the names of a Measurement. elements: of A and B, inputs, as NVBench counts."""
    case = SGEMM.of(shape)
    read, written = SGEMM.get_bytes(case)
    elements = read // FLOAT_BYTES
    return {"flops": SGEMM.get_flops(case), "elements": elements, "bytes_read": read, "bytes_written": written}
