"""A measurement: what was found of one kernel at one place, beside its baselines, with the raw samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from worklog.errors import BadSetting
from worklog.problem import Shape
from worklog.runs.documents import (
    Bar,
    Cell,
    Count,
    Positive,
    Table,
    Whole,
    duration,
    of_baseline,
    percent,
    scaled,
    small,
)
from worklog.runs.estimates import Estimate, Samples, median, paired_ratio
from worklog.runs.records import Calibration, Gpu, Verdict

CLOCKS = {"watched": "clocks as found", "locked": "clocks locked"}
COLUMNS = 9  # of a table of matrix products beside cuBLAS: they are shown even where they are empty
NO_LABEL = "not from a run: where and how it was measured is not known"


def source_label(origin: str, device: str, clocks: str, created: str) -> str:
    """What must stand beside a number: its source, the device, what was done about the clocks, and the day."""
    name, _, mhz = clocks.partition(":")
    held = CLOCKS.get(name, "clocks ignored") + (f" at {mhz} MHz" if mhz else "")
    return f"{origin} · {device} · {held} · {created[:10]}"


@dataclass(frozen=True)
class Work:
    """Of one launch, as far as it is known; joules and average watts: of one recording."""

    flops: Whole | None = None
    elements: Whole | None = None
    bytes_read: Whole | None = None
    bytes_written: Whole | None = None
    joules: float | None = None
    watts: float | None = None


@dataclass(frozen=True)
class Roof:
    """The theoretical peak of a datapath at the clock that was seen, TFLOP/s. datapath: None for a matrix product's."""

    tflops: Positive
    datapath: str | None = None


@dataclass(frozen=True)
class Ran:
    """Where and when a sweep made a measurement. card: its host and number. began: seconds since 1970. seconds: of the
    check and the loop.
    """

    card: str
    began: float
    seconds: float


@dataclass(frozen=True)
class Context:
    """What a run knows about all its measurements. clocks: the harness's setting. remark: for the label. label: instead
    of one made of these, for what ran elsewhere.
    """

    origin: str
    clocks: str
    created: str
    gpu: Gpu
    calibration: Calibration
    remark: str = ""
    label: str = ""


def at(thing: Any, path: str) -> Any:
    """A part of a part, such as "time.value"; None where one of them is missing."""
    for name in path.split("."):
        thing = getattr(thing, name, None)
    return thing


class Number:
    """A property: a number that a measurement holds in a part, or the share of that in another one."""

    def __init__(self, path: str, of: str = "") -> None:
        self.path = path
        self.of = of

    def __get__(self, m: Any, owner: object = None) -> float | None:
        """The number; None where a part is missing."""
        if m is None:
            return self  # type: ignore[return-value]
        value: float | None = at(m, self.path)
        whole = at(m, self.of) if self.of else 1
        return value / whole if value is not None and whole else None


