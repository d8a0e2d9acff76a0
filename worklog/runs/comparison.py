"""What each ruler read on the same work: the document that `worklog peers` writes, to be looked at without a GPU.

It is no run: its rows are mostly other people's readings, and each is shown as that ruler gave it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any, TypedDict, get_type_hints

from worklog.errors import BadRunFile, NothingToDraw
from worklog.runs.documents import check_types, read_json

KNOWN, CUBLAS = "spin", "cuBLAS"  # the two kinds of work: a kernel of known length in microseconds, a product of size N

SCHEMA = 1  # the newest that is read here

Points = list[tuple[float, float]]
Interval = tuple[float, float, float]  # low, middle, high


@dataclass(frozen=True)
class Row:
    """One ruler on one work: microseconds as it reads them and the seconds that it took, or the reason why there are
    none. work: "spin" with its true length in microseconds, or "cuBLAS" with its N. low, high: its 95 % interval,
    where the ruler states one; converged: whether it is as narrow as asked for.
    """

    ruler: str
    work: str
    of: float
    us: float | None = None
    wall_s: float | None = None
    reason: str | None = None
    low: float | None = None
    high: float | None = None
    converged: bool | None = None


class Head(TypedDict):
    """What of a document is read here or in a chart or a notebook; the rest is provenance."""

    created: str
    complete: bool
    device: dict[str, Any]
    calibration: dict[str, Any]
    rows: list[Any]
    promises: dict[str, Any]


class Offset(TypedDict):
    """What a calibration says of the error that is taken off, microseconds."""

    offset_us: float
    offset_by_length_us: dict[str, float]


class WallTime(TypedDict):
    """Seconds to an interval of cuBLAS at size `of`, by this harness and by NVBench where that is known."""

    of: float
    worklog_s: float
    converged: bool
    nvbench_s: float | None


class Again(TypedDict):
    """The seconds of a further reading of cuBLAS at size `of` by this harness, and whether it came to its precision."""

    of: float
    wall_s: float
    converged: bool


class SameTwice(TypedDict):
    """Of `pairs` readings of the same kernel, how many agree; the two intervals of each pair."""

    work: str
    of: float
    pairs: int
    agree: int
    intervals_us: list[tuple[Interval, Interval]]


class Coverage(TypedDict):
    """Readings of one work in several processes: for each process, each reading's interval; median seconds of one."""

    work: str
    of: float
    intervals_us: list[list[Interval]]
    wall_s: float


class Beside(TypedDict):
    """One work by events and by the tracer, in turn."""

    work: str
    of: float
    events_us: float
    tracer_us: float


@dataclass(frozen=True)
class Comparison:
    """A document of `worklog peers`. origin: "recorded" for the one that comes with the package, else "live"."""

    document: dict[str, Any] = field(repr=False)
    origin: str = "recorded"

    @property
    def label(self) -> str:
        """What must stand beside every number of it: source, device, clocks, date."""
        cut = "" if self.document.get("complete") else " · cut short"
        name = self.document["device"].get("name", "unknown GPU")
        return f"{self.origin} · {name} · clocks as found · {self.document['created'][:10]}{cut}"

    @property
    def rulers(self) -> list[str]:
        """Every ruler that was asked, in order."""
        return list(dict.fromkeys(row["ruler"] for row in self.document["rows"]))

    @property
    def reasons(self) -> dict[str, str]:
        """Why a ruler did not read a work, by ruler."""
        return {row["ruler"]: row["reason"] for row in self.document["rows"] if row["reason"]}

    def works(self, kind: str) -> list[float]:
        """The known lengths (KNOWN) or the sizes (CUBLAS) that were timed, smallest first."""
        return sorted({row["of"] for row in self.document["rows"] if row["work"] == kind})

    def us(self, kind: str, of: float) -> dict[str, float]:
        """Microseconds of one work as each ruler gave them."""
        return self._column("us", kind, of)

    def wall_s(self, kind: str, of: float) -> dict[str, float]:
        """Seconds that each ruler took for one work, where that is known."""
        return self._column("wall_s", kind, of)

    def coverage(self) -> dict[float, tuple[float, float]]:
        """By size of cuBLAS: in how many of the pairs of readings the 95 % interval of their difference holds 0, for
        pairs in one process and pairs across processes. 0.95 is what it should be. Empty where it isn't recorded.
        """
        found = {}
        for point in self.document["promises"].get("coverage", ()):
            processes = point["intervals_us"]
            within = [pair for one in processes for pair in zip(one[::2], one[1::2], strict=False)]
            across = [
                pair
                for one, other in zip(processes, processes[1:] + processes[:1], strict=True)
                for pair in zip(one[::2], other[1::2], strict=False)
            ]
            found[point["of"]] = (_held(within), _held(across) if len(processes) > 1 else float("nan"))
        return found

    def _column(self, name: str, kind: str, of: float) -> dict[str, float]:
        rows = (row for row in self.document["rows"] if (row["work"], row["of"]) == (kind, of))
        return {row["ruler"]: row[name] for row in rows if row[name] is not None}

    def errors(self) -> dict[str, Points]:
        """(true length, reading minus it) in microseconds of each ruler that read a known length, shortest first."""
        found: dict[str, Points] = {}
        for row in self.document["rows"]:
            if row["work"] == KNOWN and row["us"] is not None:
                found.setdefault(row["ruler"], []).append((row["of"], row["us"] - row["of"]))
        return {name: sorted(points) for name, points in found.items()}


