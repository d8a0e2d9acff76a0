"""Measurements: the results of a kernel at a place, with its baselines and the raw samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from worklog.errors import BadSetting
from worklog.problem import Point, Shape
from worklog.runs.facts import Calibration, Energy, Gpu, Verdict
from worklog.runs.files import Positive, Whole
from worklog.runs.statistics import Estimate, Samples, median, paired_ratio
from worklog.runs.text import (
    Bar,
    Cell,
    Table,
    duration,
    format_energy,
    format_half_width,
    format_ratio,
    format_si,
    percent,
)

CUBLAS = "cuBLAS"  # the baseline of matrix products: what the library chooses by itself
CUBLASLT = "cuBLASLt"  # a further baseline: the fastest of the algorithms that it offers
CLOCKS = {"watched": "clocks as found", "locked": "clocks locked"}
COLUMNS = 9  # of a table of matrix products with cuBLAS; they are shown even if they are empty
NO_ENERGY = "not measured: `worklog run --energy` measures it"
ENERGY_LABEL = (
    "energy: of a launch in a row with a warm L2, from NVML's counter of the whole board, memory "
    "and idle power included"
)
NO_LABEL = "not from a run: where and how it was measured is not known"


def source_label(origin: str, device: str, clocks: str, created: str) -> str:
    """Return the label of a number: source, device, state of the clocks, day."""
    name, _, mhz = clocks.partition(":")
    state = CLOCKS.get(name, "clocks ignored")
    if mhz:
        state += f" at {mhz} MHz"
    return f"{origin} · {device} · {state} · {created[:10]}"


@dataclass(frozen=True)
class Work:
    """The work of a launch, as far as it's known."""

    flops: Whole | None = None
    elements: Whole | None = None
    bytes_read: Whole | None = None
    bytes_written: Whole | None = None


