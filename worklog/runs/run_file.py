"""Runs and their files: measurements with the GPU, the settings and the sources.

A run file is JSON Lines. The first line is the head, and a line for each fact follows; every line
has a `kind`. The file only grows, so a run that is cut short keeps every finished line. What can be
derived is derived when the file is read.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Annotated, Any, Self

import msgspec

from worklog.errors import BadRunFile, BadSetting
from worklog.problem import Point, Shape
from worklog.runs.facts import Calibration, Counters, Gpu
from worklog.runs.files import WRITTEN, Count, Date, Positive, read_text, require_schema, write_text
from worklog.runs.measurement import Context, Measurement, same_card, source_label
from worklog.runs.statistics import CLOCK_OFF, Difference, Summary, compare_times
from worklog.settings import COMMAND, PITFALLS, Harness

SCHEMA = 2
# M, N and K of a product; of a batch, also the products of a launch.
Sizes = Annotated[list[Count], msgspec.Meta(min_length=3, max_length=4)]
CHECKSUM = "checksum"  # the kind of the last line of a file that was shared
CHECKSUM_SCHEMA = 1
ADVICE = "measure again, or give a file that `worklog run` wrote"


@dataclass(frozen=True)
class Card:
    """A card of a run that has several."""

    gpu: Gpu
    calibration: Calibration


@dataclass(repr=False)
class RunRecord:
    """Measurements with their provenance.

    harness: settings
    gpu, calibration: of the first card
    cards: of a sweep, by name
    origin: "live" if it was measured here, which its file also states; "recorded" if it's a part of
        the package
    path: of its file
    A measurement without a context gets the context of its card, or that of the run.
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
        """The provenance of all measurements of the run."""
        clocks = str(self.harness.get("clocks", ""))
        return Context(self.origin, clocks, self.created, self.gpu, self.calibration)

    def _in_context(self, m: Measurement) -> Measurement:
        """Return a measurement with its context."""
        if m.context is not None:
            return m
        card = self.cards.get(m.ran.card) if m.ran else None
        if m.ran is None or card is None:
            return replace(m, context=self.context)
        began = datetime.fromtimestamp(m.ran.began, UTC)  # maybe before this run
        context = replace(
            self.context,
            created=began.isoformat(timespec="seconds"),
            gpu=card.gpu,
            calibration=card.calibration,
        )
        return replace(m, context=context)

    @property
    def label(self) -> str:
        """The label of every number in this run: source, device, clocks, date."""
        label = source_label(self.origin, self.gpu.name, self.context.clocks, self.created)
        return label if self.complete else f"{label} · cut short"

    @property
    def full_label(self) -> str:
        """The label, how the event overhead was treated, and whether the gate was off."""
        timer = self.harness.get("timer", "events")
        offset = self.harness.get("offset", "removed")
        label = self.label
        if timer == "events":
            label += f" · event overhead {self.calibration.offset_us:.2f} µs {offset}"
        else:  # only a pair of events has an overhead
            label += f" · timer {timer}, no overhead removed"
        degradations = set[str]()
        for m in self.select():
            degradations.update(m.degradations)
        baseline_remarks = {m.baseline_remark: m.kernel for m in self.select() if m.beyond}
        gate = sorted(text for text in degradations if text.startswith("gate: "))
        if gate:
            label += f" · {'; '.join(gate)}"
        for remark, kernel in baseline_remarks.items():
            if remark:
                label += f" · {remark} of {kernel}"
        return label

    @property
    def unknown(self) -> list[str]:
        """The settings of pitfalls that didn't exist yet when this run was made.

        The run has no measurement with their bias.
        """
        if not self.harness:
            return []
        return [pitfall.setting for pitfall in PITFALLS if pitfall.setting not in self.harness]

    def select(
        self,
        kernel: str | None = None,
        shape: Shape | None = None,
        changed: Mapping[str, Any] | None = None,
    ) -> list[Measurement]:
        """Return the measurements of a kernel and a shape under some settings.

        changed: settings that differ from the run's own harness; by default, none. A setting with
            the value that the run's own harness has doesn't count.
        """
        changed = {
            name: value
            for name, value in (changed or {}).items()
            if self.harness.get(name) != value
        }
        measurements = self.measurements
        if kernel is not None:
            measurements = [m for m in measurements if m.kernel == kernel]
        if shape is not None:
            measurements = [m for m in measurements if m.shape and m.problem == shape]
        return [m for m in measurements if m.changed == changed]

    def shapes(self) -> list[Shape]:
        """Return the shapes measured under the run's own harness, smallest first."""
        shapes = {m.problem for m in self.select() if m.shape}
        return sorted(shapes, key=lambda shape: (shape.flops, shape))

    def by_card(self) -> list[Self]:
        """Return a run for each card, with its measurements, GPU and calibration.

        If the run has one card, it's returned itself. Numbers of two cards can't be combined. The
        run's own card is the first, if it has a measurement.
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
        """Return the name of each measurement's row in a table of kernels.

        The name is that of the kernel. If several cards measured the kernel at one place, there is
        a row for each card.
        """
        first_at = dict[tuple[str, str], Measurement]()
        on_several_cards = set[str]()
        for m in measurements:
            first = first_at.setdefault((m.kernel, m.place), m)
            if not same_card(first, m):
                on_several_cards.add(m.kernel)
        has_models = len({part.gpu.name for part in self.by_card()}) > 1
        names = []
        for m in measurements:
            name = m.kernel
            if name in on_several_cards:
                name += f" on {_card_of(m, by_model=has_models)}"
            names.append(name)
        return names

    def difference(self, first: Measurement, second: Measurement) -> Difference:
        """Compare the times of two measurements of this run at one SM clock.

        See compare(). Raises BadSetting for measurements on two cards.
        """
        if not same_card(first, second):
            raise BadSetting(
                f"{first.title} and {second.title} ran on two cards ({first.label}; "
                f"{second.label}): "
                "measure both on one"
            )
        times = []
        for m in (first, second):
            assert m.time is not None
            times.append(Summary(m.samples, m.time, {}, self.by_host(m)))
        return compare_times(*times)

    def by_host(self, m: Measurement) -> bool:
        """Return whether a host clock timed the measurement."""
        return m.changed.get("timer", self.harness.get("timer")) == "host"

    def clock_off(self, m: Measurement) -> float | None:
        """Return a measurement's SM clock over its card's median in this run, minus 1.

        None if the clock is unknown or within CLOCK_OFF of the median.
        """
        if m.sm_mhz is None:
            return None
        on_card = [other for other in self.measurements if other.sm_mhz and same_card(m, other)]
        deviation = m.sm_mhz / median(other.sm_mhz or 0.0 for other in on_card) - 1
        return deviation if abs(deviation) > CLOCK_OFF else None

    @classmethod
    def load(cls, path: str | Path, origin: str = "") -> Self:
        """Read a run file; a last line that was cut short is left out.

        origin: replaces the origin that the file states; a file that states none is a recording
        Raises BadRunFile, with advice, for a file that is missing, not a run, or of another schema.
        The error names the part of the file that is damaged.
        """
        path = Path(path)
        document = _read(path)
        if origin:
            document["origin"] = origin
        return cls._checked(document, path)

    @classmethod
    def _checked(cls, document: dict[str, Any], path: Path) -> Self:
        """Return the run of a document. Raises BadRunFile if it's invalid."""
        settings = {field.name for field in fields(Harness)}
        try:
            if "created" not in document:  # its default is the date of a run that begins
                raise ValueError("Object missing required field `created`")
            entries = [_with_point(entry) for entry in document.get("measurements", [])]
            document = {"origin": "recorded", **document, "measurements": entries}
            run = msgspec.convert(document, cls)
            different: dict[str, dict[str, Any]] = {"{}": {}}
            for m in run.measurements:
                _require_sound(m)
                different[str(m.changed)] = m.changed
            for changed in different.values():
                values = run.harness | changed
                # A setting that this version doesn't know is ignored.
                Harness(**{name: value for name, value in values.items() if name in settings})
        except (ValueError, BadSetting, RecursionError) as error:
            raise BadRunFile(f"{path} isn't a whole run ({error}): {ADVICE}") from error
        run.path = path
        return run

    @classmethod
    def of_head(cls, head: Sequence[str], path: Path = Path()) -> Self:
        """Return a run without measurements.

        head: the lines of its file
        Raises BadRunFile for invalid lines.
        """
        return cls._checked(_read_lines(head, path), path)

    @classmethod
    def begin(cls, head: Sequence[str], path: Path) -> Self:
        """Return a run with a head and the running command, and write its file.

        path: an empty file

        Raises BadRunFile for an invalid head, and if the file isn't writable.
        """
        run = cls.of_head(head, path)
        command = [*COMMAND.get()]
        if command:
            run.tool["command"] = command
        run._append("\n".join(run.head_lines()))
        return run

    def require_same_setup(self, other: RunRecord) -> None:
        """Raise BadSetting, with the differences, if the other run's setup differs.

        A setup is the GPU, the harness with its settings, and the versions of the software.
        """
        mine = self._setup()
        theirs = other._setup()
        differing = [
            f"{name} {mine.get(name, 'unknown')} there, {theirs.get(name, 'unknown')} here"
            for name in {**mine, **theirs}
            if mine.get(name) != theirs.get(name)
        ]
        if differing:
            raise BadSetting(
                f"{self.path} can't be resumed: {'; '.join(differing)}: measure anew, without "
                "--resume"
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
        """Return the lines of the run's file without its measurements and counters."""
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
        """Write the whole file atomically, and return its path.

        path: by default, the path where the run was saved before
        Raises BadRunFile without a path, and if the path isn't writable.
        """
        if not (path or self.path):
            raise BadRunFile("this run has no file yet: give save() a path")
        target = Path(path or self.path or "")
        lines = self.head_lines() + [line("measurement", m) for m in self.measurements]
        lines += [line("counters", counters) for counters in self.counters]
        if self.complete:
            lines.append(line("end", {}))
        write_text(target, "".join(f"{text}\n" for text in lines))
        self.path = target
        return target

    def add(self, m: Measurement | str, about: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Append a measurement, also to the file.

        The measurement is under this run's harness, device and date.

        m: or its line, which is written unchanged
        about: the description of its kernel; the choice of a launch at the measurement's place is
            added to the known description
        """
        if isinstance(m, str):
            text = m
            m = read_line(m)
        else:
            text = line("measurement", m)
        description = self.kernels.get(m.kernel)
        if description is None:
            description = {name: value for name, value in about.items() if name != "choices"}
        choices = about.get("choices", {})
        if m.place in choices:
            known_choices = description.get("choices", {})
            description = {
                **description,
                "choices": {**known_choices, m.place: choices[m.place]},
            }
        if description and description != self.kernels.get(m.kernel):
            self.kernels[m.kernel] = description
            self._append(line("kernel", {"name": m.kernel, "about": description}))
        self.measurements.append(self._in_context(m))
        self._append(text)

    def add_card(self, name: str, gpu: Gpu, calibration: Calibration) -> None:
        """Add a card on which measurements ran, also to the file.

        name: as the measurements state it
        """
        self.cards[name] = Card(gpu, calibration)
        self._append(line("card", {"name": name, "about": self.cards[name]}))

    def add_counters(self, counters: Counters) -> None:
        """Append the counters of a kernel, also to the file."""
        self.counters.append(counters)
        self._append(line("counters", counters))

    def add_note(self, note: str) -> None:
        """Append a note, also to the file."""
        self.notes.append(note)
        self._append(line("note", {"text": note}))

    def end(self) -> None:
        """Mark the run as complete, also in the file."""
        self.complete = True
        self._append(line("end", {}))

    def _append(self, text: str) -> None:
        """Append a line to the run's file, if it has a file."""
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


def line(kind: str, value: Any) -> str:
    """Return a line of a run file: a record or a mapping, without unknown parts.

    kind: of the record
    NaN becomes null.
    """
    parts = msgspec.to_builtins(value)
    if isinstance(value, Measurement):
        parts = _with_shape_or_axes(value)
    parts = {name: part for name, part in parts.items() if part is not None}
    return msgspec.json.encode({"kind": kind, **parts}).decode()


def read_line(text: str) -> Measurement:
    """Return the measurement of a line. Raises ValueError for an invalid measurement."""
    m = msgspec.convert(_with_point(msgspec.json.decode(text, type=dict[str, Any])), Measurement)
    _require_sound(m)
    return m


def _with_shape_or_axes(m: Measurement) -> dict[str, Any]:
    """Return a measurement's entry in a file, which has a shape or axes in place of the point."""
    parts = msgspec.to_builtins(replace(m, context=None))
    del parts["point"]
    kernel = parts.pop("kernel")
    status = parts.pop("status")
    reason = parts.pop("reason")
    if not m.choices:
        del parts["choices"]
    if m.energy is None:
        del parts["energy"]
    if not m.beyond:
        del parts["beyond"]
    problem = None if m.point.is_product else m.point.problem or None
    shape = [*m.shape] if m.shape else None
    if shape and m.problem.batch > 1:
        shape.append(m.problem.batch)
    place = {"shape": shape, "status": status, "reason": reason, "axes": m.axes}
    return {"kernel": kernel, "problem": problem, **place, **parts}


def _with_point(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a measurement's entry in a file with its point. Raises ValueError."""
    parts = dict(entry)
    shape = msgspec.convert(parts.pop("shape", None), Sizes | None)
    axes = msgspec.convert(parts.pop("axes", {}), dict[str, Any])
    point = Point(str(parts.pop("problem", "")), tuple(axes.items()))
    if shape is not None:
        point = Point.of_product(Shape(*shape))
    work = parts.get("work")
    if isinstance(work, dict) and work.get("joules"):
        parts["energy"] = _energy_of(work)
    return {**parts, "point": msgspec.to_builtins(point)}


def _energy_of(work: Mapping[str, Any]) -> dict[str, Any]:
    """Return the energy of a measurement whose file has it in the work, as until 2026-11-24.

    The time of a launch is the energy over the power. Raises ValueError.
    """
    joules = msgspec.convert(work["joules"], Positive)
    watts = msgspec.convert(work.get("watts"), Positive)
    return {"joules": joules, "us": 1e6 * joules / watts}


def _advice(path: Path) -> str:
    """Return advice for a file that isn't a run."""
    if path.suffix == ".cu":
        return f"`worklog run {shlex.quote(str(path))}` times this kernel and saves a run"
    return ADVICE


def _read(path: Path) -> dict[str, Any]:
    """Return a file's document by the names of a Run's fields; it isn't checked yet."""
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
    _require_head(texts[0], path)
    _require_unchanged(texts, path)
    return _read_lines(texts, path)


def _require_head(text: str, path: Path) -> None:
    """Raise BadRunFile unless the first line of a file is the head of a run.

    The whole document of another tool or of schema 1 may be on this line.
    """
    first: Any = None
    with suppress(ValueError, RecursionError):
        first = msgspec.json.decode(text)
    if isinstance(first, dict) and first.get("kind") == "head":
        return
    if isinstance(first, dict) and "schema" in first:
        require_schema(path, first["schema"], SCHEMA, ADVICE)
    raise BadRunFile(f"{path} is not a run: its first line isn't a run's head: {ADVICE}")


def checksum(texts: Sequence[str]) -> str:
    """Return the last line of a file that is shared: the hash of the lines before it."""
    return line(CHECKSUM, {"schema": CHECKSUM_SCHEMA, "sha256": _hash_of(texts)})


def is_checksum(text: str) -> bool:
    """Return whether a line has the checksum of a file that was shared."""
    return re.search(rf'"kind"\s*:\s*"{CHECKSUM}"', text) is not None


def _hash_of(texts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def _require_unchanged(texts: Sequence[str], path: Path) -> None:
    """Raise BadRunFile if lines with a checksum differ from what was written."""
    places = [number for number, text in enumerate(texts) if is_checksum(text)]
    if not places:
        return
    try:
        stated = msgspec.json.decode(texts[places[0]], type=dict[str, Any])
    except ValueError:
        stated = {}
    else:
        require_schema(path, stated.get("schema"), CHECKSUM_SCHEMA, ADVICE)
    if places != [len(texts) - 1] or stated.get("sha256") != _hash_of(texts[:-1]):
        raise BadRunFile(
            f"{path} has changed since it was shared: its checksum isn't that of its lines: ask "
            "for the file again"
        )


def _read_lines(texts: Sequence[str], path: Path) -> dict[str, Any]:
    """Return the document of a file's lines; a note names kinds that this version doesn't know."""
    document: dict[str, Any] = {"kernels": {}, "cards": {}, "notes": [], "complete": False}
    document |= {"measurements": [], "counters": []}
    for number, text in enumerate(texts, 1):
        try:
            entry = msgspec.json.decode(text, type=dict[str, Any])
        except (ValueError, RecursionError) as error:
            is_cut_short = number == len(texts) and not document["complete"]
            if is_cut_short:  # while it was written
                break
            raise BadRunFile(f"{path}:{number} is damaged ({error}): {ADVICE}") from error
        kind = entry.get("kind")
        if (kind == "head" and "created" in document) or (kind == "gpu" and "gpu" in document):
            raise BadRunFile(
                f"{path}:{number} begins another run, maybe of another card: keep each run in a "
                "file of its own"
            )
        _add_entry(document, kind, entry)
    require_schema(path, document.get("schema"), SCHEMA, ADVICE)
    return document


def _add_entry(document: dict[str, Any], kind: Any, entry: dict[str, Any]) -> None:
    """Add the entry of a line to a document."""
    if kind == "head":
        document |= entry
    elif kind in ("gpu", "calibration"):
        document[kind] = entry
    elif kind in ("kernel", "card"):
        document[f"{kind}s"][str(entry.get("name"))] = entry.get("about")
    elif kind == "note":
        document["notes"].append(entry.get("text"))
    elif kind == "measurement":
        document["measurements"].append(entry)
    elif kind == "counters":
        document["counters"].append(entry)
    elif kind == "end":
        document["complete"] = True
    elif kind == CHECKSUM:  # checked before
        return
    else:
        note = f"lines of kind {kind!r:.60} aren't read: install a newer gemm-worklog"
        if note not in document["notes"]:
            document["notes"].append(note)


def _card_of(m: Measurement, *, by_model: bool) -> str:
    """Return the name of a measurement's card: its model, or its place, such as host:0."""
    model = m.context.gpu.name if m.context else ""
    return model if by_model or m.ran is None else m.ran.card


def _require_sound(m: Measurement) -> None:
    """Raise ValueError if the parts of a measurement contradict each other."""
    if m.status == "measured" and (m.time is None or not m.time.value > 0):
        raise ValueError(f"measurements: {m.title} is measured, but has no time")
    if any(ratio and not ratio.value > 0 for ratio in m.against.values()):
        raise ValueError(f"measurements: against: a ratio of {m.title} isn't above 0")
    if m.status == "measured" and m.verdict and not (m.verdict.accepted and m.verdict.precision):
        raise ValueError(
            f"measurements: {m.title} is measured, but its verdict isn't passed with a precision"
        )
