"""A run's data: what was measured, on which GPU, by which settings, from which sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from worklog.problem import Shape
from worklog.runs.calibration import Calibration
from worklog.runs.clocks import CLOCK_OFF, Difference, Timed, compare
from worklog.runs.gpu import Gpu
from worklog.runs.measurement import Context, Measurement, source_label
from worklog.settings import PITFALLS


@dataclass(repr=False)
class RunRecord:
    """Measurements plus provenance. harness: its settings. origin: "live" where it was measured, which its file keeps;
    "recorded" for one that ships with the package. A measurement without a context gets the run's.
    """

    harness: dict[str, Any]
    gpu: Gpu
    calibration: Calibration
    tool: dict[str, Any] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    kernels: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    complete: bool = False
    origin: str = "live"
    path: Path | None = None

    def __post_init__(self) -> None:
        self.measurements = [self.in_context(m) for m in self.measurements]

    @cached_property
    def context(self) -> Context:
        """What the run knows about all its measurements."""
        clocks = str(self.harness.get("clocks", ""))
        return Context(self.origin, clocks, self.created, self.gpu, self.calibration)

    def in_context(self, m: Measurement) -> Measurement:
        """The measurement with this run's context, unless it has another."""
        return replace(m, context=self.context) if m.context is None else m

    @property
    def label(self) -> str:
        """What must stand beside every number of this run: source, device, clocks, date."""
        whole = source_label(self.origin, self.gpu.name, self.context.clocks, self.created)
        return whole + ("" if self.complete else " · cut short")

    @property
    def full_label(self) -> str:
        """The label, what was done about the event overhead, and whether the gate was off."""
        timer, how = self.harness.get("timer", "events"), self.harness.get("offset", "removed")
        treated = f" · event overhead {self.calibration.offset_us:.2f} µs {how}"
        if timer != "events":  # only a pair of events has an overhead of its own
            treated = f" · timer {timer}, no overhead removed"
        gate = sorted({said for m in self.select() for said in m.degradations if said.startswith("gate: ")})
        return self.label + treated + (" · " + "; ".join(gate) if gate else "")

    @property
    def unknown(self) -> list[str]:
        """Settings of pitfalls that this run is older than: it has no measurement with their bias."""
        return [pitfall.setting for pitfall in PITFALLS if self.harness and pitfall.setting not in self.harness]

    def select(
        self, kernel: str | None = None, shape: Shape | None = None, changed: Mapping[str, Any] | None = None
    ) -> list[Measurement]:
        """Measurements of a kernel and a shape; by default only those under the run's own harness (changed = {}).
        A changed setting with the value that the run's own harness has doesn't count.
        """
        changed = {name: value for name, value in (changed or {}).items() if self.harness.get(name) != value}
        return [
            m
            for m in self.measurements
            if (kernel is None or m.kernel == kernel)
            and (shape is None or m.shape == astuple(shape))
            and m.changed == changed
        ]

    def shapes(self) -> list[Shape]:
        """Shapes measured under the run's own harness, smallest first."""
        return sorted({m.problem for m in self.select() if m.shape}, key=lambda shape: (shape.flops, shape))

    def difference(self, first: Measurement, second: Measurement) -> Difference:
        """Of the second measurement's time from the first one's, both of this run, at one SM clock: see compare()."""
        return compare(self._timed(first), self._timed(second))

    def _timed(self, m: Measurement) -> Timed:
        assert m.time is not None
        by = m.changed.get("timer", self.harness.get("timer"))
        return Timed(m.time, m.samples, m.overhead_us, by == "host")

    def clock_off(self, m: Measurement) -> float | None:
        """The measurement's SM clock over the median of this run's minus 1; None where it is within CLOCK_OFF."""
        if m.sm_mhz is None:
            return None
        off = m.sm_mhz / median(other.sm_mhz for other in self.measurements if other.sm_mhz) - 1
        return off if abs(off) > CLOCK_OFF else None