@dataclass(frozen=True)
class Roof:
    """The theoretical peak of a datapath at the measured clock."""

    tflops: Positive
    datapath: str | None = None  # None for a matrix product in float32


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of cuBLASLt, as its heuristic offers it."""

    index: Whole  # in the heuristic's order, which begins with its best guess
    id: Whole
    tile: str  # rows and columns of the result as the library has it, transposed; or a number
    stages: str  # terms of K in a stage, and stages; or a number
    split_k: Whole  # parts of K
    reduction: Whole  # how the parts are added: cublasLtReductionScheme_t
    workspace_bytes: Whole

    def __str__(self) -> str:
        return (
            f"id {self.id}, tile {self.tile}, stages {self.stages}, split-K {self.split_k}, "
            f"{self.workspace_bytes} bytes of workspace"
        )


@dataclass(frozen=True)
class Choice:
    """The fastest algorithm of a baseline, and the loop that chose it.

    The samples of that loop aren't those of the measurement.
    """

    algorithm: Algorithm
    # By the algorithms' indices: cuBLAS's time over the algorithm's in that loop. None for an
    # algorithm that was left out.
    shares: tuple[float | None, ...]

    def __str__(self) -> str:
        timed_count = sum(share is not None for share in self.shares)
        return (
            f"algorithm {self.algorithm.index} in its heuristic's list, from 0, the fastest of "
            f"{timed_count} that were timed: {self.algorithm}"
        )


@dataclass(frozen=True)
class Ran:
    """The card and the time at which a sweep made a measurement."""

    card: str  # host and number
    began: float  # seconds since 1970
    seconds: float  # of the check and the loop


@dataclass(frozen=True)
class Context:
    """The provenance of all measurements of a run."""

    origin: str
    clocks: str  # the harness's setting
    created: str
    gpu: Gpu
    calibration: Calibration
    remark: str = ""  # for the label
    label: str = ""  # replaces the label made of these fields, for a measurement made elsewhere


def part_at(record: Any, path: str) -> Any:
    """Return a part of a part, such as "time.value"; None if either is missing."""
    part = record
    for name in path.split("."):
        part = getattr(part, name, None)
    return part


class Number:
    """A property: a number in a part of a measurement, or its share of another number."""

    def __init__(self, path: str, whole_path: str = "") -> None:
        self.path = path
        self.whole_path = whole_path

    def __get__(self, m: Any, owner: object = None) -> float | None:
        """Return the number; None if a part is missing."""
        if m is None:
            return self  # type: ignore[return-value]
        value: float | None = part_at(m, self.path)
        divisor = part_at(m, self.whole_path) if self.whole_path else 1
        return value / divisor if value is not None and divisor else None


@dataclass(frozen=True, repr=False)
class Measurement:
    """A kernel at a point under a harness, displayed as a table of facts.

    kernel: the name of the timed kernel or function
    point: what was computed: a matrix product of a shape, a problem at a case, or a declared
        benchmark at the values of its axes
    status: "failed" and "skipped" have a reason and no time
    changed: settings that differ from the run's harness, for an ablation
    time: microseconds per launch, without the event overhead if the settings remove it
    against: by the name of each baseline in the loop, the baseline's time over the kernel's, turn
        by turn: above 1, the kernel is faster. None for a baseline that has no time, which the
        degradations state.
    choices: by the name of a baseline, the algorithm that was chosen for it by timing all of them
    roof: the whole of which of_roof is a share
    witnesses: microseconds of a launch with a warm L2 by the wall clock, if it was cross-checked;
        or the reason why there is no reading
    energy: of a launch, or why there is no number; None if it wasn't measured
    beyond: what the kernel does beyond a product, as "bias" and "relu", which libraries don't
    ran: in a sweep, the card and the time
    context: of its run

    us, us_low, us_high: microseconds per launch and the ends of the interval
    ratio, ratio_low, ratio_high: the same for the first baseline's time over the kernel's
    of_roof: TFLOP/s as a share of the roof
    of_copy: GB/s as a share of a copy's measured rate
    of_memory_peak: GB/s as a share of the memory's theoretical rate
    joules, watts: energy of a launch in a row, and the board's power meanwhile

    Intervals are 95 %. Each number is None if it isn't known.
    """

    kernel: str
    point: Point = field(default_factory=Point)
    status: Literal["measured", "failed", "skipped"] = "measured"
    reason: str | None = None
    changed: dict[str, Any] = field(default_factory=dict)
    verdict: Verdict | None = None
    time: Estimate | None = None
    against: dict[str, Estimate | None] = field(default_factory=dict)
    work: Work = Work()
    roof: Roof | None = None
    samples: Samples = field(default_factory=Samples)
    degradations: tuple[str, ...] = ()
    witnesses: dict[str, float | str] = field(default_factory=dict)
    ran: Ran | None = None
    choices: dict[str, Choice] = field(default_factory=dict)
    energy: Energy | None = None
    beyond: tuple[str, ...] = ()
    context: Context | None = field(default=None, compare=False)

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """M, N and K of a matrix product, also of a batch; None for anything else."""
        return self.point.shape.sizes if self.point.is_product else None

    @property
    def axes(self) -> dict[str, Any]:
        """The values of the axes of anything but a matrix product."""
        return {} if self.point.is_product else dict(self.point.axes)

    @property
    def problem(self) -> Shape:
        """The shape as a Shape, which also has the products of a batch.

        Raises BadSetting for anything but a matrix product.
        """
        return self.point.shape

    @property
    def place(self) -> str:
        """The shape, or the values of the axes; "" without axes.

        For example: 4096, or "N=1024 dtype=float32".
        """
        return str(self.point)

    @property
    def title(self) -> str:
        """The kernel and its place."""
        return f"{self.kernel} at {self.place}" if self.place else self.kernel

    @property
    def label(self) -> str:
        """The measurement's source, device, clocks and date; "" outside of a run."""
        context = self.context
        if context is None:
            return ""
        if context.label:
            return context.label
        clocks = self.changed.get("clocks", context.clocks)
        label = source_label(context.origin, context.gpu.name, clocks, context.created)
        label += context.remark
        return f"{label} · {self.baseline_remark}" if self.baseline_remark else label

    @property
    def baseline_remark(self) -> str:
        """The remark that cuBLAS computes the product alone, or ""."""
        if not self.beyond or self.against.get(CUBLAS) is None:
            return ""
        return f"{CUBLAS} computes the product alone, without {', '.join(self.beyond)}"

    us = Number("time.value")
    us_low = Number("time.low")
    us_high = Number("time.high")
    ratio = Number("first.value")
    ratio_low = Number("first.low")
    ratio_high = Number("first.high")
    joules = Number("energy.joules")
    watts = Number("energy.watts")
    of_roof = Number("tflops", "roof.tflops")
    of_copy = Number("gbs", "context.calibration.copy_gbs")
    of_memory_peak = Number("gbs", "context.gpu.memory_peak_gbs")

    @property
    def baseline(self) -> str:
        """The name of the first baseline; "" without a baseline."""
        return next(iter(self.against), "")

    @property
    def first(self) -> Estimate | None:
        """The first baseline's time over the kernel's."""
        return self.against.get(self.baseline)

    @property
    def converged(self) -> bool:
        """Whether the time's interval is as narrow as requested."""
        if self.time is None:
            return False
        return not any(text.startswith("not converged") for text in self.degradations)

    @property
    def moved_bytes(self) -> int:
        """The bytes that a launch reads and writes, as far as they are known."""
        return (self.work.bytes_read or 0) + (self.work.bytes_written or 0)

    @property
    def tflops(self) -> float | None:
        """TFLOP/s, if the work is known."""
        return self.work.flops / self.us / 1e6 if self.work.flops and self.us else None

    @property
    def gflop_per_joule(self) -> float | None:
        """GFLOP per joule, if the work and the energy are known."""
        return self.work.flops / self.joules / 1e9 if self.work.flops and self.joules else None

    @property
    def no_energy(self) -> str:
        """The reason why the energy of a launch isn't known; "" if it's known."""
        if self.joules is not None:
            return ""
        return self.energy.reason if self.energy else NO_ENERGY

    @property
    def gbs(self) -> float | None:
        """GB/s of the problem's bytes, if they are known."""
        return self.moved_bytes / self.us / 1e3 if self.moved_bytes and self.us else None

    @property
    def of_ceiling(self) -> float | None:
        """A matrix product's share of the measured FP32 ceiling; None in other formats."""
        is_single = self.roof is None or self.roof.datapath is None
        rate = self.tflops if self.point.is_product and is_single else None
        return rate / self.context.calibration.fp32_tflops if rate and self.context else None

    @cached_property
    def sm_mhz(self) -> float | None:
        """The median SM clock of the samples that count, if it's known."""
        return self.samples.sm_mhz

    @cached_property
    def hot(self) -> Estimate | None:
        """The microseconds of a back-to-back launch with a warm L2, if it was measured."""
        if not self.samples.sides or not self.samples.sides[0].hot_us:
            return None
        return median(self.samples.sides[0].hot_us)

    @cached_property
    def hot_ratio(self) -> Estimate | None:
        """The first baseline's back-to-back time over the kernel's."""
        sides = self.samples.sides[:2]
        if not self.hot or len(sides) < 2 or not sides[1].hot_us:
            return None
        return paired_ratio(sides[1].hot_us, sides[0].hot_us)

    @property
    def n(self) -> int:
        """The number of samples that count."""
        return self.samples.n

    def quantiles(self, points: Sequence[float] = (0.2, 0.5, 0.8)) -> list[float]:
        """Return quantiles of the samples that count, in µs without the event overhead.

        Quantiles are interpolated. With several placements, `us` is the mean of the placements and
        may differ from the median of all samples.
        points: 0 and 1 are the fastest and the slowest sample
        Raises BadSetting for a point outside of 0 to 1, and without samples.
        Example: `worklog.time(fn).quantiles((0, 0.5, 0.99))`.
        """
        if not self.n:
            raise BadSetting(f"{self.title} has no quantiles: its samples aren't in the file")
        if not all(0 <= point <= 1 for point in points):
            raise BadSetting(
                f"quantiles {list(points)}: give shares between 0 and 1, such as (0.2, 0.5, 0.8)"
            )
        quantiles_us = np.quantile(self.samples.counted(), points)
        return [float(us) - self.samples.overhead_us for us in quantiles_us]

    @property
    def deviation_us(self) -> float:
        """The standard deviation of the samples that count.

        Raises BadSetting without samples.
        """
        self.quantiles(())
        return float(np.std(self.samples.counted(), ddof=min(1, self.n - 1)))

    def __repr__(self) -> str:
        return facts(self).text()

    def _repr_html_(self) -> str:
        html = facts(self).html()
        if self.verdict:
            table = self.verdict.table().html()
            html += f"<details><summary>the gate</summary>{table}</details>"
        return html


