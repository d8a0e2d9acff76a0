"""A run: what was measured, on which GPU, by which settings, from which sources; and its file, in which it grows.

A run file is JSON Lines. First the head, then what is known, a line each; every line has a `kind`. It only grows, so a
run that is cut short keeps every finished line. What can be derived is derived when it is read. Users may
still have files of schema 1.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Self

import msgspec

from worklog.errors import BadSetting
from worklog.problem import Shape
from worklog.runs.documents import (
    WRITTEN,
    BadRunFile,
    Date,
    own_folder,
    read_json,
    read_text,
    require_schema,
    write_text,
)
from worklog.runs.estimates import CLOCK_OFF, Difference, Summary, compare, event_overhead_us
from worklog.runs.measurement import Context, Measurement, Work, same_card, source_label
from worklog.runs.records import Calibration, Counters, Gpu
from worklog.settings import COMMAND, PITFALLS, Harness

SCHEMA = 2
ADVICE = "measure again, or give a file that `worklog run` wrote"
BEFORE_PLACEMENT = {
    "placement": "fixed"
}  # what a run file without this setting did; the shipped sweep is one


@dataclass(frozen=True)
class Card:
    """One of several cards of a run."""

    gpu: Gpu
    calibration: Calibration


@dataclass(repr=False)
class RunRecord:
    """Measurements plus provenance. harness: its settings. origin: "live" where it was measured, which its file keeps;
    "recorded" for one that ships with the package. path: of its file. cards: of a sweep, by name; gpu and calibration
    are the first one's. A measurement without a context gets the run's, or that of its card.
    """

    harness: dict[str, Any]
    gpu: Gpu
    calibration: Calibration
    tool: dict[str, Any] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)
    created: Date = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    kernels: dict[str, dict[str, Any]] = field(default_factory=dict)
    cards: dict[str, Card] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    counters: list[Counters] = field(default_factory=list)
    complete: bool = False
    origin: str = "live"
    path: Path | None = None

    def __post_init__(self) -> None:
        self.measurements = [self._in_context(m) for m in self.measurements]

    @cached_property
    def context(self) -> Context:
        """What the run knows about all its measurements."""
        clocks = str(self.harness.get("clocks", ""))
        return Context(self.origin, clocks, self.created, self.gpu, self.calibration)

    def _in_context(self, m: Measurement) -> Measurement:
        if m.context is not None:
            return m
        card = self.cards.get(m.ran.card) if m.ran else None
        if m.ran is None or card is None:
            return replace(m, context=self.context)
        began = datetime.fromtimestamp(m.ran.began, UTC).isoformat(
            timespec="seconds"
        )  # maybe before this run
        return replace(
            m,
            context=replace(
                self.context, created=began, gpu=card.gpu, calibration=card.calibration
            ),
        )

    @property
    def label(self) -> str:
        """What must stand beside every number of this run: source, device, clocks, date."""
        whole = source_label(self.origin, self.gpu.name, self.context.clocks, self.created)
        return whole + ("" if self.complete else " · cut short")

    @property
    def full_label(self) -> str:
        """The label, what was done about the event overhead, and whether the gate was off."""
        timer = self.harness.get("timer", "events")
        how = self.harness.get("offset", "removed")
        treated = f" · event overhead {self.calibration.offset_us:.2f} µs {how}"
        if timer != "events":  # only a pair of events has an overhead of its own
            treated = f" · timer {timer}, no overhead removed"
        gate = sorted(
            {said for m in self.select() for said in m.degradations if said.startswith("gate: ")}
        )
        return self.label + treated + (" · " + "; ".join(gate) if gate else "")

    @property
    def unknown(self) -> list[str]:
        """Settings of pitfalls that this run is older than: it has no measurement with their bias."""
        return [
            pitfall.setting
            for pitfall in PITFALLS
            if self.harness and pitfall.setting not in self.harness
        ]

    def select(
        self,
        kernel: str | None = None,
        shape: Shape | None = None,
        changed: Mapping[str, Any] | None = None,
    ) -> list[Measurement]:
        """Measurements of a kernel and a shape; by default only those under the run's own harness (changed = {}).
        A changed setting with the value that the run's own harness has doesn't count.
        """
        changed = {
            name: value
            for name, value in (changed or {}).items()
            if self.harness.get(name) != value
        }
        return [
            m
            for m in self.measurements
            if (kernel is None or m.kernel == kernel)
            and (shape is None or m.shape == astuple(shape))
            and m.changed == changed
        ]

    def shapes(self) -> list[Shape]:
        """Shapes measured under the run's own harness, smallest first."""
        return sorted(
            {m.problem for m in self.select() if m.shape}, key=lambda shape: (shape.flops, shape)
        )

    def by_card(self) -> list[Self]:
        """Return a run for each card, with its measurements, GPU and calibration; this run alone if it has one card.
        Numbers of two cards can't be combined. The run's own card is the first one, if it has a measurement.
        """
        parts = list[list[Measurement]]()
        for m in self.measurements:
            part = next((part for part in parts if same_card(part[0], m)), None)
            if part is None:
                parts.append([m])
            else:
                part.append(m)
        if len(parts) < 2:
            return [self]
        runs = list[Self]()
        for part in parts:
            context = part[0].context or self.context
            on_card = replace(self, gpu=context.gpu, calibration=context.calibration)
            on_card.measurements = part
            runs.append(on_card)
        return sorted(runs, key=lambda run: run.gpu.name != self.gpu.name)

    def rows_of(self, measurements: Sequence[Measurement]) -> list[str]:
        """For each measurement the row that it belongs to in a table of kernels: its kernel; if several cards measured
        that kernel at one place, a row for each card.
        """
        first = dict[tuple[str, str], Measurement]()
        on_several = {
            m.kernel
            for m in measurements
            if not same_card(first.setdefault((m.kernel, m.place), m), m)
        }
        models = {part.gpu.name for part in self.by_card()}
        return [
            f"{m.kernel} on {_card_of(m, by_model=len(models) > 1)}"
            if m.kernel in on_several
            else m.kernel
            for m in measurements
        ]

    def difference(self, first: Measurement, second: Measurement) -> Difference:
        """Compare the second measurement's time with the first one's, both of this run, at one SM clock: see compare().
        Raises BadSetting for measurements on two cards.
        """
        if not same_card(first, second):
            raise BadSetting(
                f"{first.title} and {second.title} ran on two cards ({first.label}; {second.label}): "
                "measure both on one"
            )
        times = []
        for m in (first, second):
            assert m.time is not None
            times.append(Summary(m.samples, m.time, {}, self.by_host(m)))
        return compare(*times)

    def by_host(self, m: Measurement) -> bool:
        """Tell if a host clock timed the measurement."""
        return m.changed.get("timer", self.harness.get("timer")) == "host"

    def clock_off(self, m: Measurement) -> float | None:
        """The measurement's SM clock over the median of its card's in this run minus 1; None if within CLOCK_OFF."""
        if m.sm_mhz is None:
            return None
        clocks = [
            other.sm_mhz for other in self.measurements if other.sm_mhz and same_card(m, other)
        ]
        off = m.sm_mhz / median(clocks) - 1
        return off if abs(off) > CLOCK_OFF else None

    @classmethod
    def load(cls, path: str | Path, origin: str = "") -> Self:
        """Read a run file. origin: instead of what the file says; one that says nothing is a recording.

        Raises BadRunFile, saying what to do, for a file that is missing, not a run, or of a newer schema, and naming
        the part that is damaged; a last line that was cut short is left out.
        """
        path = Path(path)
        return cls._checked(_read(path) | ({"origin": origin} if origin else {}), path)

    @classmethod
    def _checked(cls, document: dict[str, Any], path: Path) -> Self:
        settings = {field.name for field in fields(Harness)}
        try:
            if "created" not in document:  # its default is the date of a run that begins
                raise ValueError("Object missing required field `created`")
            run = msgspec.convert({"origin": "recorded", **document}, cls)
            run.harness = BEFORE_PLACEMENT | run.harness if run.harness else {}
            different = {
                str(changed): changed
                for changed in ({}, *(_sound(m).changed for m in run.measurements))
            }
            for changed in different.values():
                values = (
                    run.harness | changed
                )  # a setting that this version doesn't know is ignored
                Harness(**{name: value for name, value in values.items() if name in settings})
        except (ValueError, BadSetting, RecursionError) as error:
            raise BadRunFile(f"{path} isn't a whole run ({error}): {ADVICE}") from error
        run.path = path
        return run

    @classmethod
    def of_head(cls, head: Sequence[str], path: Path = Path()) -> Self:
        """A run without measurements. head: the lines of its file. Raises BadRunFile."""
        return cls._checked(_read_lines(head, path), path)

    @classmethod
    def begin(cls, head: Sequence[str], path: Path) -> Self:
        """A run with this head and the command that is carried out, in a file that is empty. Raises BadRunFile."""
        run = cls.of_head(head, path)
        run.tool |= {"command": [*COMMAND.get()]} if COMMAND.get() else {}
        run._append("\n".join(run.head_lines()))
        return run

    def require_same_setup(self, other: RunRecord) -> None:
        """Raise BadSetting, naming what differs, if the other run was measured on another setup.

        A setup is the GPU, the harness with its settings, and the versions of the software.
        """
        mine = self._setup()
        others = other._setup()
        differing = [
            f"{name} {mine.get(name, 'unknown')} there, {others.get(name, 'unknown')} here"
            for name in {**mine, **others}
            if mine.get(name) != others.get(name)
        ]
        if differing:
            raise BadSetting(
                f"{self.path} can't be resumed: {'; '.join(differing)}: measure anew, without --resume"
            )

    def _setup(self) -> dict[str, object]:
        tool = {name: self.tool.get(name) for name in ("version", "harness")}
        gpu = {f"GPU {field.name}": getattr(self.gpu, field.name) for field in fields(self.gpu)}
        return {
            **gpu,
            **{f"worklog's {name}": value for name, value in tool.items()},
            **self.software,
            **self.harness,
        }

    def head_lines(self) -> list[str]:
        """The lines of its file but the measurements."""
        head = {
            name: getattr(self, name)
            for name in ("origin", "created", "tool", "software", "harness")
        }
        lines = [line("head", {"schema": SCHEMA, **head})]
        lines += [line("gpu", self.gpu), line("calibration", self.calibration)]
        lines += [line("card", {"name": name, "about": card}) for name, card in self.cards.items()]
        lines += [
            line("kernel", {"name": name, "about": about}) for name, about in self.kernels.items()
        ]
        return lines + [line("note", {"text": note}) for note in self.notes]

    def save(self, path: str | Path | None = None) -> Path:
        """Write the whole file to `path` (default: where it was saved before) atomically. Raises BadRunFile."""
        if not (path or self.path):
            raise BadRunFile("this run has no file yet: give save() a path")
        target = Path(path or self.path or "")
        lines = self.head_lines() + [line("measurement", m) for m in self.measurements]
        lines += [line("counters", counters) for counters in self.counters]
        lines += [line("end", {})] if self.complete else []
        write_text(target, "".join(f"{text}\n" for text in lines))
        self.path = target
        return target

    def add(self, m: Measurement | str, about: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Append a measurement that was made under this run's harness, device and date, or its line as it stands.
        about: its kernel; what a launch there chose is added to what is known of the kernel.
        """
        text, m = (m, read_line(m)) if isinstance(m, str) else (line("measurement", m), m)
        known = self.kernels.get(
            m.kernel, {name: what for name, what in about.items() if name != "choices"}
        )
        if m.place in (choices := about.get("choices", {})):
            known = {**known, "choices": {**known.get("choices", {}), m.place: choices[m.place]}}
        if known and known != self.kernels.get(m.kernel):
            self.kernels[m.kernel] = known
            self._append(line("kernel", {"name": m.kernel, "about": known}))
        self.measurements.append(self._in_context(m))
        self._append(text)

    def add_card(self, name: str, gpu: Gpu, calibration: Calibration) -> None:
        """A card on which measurements ran, by the name that they state; in the file too."""
        self.cards[name] = Card(gpu, calibration)
        self._append(line("card", {"name": name, "about": self.cards[name]}))

    def add_counters(self, counters: Counters) -> None:
        """Append what was counted of a kernel, to the file too."""
        self.counters.append(counters)
        self._append(line("counters", counters))

    def add_note(self, note: str) -> None:
        """Append a note, to the file too."""
        self.notes.append(note)
        self._append(line("note", {"text": note}))

    def end(self) -> None:
        """The run is complete."""
        self.complete = True
        self._append(line("end", {}))

    def _append(self, text: str) -> None:
        if self.path is None:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{text}\n")
        except OSError as error:
            raise BadRunFile(
                f"cannot write {self.path}: {error.strerror}; give another place with --out"
            ) from error
        WRITTEN[self.path] = None


def runs_dir() -> Path:
    """Where live runs are saved: WORKLOG_HOME/runs if set, else the user's data folder."""
    return own_folder("WORKLOG_HOME", "data") / "runs"


def new_path(created: str = "") -> Path:
    """A fresh file name: the time (default: now) and a few random characters."""
    created = created or datetime.now(UTC).isoformat()
    return runs_dir() / f"{created[:19].replace(':', '-')}Z-{secrets.token_hex(2)}.jsonl"


def line(kind: str, value: Any) -> str:
    """One line of a run file: a record of this kind, or a mapping, without what isn't known. NaN becomes null."""
    if isinstance(value, Measurement):
        value = replace(value, context=None)
    known = {name: part for name, part in msgspec.to_builtins(value).items() if part is not None}
    return msgspec.json.encode({"kind": kind, **known}).decode()


def read_line(text: str) -> Measurement:
    """The measurement of a line. Raises ValueError."""
    return _sound(msgspec.json.decode(text, type=Measurement))


def _advice(path: Path) -> str:
    """Return what to do with a file that isn't a run."""
    if path.suffix == ".cu":
        return f"`worklog run {shlex.quote(str(path))}` times this kernel and saves a run"
    return ADVICE


def _read(path: Path) -> dict[str, Any]:
    """What a file holds, by the names of a Run's fields; it isn't checked yet."""
    try:
        texts = read_text(path).rstrip("\n").split("\n")
        if texts == [""]:
            raise ValueError("it is empty")
        if not texts[0].lstrip().startswith(("{", "[")):
            raise ValueError("it isn't JSON")
    except OSError as error:
        raise BadRunFile(f"cannot read {path}: {error.strerror}; {ADVICE}") from error
    except UnicodeDecodeError as error:
        raise BadRunFile(f"{path} is not a run: it isn't UTF-8 text: {_advice(path)}") from error
    except ValueError as error:
        raise BadRunFile(f"{path} is not a run: {error}: {_advice(path)}") from error
    first: Any = None
    with suppress(ValueError, RecursionError):
        first = msgspec.json.decode(texts[0])
    whole_lines = isinstance(first, dict) and first.get("kind") == "head"
    return _read_lines(texts, path) if whole_lines else _of_schema_1(path)


def _read_lines(texts: Sequence[str], path: Path) -> dict[str, Any]:
    """The same from the lines of a file; a note names kinds that this version doesn't know."""
    document: dict[str, Any] = {"kernels": {}, "cards": {}, "notes": [], "complete": False}
    document |= {"measurements": [], "counters": []}
    for number, text in enumerate(texts, 1):
        try:
            entry = msgspec.json.decode(text, type=dict[str, Any])
        except (ValueError, RecursionError) as error:
            if (
                number == len(texts) and not document["complete"]
            ):  # it was cut short while it was written
                break
            raise BadRunFile(f"{path}:{number} is damaged ({error}): {ADVICE}") from error
        kind = entry.get("kind")
        if (kind == "head" and "created" in document) or (kind == "gpu" and "gpu" in document):
            raise BadRunFile(
                f"{path}:{number} begins another run, maybe of another card: keep each run in a file of its own"
            )
        if kind == "head":
            document |= entry
        elif kind in ("gpu", "calibration"):
            document[kind] = entry
        elif kind in ("kernel", "card"):
            document[f"{kind}s"][str(entry.get("name"))] = entry.get("about")
        elif kind == "note":
            document["notes"].append(entry.get("text"))
        elif kind == "measurement":
            samples = entry.setdefault("samples", {})
            for name in {
                "overhead_us",
                "throttle_mask",
            } & entry.keys():  # since November 2026 of the samples
                if isinstance(samples, dict):
                    samples[name] = entry[name]
            document["measurements"].append(entry)
        elif kind == "counters":
            document["counters"].append(entry)
        elif kind == "end":
            document["complete"] = True
        elif (
            note := f"lines of kind {kind!r:.60} aren't read: install a newer gemm-worklog"
        ) not in document["notes"]:
            document["notes"].append(note)
    require_schema(path, document.get("schema"), range(SCHEMA + 1), ADVICE)
    return document


def _card_of(m: Measurement, *, by_model: bool) -> str:
    """The name of a measurement's card: its model, or its place, such as host:0."""
    model = m.context.gpu.name if m.context else ""
    return model if by_model or m.ran is None else m.ran.card


def _sound(m: Measurement) -> Measurement:
    """The measurement. Raises ValueError where its parts don't fit together."""
    if m.status == "measured" and (m.time is None or not m.time.value > 0):
        raise ValueError(f"measurements: {m.title} is measured, but has no time")
    if any(ratio and not ratio.value > 0 for ratio in m.against.values()):
        raise ValueError(f"measurements: against: a ratio of {m.title} isn't above 0")
    if m.status == "measured" and m.verdict and not (m.verdict.accepted and m.verdict.precision):
        raise ValueError(
            f"measurements: {m.title} is measured, but its verdict isn't passed with a precision"
        )
    return m


def _of_schema_1(path: Path) -> dict[str, Any]:
    """The same from one JSON document with 47 fields for each measurement. Raises BadRunFile."""
    document, _ = read_json(path, dict[str, Any], None, [1], ADVICE)
    try:
        measurements = [_measurement(old, document) for old in document["measurements"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRunFile(f"{path} isn't a whole run (measurements: {error!r}): {ADVICE}") from error
    return {**document, "gpu": document.get("device"), "measurements": measurements}


def _measurement(old: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    baseline = old.get("baseline", "cuBLAS")
    columns = old.get("samples", {})

    def estimate(name: str) -> dict[str, Any] | None:
        value = old.get(name) if old["status"] == "measured" else None
        ends = {
            end: value if old.get(f"{name}_{end}") is None else old[f"{name}_{end}"]
            for end in ("low", "high")
        }
        return (
            None
            if value is None
            else {"value": value, **ends, "process": old.get(f"{name}_process")}
        )

    sides = list[dict[str, Any]]()
    kernels = columns.get("kernels") or (None, None)
    for name, prefix, count in (
        (old["kernel"], "", kernels[0]),
        (baseline, "baseline_", kernels[1]),
    ):
        if columns.get(f"{prefix}us"):
            side = {
                part: columns.get(f"{prefix}{part}", ()) for part in ("us", "sm_mhz", "placement")
            }
            sides.append(
                {
                    **side,
                    "name": name,
                    "hot_us": columns.get(f"hot_{prefix}us", ()),
                    "kernels": count,
                }
            )
    overhead_us = old.get("overhead_us")
    if overhead_us is None:
        made_with = {
            "offset": "removed",
            "timer": "events",
            **document["harness"],
            **old["changed"],
        }
        overhead_us = event_overhead_us(made_with, document["calibration"]["offset_us"])
    peak = old["tflops"] / old["of_roof"] if old.get("tflops") and old.get("of_roof") else None
    return {
        **old,
        "status": "failed" if old["status"] == "refused" else old["status"],
        "time": estimate("us"),
        "against": {baseline: estimate("ratio")} if baseline else {},
        "verdict": old.get("verdict") and {"precision": None, **old["verdict"]},
        "work": {field.name: old.get(field.name) for field in fields(Work)},
        "roof": peak and {"tflops": peak, "datapath": old.get("datapath")},
        "samples": {
            "sides": sides,
            "counts": [*map(int, columns["counts"])] if sides else [],
            "overhead_us": overhead_us,
            "throttle_mask": old.get("throttle_mask", 0),
        },
    }
