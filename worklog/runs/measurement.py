"""A measurement: what was found of one function at one place, with the raw samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, NotRequired, TypedDict

import numpy as np
from msgspec import Meta

from worklog.errors import BadSetting
from worklog.problem import Shape
from worklog.runs import tables
from worklog.runs.documents import Count, Positive, Whole, converted, without_nan

Status = Annotated[str, Meta(pattern="^(measured|refused|skipped)$")]
AGAINST = "against"  # among the changed settings: another baseline than cuBLAS, or than a benchmark's first one


class Stage(TypedDict):
    """A stage of the gate, as far as it is read here."""

    name: str
    passed: bool
    measured: float | None
    limit: float | None
    detail: str
    seconds: NotRequired[float]
    note: NotRequired[str]


class Verdict(TypedDict):
    """The gate's verdict, as far as it is read here."""

    accepted: bool
    precision: str | None
    seed: NotRequired[int | None]
    stages: list[Stage]


class Samples(TypedDict, total=False):
    """Raw samples, a column each: see worklog.runs.samples.Reading."""

    us: list[Annotated[float, Meta(ge=0)]]
    baseline_us: list[Annotated[float, Meta(ge=0)]]
    hot_us: list[float]
    hot_baseline_us: list[float]
    sm_mhz: list[float | None]
    baseline_sm_mhz: list[float | None]
    counts: list[int]
    placement: list[int]
    baseline_placement: list[int]
    kernels: list[int]


class Entry(TypedDict, total=False):
    """What an entry of a run file must hold beyond the types of a Measurement's fields."""

    verdict: Verdict | None
    samples: Samples