def same_card(first: Measurement, second: Measurement) -> bool:
    """Return whether two measurements ran on one card.

    Cards of one model differ only if both UUIDs are known.
    """
    if first.context is None or second.context is None:
        return True
    first_gpu = first.context.gpu
    second_gpu = second.context.gpu
    if first_gpu.name != second_gpu.name:
        return False
    if not first_gpu.uuid or not second_gpu.uuid:
        return True
    return first_gpu.uuid == second_gpu.uuid


def changed_words(m: Measurement) -> str:
    """Return the changed settings, each behind a comma: ", l2 = warm"."""
    return "".join(f", {setting} = {value}" for setting, value in m.changed.items())


def marked_time(us: float, *, is_converged: bool) -> str:
    """Return a time in a table, with a star if its interval is wider than requested."""
    text = duration(us, padded=True)
    return text if is_converged else f"{text} *"


def share_cells(m: Measurement) -> dict[str, Cell]:
    """Return a measurement's share of each baseline, by column: "of cuBLAS"."""
    shares = dict[str, Cell]()
    for name, ratio in m.against.items():
        if ratio:
            text = format_ratio(ratio.value, ratio.low, ratio.high)
            shares[f"of {name}"] = Bar(text, ratio.value)
        else:
            shares[f"of {name}"] = Bar("–" if m.status == "measured" else "", None)
    return shares


