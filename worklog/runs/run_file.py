"""Run files: JSON Lines. First the head, then what is known, a line each; every line has a `kind`.

A file only grows, so a run that is cut short keeps every finished line. What can be derived is derived when it is read.
A file of schema 1, one JSON document, is read by worklog.runs.schema1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from worklog.errors import BadRunFile, BadSetting
from worklog.runs.calibration import Calibration
from worklog.runs.documents import Date, read_text
from worklog.runs.gpu import Gpu
from worklog.runs.measurement import Measurement
from worklog.runs.record import RunRecord
from worklog.runs.schema1 import BEFORE_PLACEMENT, from_schema_1
from worklog.settings import Harness

SCHEMA = 2
ADVICE = "measure again, or give a file that `worklog run` wrote"
R = TypeVar("R", bound=RunRecord)


def line(kind: str, value: Any) -> str:
    """One line of a run file: a record of this kind, or a mapping."""
    return msgspec.json.encode({"kind": kind, **_plain(value)}).decode()


def _plain(value: Any) -> Any:
    """A record as a mapping, without what has its default; NaN becomes null when it is encoded."""
    if is_dataclass(value) and not isinstance(value, type):
        known = {f.name: getattr(value, f.name) for f in fields(value) if f.compare}
        return {f.name: _plain(known[f.name]) for f in fields(value) if f.compare and known[f.name] != _default(f)}
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)) and value and is_dataclass(value[0]):
        return [_plain(item) for item in value]
    return value


def _default(of: Field[Any]) -> Any:
    return of.default_factory() if of.default_factory is not MISSING else of.default


def head_lines(run: RunRecord) -> list[str]:
    """Everything but the measurements."""
    head = {name: getattr(run, name) for name in ("origin", "created", "tool", "software", "harness")}
    lines = [line("head", {"schema": SCHEMA, **head})]
    lines.append(line("gpu", run.gpu))
    lines.append(line("calibration", run.calibration))
    lines += [line("kernel", {"name": name, "about": about}) for name, about in run.kernels.items()]
    return lines + [line("note", {"text": note}) for note in run.notes]


def lines_of(run: RunRecord) -> list[str]:
    """A whole run."""
    measured = [line("measurement", m) for m in run.measurements]
    return [*head_lines(run), *measured, *([line("end", {})] if run.complete else [])]


def append(path: Path, lines: Iterable[str]) -> None:
    """Add lines to a file. Raises BadRunFile if that isn't possible."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{text}\n" for text in lines))
    except OSError as error:
        raise BadRunFile(f"cannot write {path}: {error.strerror}; give another place with --out") from error


class Head(msgspec.Struct):
    """What the first line of a file must hold, as far as it is read."""

    schema: int
    created: Date
    harness: dict[str, Any]
    origin: str = "recorded"
    tool: dict[str, Any] = {}
    software: dict[str, str] = {}


def read_measurement(entry: Any) -> Measurement:
    """A line of kind measurement. Raises ValueError."""
    m = msgspec.convert(entry, Measurement)
    if m.status == "measured" and (m.time is None or not m.time.value > 0):
        raise ValueError("it is measured, but has no time")
    if any(ratio and not ratio.value > 0 for ratio in m.against.values()):
        raise ValueError("against: a ratio isn't above 0")
    if m.status == "measured" and m.verdict and not (m.verdict.accepted and m.verdict.precision):
        raise ValueError("it is measured, but its verdict isn't passed with a precision")
    return m


def read_line(text: str) -> Measurement:
    """The measurement of a line. Raises ValueError."""
    return read_measurement(msgspec.json.decode(text))


def read_run(cls: type[R], path: Path, origin: str = "") -> R:
    """Read a run file. origin: instead of what the file says; a file that says nothing is a recording.

    Raises BadRunFile, saying what to do, for one that is missing, not a run, or of a newer schema, and naming the line
    that is damaged; a last line that was cut short is left out.
    """
    try:
        texts = read_text(path).rstrip("\n").split("\n")
    except OSError as error:
        raise BadRunFile(f"cannot read {path}: {error.strerror}; {ADVICE}") from error
    except ValueError as error:
        raise BadRunFile(f"{path} is not a run: {error}: {ADVICE}") from error
    try:
        first = msgspec.json.decode(texts[0])
    except (ValueError, RecursionError):
        first = None
    if not isinstance(first, dict) or first.get("kind") != "head":
        return from_schema_1(cls, path, origin, ADVICE)
    if isinstance(first.get("schema"), int) and first["schema"] > SCHEMA:
        raise BadRunFile(
            f"{path} has schema {first['schema']}; this version reads {SCHEMA}: install a newer gemm-worklog"
        )
    return read_lines(cls, texts, path, origin)


def read_lines(cls: type[R], texts: Sequence[str], path: Path, origin: str = "") -> R:
    """A run from its lines. Raises as read_run."""
    try:
        head = msgspec.json.decode(texts[0], type=Head)
        harness = BEFORE_PLACEMENT | head.harness if head.harness else {}
        check_settings(harness)
    except (ValueError, BadSetting) as error:
        raise BadRunFile(f"{path} isn't whole (its head: {error}): {ADVICE}") from error
    known: dict[str, Any] = {"kernels": {}, "notes": [], "measurements": [], "complete": False}
    for number, text in enumerate(texts[1:], 2):
        try:
            _take(known, msgspec.json.decode(text), harness)
        except (ValueError, BadSetting, RecursionError) as error:
            if number == len(texts) and not known["complete"]:  # it was cut short while it was written
                break
            raise BadRunFile(f"{path}:{number} is damaged ({error}): {ADVICE}") from error
    for part in ("gpu", "calibration"):
        if part not in known:
            raise BadRunFile(f"{path} has no line of kind {part}: {ADVICE}")
    of: dict[str, Any] = {
        "created": head.created,
        "tool": head.tool,
        "software": head.software,
        "origin": origin or head.origin,
    }
    return cls(harness, path=path, **of, **known)


def _take(known: dict[str, Any], entry: Any, harness: Mapping[str, Any]) -> None:
    """Add what a line says; of a kind that this version doesn't know, nothing."""
    if not isinstance(entry, dict):
        raise ValueError("it isn't an object")
    kind = entry.get("kind")
    if kind == "gpu":
        known["gpu"] = msgspec.convert(entry, Gpu)
    elif kind == "calibration":
        known["calibration"] = msgspec.convert(entry, Calibration)
    elif kind == "kernel":
        about = msgspec.convert(entry.get("about"), dict[str, Any])
        known["kernels"][msgspec.convert(entry.get("name"), str)] = about
    elif kind == "note":
        known["notes"].append(msgspec.convert(entry.get("text"), str))
    elif kind == "measurement":
        m = read_measurement(entry)
        check_settings({**harness, **m.changed})
        known["measurements"].append(m)
    elif kind == "end":
        known["complete"] = True


def check_settings(values: Mapping[str, Any]) -> None:
    """Raise BadSetting for a setting that has no such value; one that this version doesn't know is ignored."""
    known = {field.name for field in fields(Harness)}
    Harness(**{name: value for name, value in values.items() if name in known})
