"""What each harness read on the same work: the document that `worklog peers` writes, shown without a GPU too.

It isn't a run: most of its rows are other harnesses' readings, shown as they gave them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from worklog.errors import NothingToDraw
from worklog.runs.documents import ByLength, Date, Positive, converted, read_json
from worklog.runs.measurement import source_label
from worklog.runs.recordings import recordings

if TYPE_CHECKING:
    import pandas

KNOWN, CUBLAS = "spin", "cuBLAS"  # the two kinds of work: a kernel of known length in microseconds, a product of size N
SCHEMA = 1
Points = list[tuple[float, float]]
Side = Annotated[float, Meta(gt=-1e9, lt=1e9)]
Interval = tuple[Side, Annotated[float, Meta(gt=0, lt=1e9)], Side]  # low, middle, high


@dataclass(frozen=True)
class Row:
    """One harness (`ruler` in the file) on one work: microseconds as it reads them and the seconds that it took, or the
    reason why there are none. work: "spin" with its true length in microseconds, "cuBLAS" with its N, or a declared
    benchmark with the value of its last axis of numbers above 0. low, high: its 95 % interval, if the harness states
    one; converged: whether it is as narrow as requested.
    """

    ruler: str
    work: str
    of: Positive
    us: float | None = None
    wall_s: float | None = None
    reason: str | None = None
    low: float | None = None
    high: float | None = None
    converged: bool | None = None


class Wall(TypedDict):
    """Seconds to an interval of cuBLAS at a size, by this harness and by NVBench."""

    of: float
    worklog_s: Positive
    converged: bool
    nvbench_s: float | None


class Same(TypedDict):
    """Of `pairs` readings of the same kernel, how many agree; the two intervals of each pair."""

    pairs: int
    agree: int
    intervals_us: list[tuple[Interval, Interval]]


class Promises(TypedDict):
    """What is read beside the rows. A comparison that was cut short, or an older one, lacks some."""

    wall_s: list[Wall]
    aa: NotRequired[Same]
    coverage: NotRequired[list[dict[str, Any]]]  # tests/record/intervals.py makes and reads it


class Overhead(TypedDict):
    """The event overhead, microseconds."""

    offset_us: float
    offset_by_length_us: Annotated[ByLength, Meta(min_length=1)]


@dataclass
class Document:
    """What of a document is read here, in a chart or in a notebook; the rest is provenance."""

    created: Date
    complete: bool
    device: dict[str, Any]
    calibration: Overhead
    rows: list[Row]
    promises: Promises
    benchmarks: list[str] = field(default_factory=list)
    origin: str = "recorded"

    def __post_init__(self) -> None:
        if self.complete and self.rows and not self.benchmarks and "aa" not in self.promises:
            raise ValueError("promises lacks aa")
        if not self.rows and "coverage" not in self.promises:
            raise ValueError("rows is empty")
        works = KNOWN, CUBLAS, *self.benchmarks
        for row in self.rows:
            if row.work not in works:
                raise ValueError(f"rows: work is {row.work!r:.60}: works are {', '.join(works)}")


@dataclass(frozen=True)
class Comparison:
    """A document of `worklog peers`. origin: as its file says; "recorded" for the one that comes with the package, and
    for a file that says nothing.
    """

    document: dict[str, Any] = field(repr=False)
    origin: str = "recorded"

    @property
    def label(self) -> str:
        """What must stand beside every number of it: source, device, clocks, date."""
        cut = "" if self.document.get("complete") else " · cut short"
        name = self.document["device"].get("name", "unknown GPU")
        return source_label(self.origin, name, "watched", self.document["created"]) + cut

    @cached_property
    def rows(self) -> list[Row]:
        """Every reading, or why there is none."""
        return converted(self.document["rows"], list[Row])

    def frame(self) -> pandas.DataFrame:
        """One row per harness (`ruler`) and work: its reading in microseconds, or the reason why there is none."""
        import pandas

        return pandas.DataFrame(self.document["rows"]).assign(label=self.label)

    @property
    def harnesses(self) -> list[str]:
        """Every harness with a row, in order."""
        return list(dict.fromkeys(row.ruler for row in self.rows))

    @property
    def reasons(self) -> dict[str, str]:
        """Why a harness did not read a work, by harness."""
        return {row.ruler: row.reason for row in self.rows if row.reason}

    @property
    def kinds(self) -> list[str]:
        """Every kind of work with a row, in order."""
        return list(dict.fromkeys(row.work for row in self.rows))

    def works(self, kind: str) -> list[float]:
        """The known lengths (KNOWN), sizes (CUBLAS) or values of a benchmark's last axis, smallest first."""
        return sorted({row.of for row in self.rows if row.work == kind})

    def us(self, kind: str, of: float) -> dict[str, float]:
        """Microseconds of one work, by harness."""
        return {row.ruler: row.us for row in self.rows if (row.work, row.of) == (kind, of) and row.us is not None}

    def wall_s(self, kind: str, of: float) -> dict[str, float]:
        """Seconds for one work, by harness, where that is known."""
        here = [row for row in self.rows if (row.work, row.of) == (kind, of)]
        return {row.ruler: row.wall_s for row in here if row.wall_s is not None}

    def errors(self) -> dict[str, Points]:
        """(true length, reading minus it) in microseconds of each harness that read a known length, shortest first."""
        lines: dict[str, Points] = {name: [] for name in self.harnesses}
        for row in sorted(self.rows, key=lambda row: row.of):
            if row.work == KNOWN and row.us is not None:
                lines[row.ruler].append((row.of, row.us - row.of))
        return {name: points for name, points in lines.items() if points}


def open_comparison(path: str | Path | None = None, part: str = "peers") -> Comparison:
    """The comparison in a file that `worklog peers` wrote, or by default the recording that comes with the package:
    part "peers", "benchmarks" for `worklog peers --bench`, or "intervals" for what tests/record/intervals.py wrote.

    Raises BadRunFile for a file that isn't such a document, is damaged, or has a newer schema, NothingToDraw if the
    package holds no comparison.
    """
    if path is not None:
        document, checked = read_json(
            Path(path), Document, "peers", (SCHEMA,), "give a file that `worklog peers` wrote"
        )
        return Comparison(document, checked.origin)
    recorded = [*recordings(part).values()]
    if not recorded:
        raise NothingToDraw("no comparison of harnesses is recorded: make one with `worklog peers` on a GPU")
    return Comparison(read_json(recorded[-1], Document, "peers", (SCHEMA,), "install gemm-worklog again")[0])
