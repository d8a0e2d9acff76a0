"""The log: what was measured, on what, how, and what it was made of. One JSON document a run.

A run file holds raw samples, so that any statistic can be taken again later. It is written whole and atomically after
every measurement, so a run that is cut short keeps all that it had.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worklog.errors import BadRunFile, WorklogError
from worklog.gemm import Shape

if TYPE_CHECKING:
    import pandas

SCHEMA = 1
STATUSES = ("measured", "refused", "skipped")
HEAD = ("tool", "created", "complete", "device", "software", "harness", "calibration", "kernels", "notes")


@dataclass(frozen=True)
class Measurement:
    """One kernel on one problem under one harness.

    status: "measured"; "refused" by the gate, or "skipped", with the reason and without a time. changed: settings
    that differ from the run's harness, for an ablation. Times are microseconds of one launch, after the offset's
    treatment; `us_raw` and `baseline_us_raw` are as read. ratio: the baseline's time over this kernel's, pair by
    pair, so 1.0 is as fast as cuBLAS. Intervals are 95 %.
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
    tflops: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    of_ceiling: float | None = None
    of_roof: float | None = None
    sm_mhz: float | None = None
    throttle_mask: int = 0
    converged: bool = False
    degradations: tuple[str, ...] = ()
    samples: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def problem(self) -> Shape:
        """The shape as a Shape."""
        return Shape(*self.shape)

    @property
    def n(self) -> int:
        """Samples that count."""
        return sum(self.samples.get("counts", []))

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Measurement:
        """Read one entry of a run file; fields that a later tool added are ignored."""
        known = {f.name for f in fields(cls)}
        values = {key: value for key, value in document.items() if key in known}
        values["shape"] = tuple(values["shape"])
        values["degradations"] = tuple(values.get("degradations", ()))
        if values["status"] not in STATUSES:
            raise ValueError(f"status {values['status']!r}")
        return cls(**values)


@dataclass
class Run:
    """Measurements plus provenance. `origin` is "live" for a run of this machine and "recorded" for one that ships
    with the package.
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
    _encoded: dict[int, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def label(self) -> str:
        """What must stand beside every number of this run: source, device, clocks, date."""
        clocks = "clocks as found" if self.harness.get("clocks") == "watched" else "clocks ignored"
        cut = "" if self.complete else " · cut short"
        return f"{self.origin} · {self.device.get('name', 'unknown GPU')} · {clocks} · {self.created[:10]}{cut}"

    def select(
        self, kernel: str | None = None, shape: Shape | None = None, changed: dict[str, Any] | None = None
    ) -> list[Measurement]:
        """Measurements of a kernel and a shape; by default only those under the run's own harness (changed = {})."""
        changed = changed or {}
        return [
            m
            for m in self.measurements
            if (kernel is None or m.kernel == kernel) and (shape is None or m.problem == shape) and m.changed == changed
        ]

    def shapes(self) -> list[Shape]:
        """Shapes measured under the run's own harness, smallest first."""
        return sorted({m.problem for m in self.select()}, key=lambda s: (s.flops, s))

    def frame(self) -> pandas.DataFrame:
        """One row a measurement, without raw samples."""
        import pandas

        rows = []
        for m in self.measurements:
            row = {
                k: v
                for k, v in asdict(m).items()
                if k not in ("samples", "verdict", "shape", "changed", "degradations")
            }
            row |= {
                "m": m.shape[0],
                "n": m.shape[1],
                "k": m.shape[2],
                "samples": m.n,
                "changed": ", ".join(f"{k}={v}" for k, v in m.changed.items()),
            }
            row |= {
                "precision": (m.verdict or {}).get("precision"),
                "source": self.origin,
                "degradations": "; ".join(m.degradations),
            }
            rows.append(row)
        return pandas.DataFrame(rows)

    def save(self, path: Path | None = None) -> Path:
        """Write the document to `path` (default: where it was saved before) in one atomic step. Raises BadRunFile if
        it cannot be written.
        """
        target = path or self.path
        if target is None:
            raise BadRunFile("this run has no file yet: give save() a path")
        head = {name: getattr(self, name) for name in HEAD}
        # One measurement a line, encoded once: a long run is saved often, and a diff shows which line changed.
        lines = [self._encoded.setdefault(id(m), _json(asdict(m))) for m in self.measurements]
        text = f'{_json({"schema": SCHEMA, **head})[:-1]},"measurements":[\n' + ",\n".join(lines) + "\n]}\n"
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(target)
        except OSError as error:
            raise BadRunFile(
                f"cannot write the run to {target}: {error.strerror}; give another place with --out"
            ) from error
        self.path = target
        return target

    @classmethod
    def load(cls, path: Path, origin: str = "live") -> Run:
        """Read a run file. Raises BadRunFile, saying what to do, for one that is missing, cut short, not JSON, or of
        a newer schema.
        """
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise BadRunFile(f"cannot read the run {path}: {error.strerror}") from error
        except ValueError as error:
            raise BadRunFile(
                f"{path} is not a whole JSON document ({error}): it was cut short or is no run file; "
                "measure again, or take another file"
            ) from error
        schema = document.get("schema") if isinstance(document, dict) else None
        if not isinstance(schema, int):
            raise BadRunFile(
                f"{path} is JSON but no run file (it states no schema): give a file that `worklog run` wrote"
            )
        if schema > SCHEMA:
            raise BadRunFile(
                f"{path} has schema {schema}, newer than this worklog reads ({SCHEMA}): "
                "pip install --upgrade gemm-worklog"
            )
        try:
            run = cls(**{name: document[name] for name in HEAD}, origin=origin, path=path)
            run.measurements = [Measurement.from_dict(entry) for entry in document["measurements"]]
        except (KeyError, TypeError, ValueError) as error:
            raise BadRunFile(
                f"{path} lacks what a run file of schema {schema} holds ({error!r}): "
                "measure again, or take another file"
            ) from error
        return run

    def _repr_html_(self) -> str:
        from worklog.tables import html

        return html(self)

    def __str__(self) -> str:
        from worklog.tables import text

        return text(self)


def _json(value: Any) -> str:
    return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    """NaN and infinities as null: JSON has neither."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def runs_dir() -> Path:
    """Where live runs are saved: WORKLOG_HOME/runs if set, else the user's data folder."""
    home = os.environ.get("WORKLOG_HOME")
    if home:
        return Path(home) / "runs"
    import platformdirs

    return Path(platformdirs.user_data_dir("worklog", appauthor=False)) / "runs"


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


def open_run(path: str | Path | None = None) -> Run:
    """The run to look at: the file given, else this machine's latest run, else the recording. Its label says which.

    WORKLOG_SOURCE=live or =recorded forces one. Raises BadRunFile where there is none.
    """
    if path is not None:
        given = Path(path)
        return Run.load(
            given, origin="recorded" if given.resolve() in {p.resolve() for p in recordings().values()} else "live"
        )
    source = os.environ.get("WORKLOG_SOURCE", "")
    if source not in ("", "live", "recorded"):
        raise WorklogError(f"WORKLOG_SOURCE={source} is not a source: set it to live or recorded, or unset it")
    if source != "recorded":
        for latest in live_runs():
            return Run.load(latest)
        if source == "live":
            raise BadRunFile(f"WORKLOG_SOURCE=live, but {runs_dir()} holds no run: measure one with `worklog run`")
    for recording in recordings().values():
        return Run.load(recording, origin="recorded")
    raise BadRunFile("this installation has no recording: install gemm-worklog again, or measure with `worklog run`")