def cells(m: Measurement, registers: object = None) -> dict[str, Cell]:
    """Return the row of a measurement by column.

    A kernel that failed or was skipped has no numbers. Anything but a matrix product has its axes
    instead of the kernel, and its rates, as far as they are known: GB/s and items/s of the stated
    bytes and elements. of copy: the share of the measured rate of a copy. hot: a back-to-back
    launch.
    registers: per thread
    """
    time: dict[str, Cell] = {"time": "–", "±95 %": ""}
    is_measured = m.status == "measured" and m.time is not None
    if is_measured and m.time is not None:
        time["time"] = marked_time(m.time.value, is_converged=m.converged)
        time["±95 %"] = f"{format_half_width(100 * m.time.relative_half_width)} %"
    mhz = "" if m.sm_mhz is None else f"{m.sm_mhz:.0f}"
    if m.point.is_product:
        shares = share_cells(m)
        gate = _gate(m) if is_measured else m.status
        return {
            "kernel": m.kernel, "gate": gate, **time,
            "TFLOP/s": "" if m.tflops is None else f"{m.tflops:.2f}",
            "of cuBLAS": "",
            **shares,
            **_share_of_peak(m),
            "SM MHz": mhz, "registers": "" if registers is None else str(registers),
            **_energy_cells(m),
        }  # fmt: skip
    if not is_measured:
        time["time"] = m.status
    row: dict[str, Cell] = {**time, **_rates(m), **share_cells(m), "SM MHz": mhz}
    row |= _energy_cells(m)
    if not m.axes:
        return {"benchmark": m.kernel, **row}
    axes: dict[str, Cell] = {
        f"axis {name}" if name in row else name: str(value) for name, value in m.axes.items()
    }
    return {**axes, **row}


def _energy_cells(m: Measurement) -> dict[str, Cell]:
    """Return the energy of a launch and its GFLOP per joule; empty if it wasn't measured."""
    if m.energy is None:
        return {}
    if m.joules is None:
        return {"energy": "–", "GFLOP/J": ""}
    efficiency = "" if m.gflop_per_joule is None else f"{m.gflop_per_joule:.4g}"
    return {"energy": format_energy(m.joules), "GFLOP/J": efficiency}


