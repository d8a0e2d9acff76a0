"""Runs: what was measured, on which device, by which settings, from which sources. One JSON document per run.

A run file holds raw samples, so any statistic can be computed again later. It is written atomically after every
measurement, so a run that is cut short keeps every finished one.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, field, fields, replace
from datetime import UTC, datetime
from importlib import import_module, resources
from pathlib import Path
from statistics import median
from typing import Any, Literal, NotRequired, TypedDict

from worklog.errors import BadRunFile, BadSetting, WorklogError
from worklog.problem import Shape
from worklog.runs import frames, tables
from worklog.runs.clocks import CLOCK_OFF, Difference, Timed, compare
from worklog.runs.documents import ByLength, Date, Positive, read_json, write_text
from worklog.runs.estimates import Estimate
from worklog.runs.measurement import AGAINST, Measurement, as_json
from worklog.runs.samples import Reading, event_overhead_us
from worklog.settings import PITFALLS, Harness

SCHEMA = 1
BEFORE_PLACEMENT = {"placement": "fixed"}  # what a run file without this setting did; the shipped sweep is one
CHAPTERS = "chapters"  # the recordings of the rungs past the article's ladder
HEAD = ("tool", "created", "complete", "device", "software", "harness", "calibration", "kernels", "notes")
CLOCKS = {"watched": "clocks as found", "locked": "clocks locked"}


def source_label(origin: str, device: str, clocks: str, created: str) -> str:
    """What must stand beside a number: its source, the device, what was done about the clocks, and the day."""
    name, _, mhz = clocks.partition(":")
    held = CLOCKS.get(name, "clocks ignored") + (f" at {mhz} MHz" if mhz else "")
    return f"{origin} · {device} · {held} · {created[:10]}"


class Device(TypedDict, total=False):
    """What is read of the device, apart from worklog.gpu.Gpu; what could not be found out is missing."""

    name: str
    compute_capability: tuple[int, int]
    multiprocessors: Positive
    l2_bytes: Positive
    sm_clock_mhz: Positive
    fp32_peak_tflops: Positive
    memory_peak_gbs: Positive


class Calibration(TypedDict, total=False):
    """What is read of the calibration, apart from worklog.harness.Calibration; what is not known is missing or null."""

    offset_us: float | None
    offset_by_length_us: ByLength | None
    fp32_tflops: Positive | None
    copy_gbs: Positive | None
    l2_gbs: Positive | None


class File(TypedDict):
    """What a run file must hold, as far as it is read. What another version added is ignored."""

    origin: NotRequired[Literal["live", "recorded"]]
    tool: dict[str, Any]
    created: Date
    complete: bool
    device: Device
    software: dict[str, str]
    harness: dict[str, Any]
    calibration: Calibration
    kernels: dict[str, dict[str, Any]]
    notes: list[str]
    measurements: list[dict[str, Any]]


class _Charts:
    """`run.plot`, the charts of a run. Not a property, behind which IPython completes nothing."""

    def __get__(self, run: Run | None, owner: type[Run]) -> Any:
        # By name: this room lies below the charts, and matplotlib is slow to import.
        return self if run is None else import_module("worklog.plots").Plots(run)


@dataclass(repr=False)
class Run:
    """Measurements plus provenance. origin: "live" where it was measured, which its file keeps; "recorded" for one that
    ships with the package. A measurement without a label gets the run's.
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

    plot = _Charts()
    frame, samples, pivot, shares = frames.measurements, frames.samples, frames.pivot, frames.shares
    text = __repr__ = tables.text
    _repr_html_ = tables.html

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

    @property
    def unknown(self) -> list[str]:
        """Settings of pitfalls that this run is older than: it has no measurement with their bias."""
        return [g.setting for g in PITFALLS if self.harness and g.setting not in self.harness]

    def label_under(self, changed: Mapping[str, Any]) -> str:
        """The label of a measurement that was made here with these settings changed."""
        clocks = changed.get("clocks", self.harness.get("clocks", ""))
        return source_label(self.origin, self.device.get("name", "unknown GPU"), clocks, self.created)

    def overhead_us(self, m: Measurement) -> float:
        """Microseconds of event overhead that the settings remove from the measurement's samples: those of its own
        process, or this run's. 0 where neither is known.
        """
        if m.overhead_us is not None:
            return m.overhead_us
        settings = {"offset": "removed", "timer": "events"} | self.harness | m.changed
        return event_overhead_us(settings, {"offset_us": 0.0} | self.calibration)

    def difference(self, first: Measurement, second: Measurement) -> Difference:
        """Of the second measurement's time from the first one's, both of this run, at one SM clock: see compare()."""
        return compare(self._timed(first), self._timed(second))

    def _timed(self, m: Measurement) -> Timed:
        us, by = m.us or 0.0, m.changed.get("timer", self.harness.get("timer"))
        time = Estimate(us, us if m.us_low is None else m.us_low, us if m.us_high is None else m.us_high)
        return Timed(time, Reading.of_columns({"counts": [], **m.samples}), self.overhead_us(m), by == "host")

    def clock_off(self, m: Measurement) -> float | None:
        """The measurement's SM clock over the median of this run's minus 1; None where it is within CLOCK_OFF."""
        if m.sm_mhz is None:
            return None
        off = m.sm_mhz / median(other.sm_mhz for other in self.measurements if other.sm_mhz) - 1
        return off if abs(off) > CLOCK_OFF else None

    def _labelled(self, m: Measurement) -> Measurement:
        return m if m.label else replace(m, label=self.label_under(m.changed))

    def add(self, measurement: Measurement) -> None:
        """Append a measurement that was made under this run's harness, device and date."""
        self.measurements.append(self._labelled(measurement))

    def select(
        self, kernel: str | None = None, shape: Shape | None = None, changed: dict[str, Any] | None = None
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

    def against(self, m: Measurement) -> list[Measurement]:
        """The measurements of the same kernel and place against other baselines than its own, which is the first."""
        if AGAINST in m.changed:
            return [*m.beside]
        same = (one for one in self.measurements if (one.kernel, one.shape, one.axes) == (m.kernel, m.shape, m.axes))
        return [one for one in same if one.changed == {**m.changed, AGAINST: one.baseline}]

    def shapes(self) -> list[Shape]:
        """Shapes measured under the run's own harness, smallest first."""
        return sorted({m.problem for m in self.select() if m.shape}, key=lambda s: (s.flops, s))

    def save(self, path: Path | None = None) -> Path:
        """Write the document to `path` (default: where it was saved before) atomically. Raises BadRunFile."""
        target = path or self.path
        if target is None:
            raise BadRunFile("this run has no file yet: give save() a path")
        head = as_json({"schema": SCHEMA, "origin": self.origin} | {name: getattr(self, name) for name in HEAD})
        # One measurement per line, so that a diff shows which one changed.
        write_text(target, f'{head[:-1]},"measurements":[\n' + ",\n".join(m.line for m in self.measurements) + "\n]}\n")
        self.path = target
        return target

    @classmethod
    def load(cls, path: Path, origin: str = "") -> Run:
        """Read a run file. origin: instead of what the file says; a file that says nothing is a recording.

        Raises BadRunFile, saying what to do, for one that is missing, cut short, not JSON, or of a newer schema, and
        naming the part that is missing or damaged.
        """
        advice = "measure again, or give a file that `worklog run` wrote"
        document, _ = read_json(path, File, None, [SCHEMA], advice)
        values = {name: document[name] for name in HEAD}
        values["calibration"] = {name: value for name, value in values["calibration"].items() if value is not None}
        if values["harness"]:
            values["harness"] = BEFORE_PLACEMENT | values["harness"]
        where, entries = "harness ", list[Measurement]()
        try:
            _check_settings(values["harness"])
            for number, entry in enumerate(document["measurements"], 1):
                where = f"measurements {number} "
                entries.append(Measurement.from_dict(entry))
                _check_settings(values["harness"] | entries[-1].changed)
        except (ValueError, BadSetting) as error:
            raise BadRunFile(f"{path} isn't a whole document of a run ({where}{error}): {advice}") from error
        origin = origin or document.get("origin", "recorded")
        measurements = [replace(m, label=re.sub("^(live|recorded) ", f"{origin} ", m.label)) for m in entries]
        return cls(**values, measurements=measurements, origin=origin, path=path)


def _check_settings(values: Mapping[str, Any]) -> None:
    """Raise BadSetting for a setting that has no such value; one that this version doesn't know is ignored."""
    known = {field.name for field in fields(Harness)}
    Harness(**{name: value for name, value in values.items() if name in known})


def runs_dir() -> Path:
    """Where live runs are saved: WORKLOG_HOME/runs if set, else the user's data folder."""
    import platformdirs

    return Path(os.environ.get("WORKLOG_HOME") or platformdirs.user_data_dir("worklog", appauthor=False)) / "runs"


def new_path(device_name: str, created: str, token: str) -> Path:
    """A fresh file name: time, device and a few random characters."""
    slug = "".join(c if c.isalnum() else "-" for c in device_name.lower()).strip("-").removeprefix("nvidia-")
    return runs_dir() / f"{created[:19].replace(':', '-')}Z-{slug}-{token}.json"


def live_runs() -> list[Path]:
    """Run files of this machine, newest first."""
    return sorted(runs_dir().glob("*.json"), key=lambda path: path.name, reverse=True)


def recordings(part: str = "") -> dict[str, Path]:
    """Shipped runs by name, or the documents of a part: CHAPTERS, "grid", "sweeps", "peers", "turns", ..."""
    folder = Path(str(resources.files("worklog"))) / "recordings" / part
    return {path.stem: path for path in sorted(folder.glob("*.json"))}


def forced_source() -> str:
    """What WORKLOG_SOURCE forces: "live", "recorded" or "". Raises WorklogError for any other value."""
    source = os.environ.get("WORKLOG_SOURCE", "")
    if source not in ("", "live", "recorded"):
        raise WorklogError(f"WORKLOG_SOURCE={source} is not a source: set it to live or recorded, or unset it")
    return source


def open_run(path: str | Path | None = None, *, kernels: Iterable[str] = (), size: Any = None) -> Run:
    """The given file, else the newest run of this machine that has these kernels and a time at this size, else a
    recording that has. Its label says which. size: as for worklog.measure (default: any).

    WORKLOG_SOURCE=live or =recorded forces one. Raises BadRunFile if there is none, and BadShape.
    """
    names, shape = [*kernels], None if size is None else Shape.of(size)

    def holds(run: Run) -> bool:
        timed = shape is None or any(m.us for m in run.select(shape=shape))
        return timed and all(run.select(name, shape) for name in names)

    run = newest_run(holds) if path is None else Run.load(Path(path))
    if path is None and not holds(run):
        raise BadRunFile(f"no run holds {', '.join(names) or 'a time'} at {shape or 'any size'}: measure it on a GPU")
    return run


def newest_run(holds: Callable[[Run], object] = lambda run: True) -> Run:
    """The newest run of this machine that `holds` what is asked, else a recording that does, else the article's.
    WORKLOG_SOURCE forces one; raises BadRunFile if there is none. A run of this machine that can't be read is skipped
    with a warning that names it.
    """
    forced = forced_source()
    for path in () if forced == "recorded" else live_runs():
        try:
            if holds(run := Run.load(path)):
                return run
        except BadRunFile as error:
            warnings.warn(f"skipped a run of this machine: {error}; or remove it", stacklevel=3)
    if forced == "live":
        raise BadRunFile(f"WORKLOG_SOURCE=live, but {runs_dir()} holds no such run: measure one with `worklog run`")
    article = recorded_run()
    chapters = (Run.load(path, "recorded") for path in recordings(CHAPTERS).values())
    return article if holds(article) else next(filter(holds, chapters), article)


def recorded_run() -> Run:
    """The recording in the package. Raises BadRunFile if it is missing."""
    for recording in recordings().values():
        return Run.load(recording, origin="recorded")
    raise BadRunFile("this installation has no recording: install gemm-worklog again, or measure with `worklog run`")


def in_steps() -> Run:
    """What the recordings at sizes in steps hold, but where the article's recording holds the same, that one, which has
    more samples; and of that one the kernels that they don't hold.
    """
    run, files = recorded_run(), [path for name, path in recordings(CHAPTERS).items() if "sizes" in name]
    chosen = {(m.kernel, m.shape): m for path in files for m in Run.load(path, "recorded").measurements}
    stepped = {kernel for kernel, _ in chosen}
    own = [m for m in run.select() if (m.kernel, m.shape) in chosen or m.kernel not in stepped]
    chosen |= {(m.kernel, m.shape): m for m in own}
    return replace(run, measurements=sorted(chosen.values(), key=lambda m: m.problem))