@dataclass(frozen=True, repr=False)
class Measurement:
    """One kernel at one place under one harness. It shows itself.

    kernel: what was timed, by name. shape: M, N and K of a matrix product; None for anything else, whose place in its
    benchmark is given by axes, the value of each. status: "failed" and "skipped" have a reason and no time. changed:
    settings that differ from the run's harness, for an ablation. time: microseconds per launch, without the event
    overhead if the settings remove it. against: by the name of each baseline in the loop, its time over this kernel's,
    turn by turn: above 1, this one is faster; None for a baseline that has no time, which the degradations state.
    Intervals are 95 %. roof: what of_roof is a share of. witnesses: microseconds of one launch with a warm L2 by the
    wall clock, if it was cross-checked; or why it has no reading. ran: in a sweep, on which card and when. context: of
    its run.

    us, us_low, us_high: microseconds per launch and the ends of the interval; ratio, ratio_low, ratio_high: the first
    baseline's time over them. of_roof, of_copy, of_memory_peak: TFLOP/s as a share of the roof, and GB/s as a share of
    a copy's measured rate and of the memory's theoretical one. Each is None where it isn't known.
    """

    kernel: str
    shape: tuple[Count, Count, Count] | None = None
    status: Literal["measured", "failed", "skipped"] = "measured"
    reason: str | None = None
    axes: dict[str, Any] = field(default_factory=dict)
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
    context: Context | None = field(default=None, compare=False)

    @property
    def problem(self) -> Shape:
        """The shape as a Shape. Raises BadSetting for what isn't a matrix product."""
        if self.shape is None:
            raise BadSetting(f"{self.title} isn't a product of matrices: it has no M, N and K")
        return Shape(*self.shape)

    @property
    def place(self) -> str:
        """Its shape, or the values of its axes: 4096, or "N=1024 dtype=float32"; "" without axes."""
        if self.shape is not None:
            return str(self.problem)
        return " ".join(f"{name}={value}" for name, value in self.axes.items())

    @property
    def title(self) -> str:
        """The kernel and its place."""
        return f"{self.kernel} at {self.place}" if self.place else self.kernel

    @property
    def label(self) -> str:
        """Where, how and when it was measured; "" outside of a run."""
        if self.context is None:
            return ""
        clocks = self.changed.get("clocks", self.context.clocks)
        of = self.context
        return of.label or source_label(of.origin, of.gpu.name, clocks, of.created) + of.remark

    us = Number("time.value")
    us_low = Number("time.low")
    us_high = Number("time.high")
    ratio = Number("first.value")
    ratio_low = Number("first.low")
    ratio_high = Number("first.high")
    of_roof = Number("tflops", "roof.tflops")
    of_copy = Number("gbs", "context.calibration.copy_gbs")
    of_memory_peak = Number("gbs", "context.gpu.memory_peak_gbs")

    @property
    def baseline(self) -> str:
        """The name of its first baseline, "" without one."""
        return next(iter(self.against), "")

    @property
    def first(self) -> Estimate | None:
        """The first baseline's time over the kernel's."""
        return self.against.get(self.baseline)

    @property
    def converged(self) -> bool:
        """Whether the time's interval is as narrow as requested."""
        return self.time is not None and not any(
            said.startswith("not converged") for said in self.degradations
        )

    @property
    def moved_bytes(self) -> int:
        """Bytes read and written by one launch, as far as they are known."""
        return (self.work.bytes_read or 0) + (self.work.bytes_written or 0)

    @property
    def tflops(self) -> float | None:
        """TFLOP/s, where the work is known."""
        return self.work.flops / self.us / 1e6 if self.work.flops and self.us else None

    @property
    def gbs(self) -> float | None:
        """GB/s of the problem's bytes, where they are known."""
        return self.moved_bytes / self.us / 1e3 if self.moved_bytes and self.us else None

    @property
    def of_ceiling(self) -> float | None:
        """A matrix product's share of the measured FP32 ceiling."""
        rate = self.tflops if self.shape else None
        return rate / self.context.calibration.fp32_tflops if rate and self.context else None

    @cached_property
    def sm_mhz(self) -> float | None:
        """Median SM clock of the samples that count, where it is known."""
        return self.samples.sm_mhz

    @cached_property
    def hot(self) -> Estimate | None:
        """Microseconds of one of many launches in a row with a warm L2, if it was taken."""
        return (
            median(self.samples.sides[0].hot_us)
            if self.samples.sides and self.samples.sides[0].hot_us
            else None
        )

    @cached_property
    def hot_ratio(self) -> Estimate | None:
        """The first baseline's over this."""
        sides = self.samples.sides[:2]
        return (
            paired_ratio(sides[1].hot_us, sides[0].hot_us)
            if self.hot and sides[1:] and sides[1].hot_us
            else None
        )

    @property
    def n(self) -> int:
        """Samples that count."""
        return self.samples.n

    def quantiles(self, points: Sequence[float] = (0.2, 0.5, 0.8)) -> list[float]:
        """Of the samples that count, interpolated, in microseconds without the event overhead; 0 and 1 are the fastest
        and the slowest. With several placements, `us` is their mean and may differ from the median of all samples.
        Raises BadSetting for a point outside of 0 to 1, and without samples.
        Example: `worklog.time(fn).quantiles((0, 0.5, 0.99))`.
        """
        if not self.n:
            raise BadSetting(f"{self.title} has no quantiles: its samples aren't in the file")
        if not all(0 <= point <= 1 for point in points):
            raise BadSetting(
                f"quantiles {list(points)}: give shares between 0 and 1, such as (0.2, 0.5, 0.8)"
            )
        return [
            float(us) - self.samples.overhead_us
            for us in np.quantile(self.samples.counted(), points)
        ]

    @property
    def deviation_us(self) -> float:
        """Standard deviation of the samples that count, microseconds. Raises as quantiles."""
        self.quantiles(())
        return float(np.std(self.samples.counted(), ddof=min(1, self.n - 1)))

    def __repr__(self) -> str:
        return facts(self).text()

    def _repr_html_(self) -> str:
        gate = (
            f"<details><summary>the gate</summary>{self.verdict.table().html()}</details>"
            if self.verdict
            else ""
        )
        return facts(self).html() + gate


def same_card(first: Measurement, second: Measurement) -> bool:
    """Decide whether two measurements ran on one card. Cards of one model differ only if both UUIDs are known."""
    if first.context is None or second.context is None:
        return True
    one = first.context.gpu
    other = second.context.gpu
    if one.name != other.name:
        return False
    return one.uuid == other.uuid or not (one.uuid and other.uuid)


