"""Runs: what was measured, on which device, by which settings, from which sources. One JSON document per run.

A run file holds raw samples, so any statistic can be computed again later. It is written atomically after every
measurement, so a run that is cut short keeps every finished one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from worklog.errors import BadRunFile, BadShape, WorklogError
from worklog.problem.gemm import Shape
from worklog.runs.documents import check, read_fields, read_json, without_nan, write_text

if TYPE_CHECKING:
    import pandas

SCHEMA = 1
BEFORE_PLACEMENT = {"placement": "fixed"}  # what a run file without this setting did; the shipped sweep is one
STATUSES = ("measured", "refused", "skipped")
HEAD = ("tool", "created", "complete", "device", "software", "harness", "calibration", "kernels", "notes")
CLOCKS = {"watched": "clocks as found", "locked": "clocks locked"}


def source_label(origin: str, device: str, clocks: str, created: str) -> str:
    """What must stand beside a number: its source, the device, what was done about the clocks, and the day."""
    name, _, mhz = clocks.partition(":")
    held = CLOCKS.get(name, "clocks ignored") + (f" at {mhz} MHz" if mhz else "")
    return f"{origin} · {device} · {held} · {created[:10]}"


@dataclass(frozen=True, repr=False)
class Measurement:
    """One kernel on one problem under one harness.

    status: "measured"; "refused" by the gate, or "skipped", with the reason and without a time. changed: settings
    that differ from the run's harness, for an ablation. Times are microseconds per launch, without the event overhead
    if the settings remove it. ratio: the baseline's time over this kernel's, pair by pair, so 1.0 is as fast as cuBLAS.
    Intervals are 95 %. flops, elements, bytes_read, bytes_written: the work of the problem, None if it isn't known.
    gbs: those bytes over the time, GB/s; of_copy, of_memory_peak: its share of the measured and of the theoretical rate
    of the memory. label: where, how and when it was measured; "" before it is in a run.
    """

    kernel: str
    shape: tuple[int, int, int]
    status: str
    reason: str | None = None
    changed: dict[str, Any] = field(default_factory=dict)
    verdict: dict[str, Any] | None = None
    us: float | None = None
    us_low: float | None = None
    us_high: float | None = None
    us_launches: float | None = None
    us_placement: float | None = None
    tflops: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    ratio_launches: float | None = None
    ratio_placement: float | None = None
    of_ceiling: float | None = None
    of_roof: float | None = None
    flops: int | None = None
    elements: int | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    gbs: float | None = None
    of_copy: float | None = None
    of_memory_peak: float | None = None
    sm_mhz: float | None = None
    throttle_mask: int = 0
    converged: bool = False
    degradations: tuple[str, ...] = ()
    samples: dict[str, list[Any]] = field(default_factory=dict)
    label: str = field(default="", compare=False)

    @property
    def problem(self) -> Shape:
        """The shape as a Shape."""
        return Shape(*self.shape)

    @property
    def n(self) -> int:
        """Samples that count."""
        return sum(self.samples.get("counts", []))

    def _repr_html_(self) -> str:
        from worklog.runs.tables import measurement_html

        return measurement_html(self)

    def __repr__(self) -> str:
        from worklog.runs.tables import facts

        return facts(self).text()

    @cached_property
    def line(self) -> str:
        """The line of a run file. Encoded once, since a long run is saved often."""
        return _json(asdict(self))

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Measurement:
        """Read one entry of a run file. Raises ValueError, TypeError or BadShape."""
        found = read_fields(cls, document)
        if found.status not in STATUSES:
            raise ValueError(f"status {found.status!r}")
        shape = found.problem  # raises BadShape
        return replace(found, shape=(shape.m, shape.n, shape.k), degradations=tuple(found.degradations))


@dataclass(repr=False)
class Run:
    """Measurements plus provenance. origin: "live" for a run of this machine, "recorded" for one that ships with the
    package. A measurement without a label gets the run's.
    """

    device: dict[str, Any]
    harness: dict[str, Any]
    tool: dict[str, Any] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    calibration: dict[str, Any] = field(default_factory=dict)
    kernels: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    complete: bool = False
    origin: str = "live"
    path: Path | None = None

    def __post_init__(self) -> None:
        self.measurements = [self._labelled(m) for m in self.measurements]

    @property
    def label(self) -> str:
        """What must stand beside every number of this run: source, device, clocks, date."""
        return self.label_under({}) + ("" if self.complete else " · cut short")

    @property
    def full_label(self) -> str:
        """The label, what was done about the event overhead, and whether the gate was off."""
        overhead, timer = self.calibration.get("offset_us"), self.harness.get("timer", "events")
        how = self.harness.get("offset", "removed")
        treated = "" if overhead is None else f" · event overhead {overhead:.2f} µs {how}"
        if timer != "events":  # only a pair of events has an overhead of its own
            treated = f" · timer {timer}, no overhead removed"
        gate = sorted({d for m in self.select() for d in m.degradations if d.startswith("gate: ")})
        return self.label + treated + (" · " + "; ".join(gate) if gate else "")

    def label_under(self, changed: Mapping[str, Any]) -> str:
        """The label of a measurement that was made here with these settings changed."""
        clocks = changed.get("clocks", self.harness.get("clocks", ""))
        return source_label(self.origin, self.device.get("name", "unknown GPU"), clocks, self.created)

    def _labelled(self, m: Measurement) -> Measurement:
        return m if m.label else replace(m, label=self.label_under(m.changed))

    def add(self, measurement: Measurement) -> None:
        """Append a measurement that was made under this run's harness, device and date."""
        self.measurements.append(self._labelled(measurement))

    def select(
        self, kernel: str | None = None, shape: Shape | None = None, changed: dict[str, Any] | None = None
    ) -> list[Measurement]:
        """Measurements of a kernel and a shape; by default only those under the run's own harness (changed = {}).
        A changed setting that the run's own harness has anyway is no change.
        """
        changed = {name: value for name, value in (changed or {}).items() if self.harness.get(name) != value}
        return [
            m
            for m in self.measurements
            if (kernel is None or m.kernel == kernel) and (shape is None or m.problem == shape) and m.changed == changed
        ]

    def shapes(self) -> list[Shape]:
        """Shapes measured under the run's own harness, smallest first."""
        return sorted({m.problem for m in self.select()}, key=lambda s: (s.flops, s))

    def frame(self) -> pandas.DataFrame:
        """One row per measurement, without raw samples."""
        import pandas

        rows = []
        for m in map(self._labelled, self.measurements):
            row = asdict(m)
            for name in ("samples", "verdict", "shape", "changed", "degradations"):
                del row[name]
            row |= dict(zip("mnk", m.shape, strict=True))
            row["samples"] = m.n
            row["changed"] = ", ".join(f"{k}={v}" for k, v in m.changed.items())
            row["precision"] = (m.verdict or {}).get("precision")
            row["source"] = m.label.partition(" · ")[0]
            row["degradations"] = "; ".join(m.degradations)
            rows.append(row)
        return pandas.DataFrame(rows)

    def save(self, path: Path | None = None) -> Path:
        """Write the document to `path` (default: where it was saved before) atomically. Raises BadRunFile."""
        target = path or self.path
        if target is None:
            raise BadRunFile("this run has no file yet: give save() a path")
        head = _json({"schema": SCHEMA} | {name: getattr(self, name) for name in HEAD})
        # One measurement per line, so that a diff shows which one changed.
        write_text(target, f'{head[:-1]},"measurements":[\n' + ",\n".join(m.line for m in self.measurements) + "\n]}\n")
        self.path = target
        return target

    @classmethod
    def load(cls, path: Path, origin: str = "live") -> Run:
        """Read a run file. Raises BadRunFile, saying what to do, for one that is missing, cut short, not JSON, or of
        a newer schema.
        """
        advice = "measure again, or give a file that `worklog run` wrote"
        document = read_json(path, None, [SCHEMA], advice)
        hints = get_type_hints(cls)
        try:
            check("", document, {name: hints[name] for name in HEAD} | {"measurements": list[dict[str, Any]]})
            entries = [Measurement.from_dict(entry) for entry in document["measurements"]]
        except (TypeError, ValueError, BadShape) as error:
            raise BadRunFile(f"{path} lacks what a run file of schema {SCHEMA} holds ({error}): {advice}") from error
        values = {name: document[name] for name in HEAD}
        if values["harness"]:
            values["harness"] = BEFORE_PLACEMENT | values["harness"]
        measurements = [replace(m, label=re.sub("^live ", f"{origin} ", m.label)) for m in entries]
        return cls(**values, measurements=measurements, origin=origin, path=path)

    def _repr_html_(self) -> str:
        from worklog.runs.tables import html

        return html(self)

    def __repr__(self) -> str:
        from worklog.runs.tables import text

        return text(self)