def _held(pairs: Sequence[tuple[Interval, Interval]]) -> float:
    """The share of pairs whose difference has 0 in its 95 % interval. That interval adds the sides of both in
    quadrature, the lower of one and the upper of the other (MOVER: Zou and Donner 2008), since an interval of order
    statistics need not be symmetric.
    """
    ordered = (sorted(pair, key=lambda interval: interval[1]) for pair in pairs)
    held = [
        upper[1] - lower[1] <= math.hypot(lower[2] - lower[1], upper[1] - upper[0]) + 1e-12 * upper[1]
        for lower, upper in ordered
    ]
    return sum(held) / len(held) if held else float("nan")


def open_comparison(path: str | Path | None = None) -> Comparison:
    """The comparison in a file that `worklog peers` wrote, or by default the recording that comes with the package.

    Raises BadRunFile for a file that is no such document, is damaged, or has a newer schema, NothingToDraw where the
    package holds none.
    """
    if path is not None:
        return _read(Path(path), "live")
    folder = Path(str(resources.files("worklog"))) / "recordings" / "peers"
    found = sorted(folder.glob("*.json"))
    if not found:
        raise NothingToDraw("no comparison of harnesses is recorded: make one with `worklog peers` on a GPU")
    return _read(found[-1], "recorded")


def _read(path: Path, origin: str) -> Comparison:
    advice = "give a file that `worklog peers` wrote" if origin == "live" else "install gemm-worklog again"
    document = read_json(path, "peers", range(1, SCHEMA + 1), advice)
    try:
        _check(document)
    except (ValueError, RecursionError) as error:
        raise BadRunFile(f"{path} is no whole comparison of harnesses ({error}): {advice}") from error
    return Comparison(document, origin)


def _check(document: dict[str, Any]) -> None:
    """Raise ValueError that says which part of a document is missing or of a wrong type."""
    _check_part("the document", document, Head)
    try:
        datetime.fromisoformat(document["created"])
    except ValueError as error:
        raise ValueError(f"created is {document['created']!r:.60}, which is no date") from error
    name = document["device"].get("name")
    if not isinstance(name, str):
        raise ValueError(f"the name of the device is {name!r:.60}")
    _check_part("calibration", document["calibration"], Offset)
    if not document["calibration"]["offset_by_length_us"]:
        raise ValueError("calibration: offset_by_length_us is empty")
    if not document["rows"]:
        raise ValueError("it has no rows")
    for number, row in enumerate(document["rows"], 1):
        _check_row(f"row {number}", row)
    _check_promises(document["promises"], document["complete"])


def _check_promises(promises: dict[str, Any], complete: bool) -> None:
    """Raise ValueError for what is damaged. A comparison that was cut short lacks what it had not come to, and one of
    the first days lacks events and tracer in turn.
    """
    for name in ("wall_s", "aa") if complete else ("wall_s",):
        if name not in promises:
            raise ValueError(f"promises lacks {name}")
    for name in ("wall_s", "again", "beside_cupti", "coverage"):
        if not isinstance(promises.get(name, []), list):
            raise ValueError(f"promises: {name} is {promises[name]!r:.60}")
    for number, point in enumerate(promises["wall_s"], 1):
        _check_part(f"wall_s {number}", point, WallTime)
        if not point["worklog_s"] > 0:
            raise ValueError(f"wall_s {number}: worklog_s is {point['worklog_s']}, and nothing takes no time")
    for number, point in enumerate(promises.get("again", ()), 1):
        _check_part(f"again {number}", point, Again)
    for number, point in enumerate(promises.get("beside_cupti", ()), 1):
        _check_part(f"beside_cupti {number}", point, Beside)
    for number, point in enumerate(promises.get("coverage", ()), 1):
        _check_part(f"coverage {number}", point, Coverage)
    if "aa" in promises:
        _check_part("aa", promises["aa"], SameTwice)


def _check_row(what: str, values: Any) -> None:
    """Raise ValueError where a row is none, or is of a work that nobody timed."""
    _check_part(what, values, Row)
    if values["work"] not in (KNOWN, CUBLAS):
        raise ValueError(f"{what}: work is {values['work']!r:.60}, and works are {KNOWN} or {CUBLAS}")
    if not values["of"] > 0:
        raise ValueError(f"{what}: of is {values['of']}, and lengths and sizes are above 0")


def _check_part(what: str, values: Any, cls: type) -> None:
    """Raise ValueError where a part is no object, lacks one of the names that `cls` declares, or holds another type."""
    if not isinstance(values, dict):
        raise ValueError(f"{what} is {values!r:.60}")
    for name in get_type_hints(cls):
        if name not in values:
            raise ValueError(f"{what} lacks {name}")
    try:
        check_types(cls, values)
    except TypeError as error:
        raise ValueError(f"{what}: {error}") from error