@dataclass(frozen=True, repr=False)
class Measurement:
    """One kernel on one problem under one harness. It shows itself.

    kernel: what was timed, by name. shape: of a matrix product; None for any other function, whose place in its
    benchmark is given by axes, the value of each. status: "measured"; "refused" by the gate, or "skipped", with the
    reason and without a time. changed: settings that differ from the run's harness, for an ablation. Times are
    microseconds per launch, without overhead_us, the event overhead if the settings remove it, which the samples still
    hold. ratio: the baseline's time over this kernel's, pair by pair: above 1, this one is faster. Intervals are 95 %.
    flops, elements, bytes_read, bytes_written: the work of the problem, None if it isn't known. gbs: those bytes over
    the time, GB/s; of_copy, of_memory_peak: its share of the measured and of the theoretical rate of the memory.
    hot_us: of launches in a row with a warm L2, and hot_ratio: the baseline's over it. joules: energy of one launch,
    watts: the average power, and celsius: the temperature, if they were read. baseline: what the ratio is against.
    datapath: the one whose theoretical peak, at the clock that was seen, of_roof is a share of (None: FP32's, for a
    matrix product). witnesses: microseconds of one launch with a warm L2 by a graph, the tracer and the wall clock, if
    it was cross-checked; or why one has no reading. label: where, how and when it was measured; "" before it is in a
    run. beside: the same turns against further baselines; in a run, each is a measurement of its own.
    """

    kernel: str
    shape: tuple[Count, Count, Count] | None
    status: Status
    reason: str | None = None
    changed: dict[str, Any] = field(default_factory=dict)
    verdict: dict[str, Any] | None = None
    us: Positive | None = None
    us_low: float | None = None
    us_high: float | None = None
    us_launches: float | None = None
    us_placement: float | None = None
    us_process: float | None = None
    overhead_us: float | None = None
    tflops: Positive | None = None
    ratio: Positive | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    ratio_launches: float | None = None
    ratio_placement: float | None = None
    ratio_process: float | None = None
    of_ceiling: float | None = None
    of_roof: float | None = None
    datapath: str | None = None
    flops: Whole | None = None
    elements: Whole | None = None
    bytes_read: Whole | None = None
    bytes_written: Whole | None = None
    gbs: Positive | None = None
    of_copy: float | None = None
    of_memory_peak: float | None = None
    hot_us: Positive | None = None
    hot_low: float | None = None
    hot_high: float | None = None
    hot_ratio: float | None = None
    joules: float | None = None
    watts: float | None = None
    celsius: float | None = None
    sm_mhz: Positive | None = None
    throttle_mask: int = 0
    converged: bool = False
    degradations: tuple[str, ...] = ()
    axes: dict[str, Any] = field(default_factory=dict)
    baseline: str = "cuBLAS"
    witnesses: dict[str, float | str] = field(default_factory=dict)
    samples: dict[str, list[Any]] = field(default_factory=dict)
    label: str = field(default="", compare=False)
    beside: tuple[Measurement, ...] = ()

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
    def outcome(self) -> str:
        """The status as it is shown: what a file calls "refused" has failed."""
        return "failed" if self.status == "refused" else self.status

    @property
    def moved_bytes(self) -> int:
        """Bytes read and written by one launch, as far as they are known."""
        return (self.bytes_read or 0) + (self.bytes_written or 0)

    @property
    def _counted(self) -> list[float]:
        return [us for us, counts in zip(*map(self.samples.get, ("us", "counts")), strict=True) if counts]

    def quantiles(self, points: Sequence[float] = (0.2, 0.5, 0.8)) -> list[float]:
        """Of the samples that count, interpolated, in microseconds without the event overhead; 0 and 1 are the fastest
        and the slowest. With several placements, `us` is their mean and may differ from the median of all samples.
        Raises BadSetting for a point outside of 0 to 1, and for a measurement without samples or without its overhead.

        Example: `worklog.time(fn).quantiles((0, 0.5, 0.99))`.
        """
        if self.overhead_us is None or not self.n:
            raise BadSetting(f"{self.title} has no quantiles: its samples or their event overhead aren't in the file")
        if not all(0 <= point <= 1 for point in points):
            raise BadSetting(f"quantiles {list(points)}: give shares between 0 and 1, such as (0.2, 0.5, 0.8)")
        return [float(us) - self.overhead_us for us in np.quantile(self._counted, points)]

    @property
    def deviation_us(self) -> float:
        """Standard deviation of the samples that count, microseconds. Raises as quantiles."""
        self.quantiles(())
        return float(np.std(self._counted, ddof=min(1, self.n - 1)))

    @property
    def scatter(self) -> str:
        """The extremes and the standard deviation of the samples in words; "" if they aren't known."""
        if self.overhead_us is None or not self.n:
            return ""
        low, high = self.quantiles((0, 1))
        return f", {low:.5g} to {high:.5g} µs, standard deviation {self.deviation_us:.2g} µs"

    @property
    def cycles(self) -> float | None:
        """SM cycles of one launch, where the clock is known."""
        return None if self.sm_mhz is None or self.us is None else self.us * self.sm_mhz

    @property
    def n(self) -> int:
        """Samples that count."""
        return sum(self.samples.get("counts", []))

    _repr_html_ = tables.measurement_html

    def relative_half_width(self, name: str) -> float:
        """Half of the 95 % interval of its time ("us") or ratio over the value; 0 if it isn't known."""
        middle, low, high = (getattr(self, name + end) for end in ("", "_low", "_high"))
        return 0.0 if not middle or None in (low, high) else float(high - low) / 2 / middle

    def __repr__(self) -> str:
        return tables.facts(self).text()

    @cached_property
    def line(self) -> str:
        """The line of a run file. Encoded once, since a long run is saved often."""
        return as_json({name: value for name, value in asdict(self).items() if name != "beside"})

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Measurement:
        """Read one entry of a run file. Raises ValueError."""
        converted(document, Entry)
        found = replace(converted(document, cls), beside=())
        _check_columns(found.samples)
        verdict = found.verdict
        if found.status == "measured" and verdict and not (verdict["accepted"] and verdict["precision"]):
            raise ValueError("status is 'measured', but the verdict isn't accepted with a precision")
        return found


def _check_columns(samples: Mapping[str, Sequence[Any]]) -> None:
    """Raise ValueError for a column that isn't as long as its times."""
    for times, *others in (("us", "sm_mhz", "placement", "counts"), ("baseline_us", "baseline_sm_mhz")):
        count = len(samples.get(times, ()))
        for name in others:
            if len(samples.get(name, [0] * count)) != count:
                raise ValueError(f"samples {name} has {len(samples[name])} values for {count} times")


def as_json(value: Any) -> str:
    """One line, NaN as null."""
    return json.dumps(without_nan(value), separators=(",", ":"), allow_nan=False)