def _gate(m: Measurement) -> str:
    if not m.verdict:
        return "off"
    formats = f" on {m.verdict.types}" if m.verdict.types else ""
    return f"{m.verdict.precision} ok{formats}"


def _share_of_peak(m: Measurement) -> dict[str, Cell]:
    """Return a product's share of the measured FP32 ceiling, or of its tensor cores' peak."""
    if m.roof and m.roof.datapath:
        return {f"of {m.roof.datapath.upper()} peak": percent(m.of_roof)}
    return {"of FP32 ceiling": "" if m.of_ceiling is None else f"{100 * m.of_ceiling:.1f} %"}


def _rates(m: Measurement) -> dict[str, Cell]:
    """Return the rates of anything but a matrix product, and its back-to-back time."""
    rate = ""
    if m.tflops is not None:
        rate = f"{m.tflops:.2f} TFLOP/s" if m.tflops >= 1 else f"{1e3 * m.tflops:.1f} GFLOP/s"
    items = ""
    if m.work.elements is not None and m.us is not None:
        items = format_si(1e6 * m.work.elements / m.us)
    return {
        "rate": rate,
        "GB/s": "" if m.gbs is None else f"{m.gbs:.4g}",
        "items/s": items,
        "of copy": percent(m.of_copy),
        "hot": "" if m.hot is None else duration(m.hot.value, padded=True),
    }


def facts(m: Measurement) -> Table:
    """Return a measurement as a table of facts; shares have a bar."""
    title = f"{m.title}{changed_words(m)} · {m.label or NO_LABEL}"
    if m.status != "measured" or m.time is None:
        return Table(title, (), [(m.status, m.reason or "no reason given")], left=2)
    row = cells(m)
    rows: list[tuple[str, Cell]] = [
        ("gate", _gate(m)),
        ("time", f"{row['time']} ±{row['±95 %']} (95 %)"),
        ("TFLOP/s", "" if m.tflops is None else f"{m.tflops:.2f}"),
        *share_cells(m).items(),
    ]
    if m.hot:
        text = f"{duration(m.hot.value, padded=True)}, launches in a row with a warm L2"
        rows.append(("hot", text))
    if m.energy:
        rows.append(("energy", _energy_fact(m)))
    if m.of_ceiling is not None:
        rows.append(("of FP32 ceiling", Bar(f"{100 * m.of_ceiling:.1f} %", m.of_ceiling)))
    if not m.point.is_product:
        rows += [(name, row[name]) for name in ("GB/s", "of copy", "items/s")]
    if m.roof and m.roof.datapath:
        rows.append((f"of {m.roof.datapath.upper()} peak", percent(m.of_roof)))
    rows.append(("SM MHz", row["SM MHz"]))
    rows.append(("samples", f"{m.n} of {len(m.samples.counts)} count{_scatter(m)}"))
    for name, us in m.witnesses.items():
        rows.append((name, us if isinstance(us, str) else f"{duration(us)}, warm L2"))
    rows += [(name, str(choice)) for name, choice in m.choices.items()]
    rows += [("degraded", degradation) for degradation in m.degradations]
    return Table(title, (), [fact for fact in rows if str(fact[1])], left=2)


def _energy_fact(m: Measurement) -> str:
    """Return the energy of a launch with its power, or why there is no number."""
    if m.joules is None or m.watts is None:
        return f"– ({m.no_energy})"
    rate = "" if m.gflop_per_joule is None else f", {m.gflop_per_joule:.4g} GFLOP/J"
    return f"{format_energy(m.joules)}{rate}, {m.watts:.0f} W, launches in a row, whole board"


def _scatter(m: Measurement) -> str:
    """Return the range and the standard deviation of the samples; "" without samples."""
    if not m.n:
        return ""
    low, high = m.quantiles((0, 1))
    return f", {low:.5g} to {high:.5g} µs, standard deviation {m.deviation_us:.2g} µs"