def _json(value: Any) -> str:
    return json.dumps(without_nan(value), separators=(",", ":"), allow_nan=False)


def runs_dir() -> Path:
    """Where live runs are saved: WORKLOG_HOME/runs if set, else the user's data folder."""
    import platformdirs

    return Path(os.environ.get("WORKLOG_HOME") or platformdirs.user_data_dir("worklog", appauthor=False)) / "runs"


def new_path(device_name: str, created: str, token: str) -> Path:
    """A fresh file name: time, device and a few random characters."""
    slug = "".join(c if c.isalnum() else "-" for c in device_name.lower()).strip("-").removeprefix("nvidia-")
    return runs_dir() / f"{created[:19].replace(':', '-')}Z-{slug}-{token}.json"


def live_runs() -> Iterator[Path]:
    """Run files of this machine, newest first."""
    folder = runs_dir()
    if folder.is_dir():
        yield from sorted(folder.glob("*.json"), key=lambda p: p.name, reverse=True)


def recordings() -> dict[str, Path]:
    """Shipped runs by name."""
    folder = Path(str(resources.files("worklog"))) / "recordings"
    return {path.stem: path for path in sorted(folder.glob("*.json"))}


def forced_source() -> str:
    """What WORKLOG_SOURCE forces: "live", "recorded" or "". Raises WorklogError for any other value."""
    source = os.environ.get("WORKLOG_SOURCE", "")
    if source not in ("", "live", "recorded"):
        raise WorklogError(f"WORKLOG_SOURCE={source} is not a source: set it to live or recorded, or unset it")
    return source


def open_run(path: str | Path | None = None) -> Run:
    """The given file, else this machine's latest run, else the recording. Its label says which.

    WORKLOG_SOURCE=live or =recorded forces one. Raises BadRunFile if there is none.
    """
    if path is not None:
        shipped = Path(path).resolve() in {recording.resolve() for recording in recordings().values()}
        return Run.load(Path(path), origin="recorded" if shipped else "live")
    forced = forced_source()
    latest = None if forced == "recorded" else next(live_runs(), None)
    if latest is not None:
        return Run.load(latest)
    if forced == "live":
        raise BadRunFile(f"WORKLOG_SOURCE=live, but {runs_dir()} holds no run: measure one with `worklog run`")
    return recorded_run()


def recorded_run() -> Run:
    """The recording in the package. Raises BadRunFile if it is missing."""
    for recording in recordings().values():
        return Run.load(recording, origin="recorded")
    raise BadRunFile("this installation has no recording: install gemm-worklog again, or measure with `worklog run`")