def changed_words(m: Measurement) -> str:
    """The changed settings, each behind a comma: ", l2 = warm"."""
    return "".join(f", {setting} = {value}" for setting, value in m.changed.items())


def share_cells(m: Measurement) -> dict[str, Cell]:
    """Its share of each baseline, by column: "of cuBLAS"."""
    without = Bar("–" if m.status == "measured" else "", None)
    return {
        f"of {name}": Bar(of_baseline(ratio.value, ratio.low, ratio.high), ratio.value)
        if ratio
        else without
        for name, ratio in m.against.items()
    }


def cells(m: Measurement, registers: object = None) -> dict[str, Cell]:
    """The row of one measurement by column, without numbers for a kernel that failed or was skipped. Of what isn't a
    matrix product, its axes instead of the kernel, and as far as they are known, its rates: GB/s and items/s of the
    stated bytes and elements, of copy: the share of the measured rate of a copy; hot: a launch in a row of launches.
    """
    time = m.time if m.status == "measured" else None
    row: dict[str, Cell] = {
        "time": duration(time.value, padded=True) + ("" if m.converged else " *") if time else "–",
        "±95 %": f"{small(100 * time.relative_half_width)} %" if time else "",
    }
    mhz = "" if m.sm_mhz is None else f"{m.sm_mhz:.0f}"
    if m.shape is not None:
        shares = share_cells(m)
        gate = m.status if time is None else f"{m.verdict.precision} ok" if m.verdict else "off"
        return {
            "kernel": m.kernel, "gate": gate, **row,
            "TFLOP/s": "" if m.tflops is None else f"{m.tflops:.2f}",
            "of cuBLAS": shares.get("of cuBLAS", ""),
            "of FP32 ceiling": "" if m.of_ceiling is None else f"{100 * m.of_ceiling:.1f} %",
            "SM MHz": mhz, "registers": "" if registers is None else str(registers),
            **shares,
        }  # fmt: skip
    rate = ""
    if m.tflops is not None:
        rate = f"{m.tflops:.2f} TFLOP/s" if m.tflops >= 1 else f"{1e3 * m.tflops:.1f} GFLOP/s"
    row |= {
        "time": row["time"] if time else m.status,
        "rate": rate,
        "GB/s": "" if m.gbs is None else f"{m.gbs:.4g}",
        "items/s": ""
        if m.work.elements is None or m.us is None
        else scaled(1e6 * m.work.elements / m.us),
        "of copy": percent(m.of_copy),
        "hot": "" if m.hot is None else duration(m.hot.value, padded=True),
        **share_cells(m),
        "SM MHz": mhz,
    }
    axes: dict[str, Cell] = {
        f"axis {name}" if name in row else name: str(value) for name, value in m.axes.items()
    }
    return {**(axes or {"benchmark": m.kernel}), **row}


def facts(m: Measurement) -> Table:
    """One measurement by itself: each fact with a bar where it is a share."""
    title = f"{m.title}{changed_words(m)} · {m.label or NO_LABEL}"
    if m.status != "measured" or m.time is None:
        return Table(title, (), [(m.status, m.reason or "no reason given")], left=2)
    row = cells(m)
    scatter = ""
    if m.n:
        low, high = m.quantiles((0, 1))
        scatter = f", {low:.5g} to {high:.5g} µs, standard deviation {m.deviation_us:.2g} µs"
    rows: list[tuple[str, Cell]] = [
        ("gate", f"{m.verdict.precision} ok" if m.verdict else "off"),
        ("time", f"{row['time']} ±{row['±95 %']} (95 %)"),
        ("TFLOP/s", "" if m.tflops is None else f"{m.tflops:.2f}"),
        *share_cells(m).items(),
        (
            "hot",
            f"{duration(m.hot.value, padded=True)}, launches in a row with a warm L2"
            if m.hot
            else "",
        ),
        (
            "of FP32 ceiling",
            Bar("" if m.of_ceiling is None else f"{100 * m.of_ceiling:.1f} %", m.of_ceiling),
        ),
        *(
            (name, row[name])
            for name in (("GB/s", "of copy", "items/s") if m.shape is None else ())
        ),
        *(
            [(f"of {m.roof.datapath.upper()} peak", percent(m.of_roof))]
            if m.roof and m.roof.datapath
            else ()
        ),
        ("SM MHz", row["SM MHz"]),
        ("samples", f"{m.n} of {len(m.samples.counts)} count{scatter}"),
        *(
            (name, us if isinstance(us, str) else f"{duration(us)}, warm L2")
            for name, us in m.witnesses.items()
        ),
        *(("degraded", degradation) for degradation in m.degradations),
    ]
    return Table(title, (), [fact for fact in rows if str(fact[1])], left=2)
