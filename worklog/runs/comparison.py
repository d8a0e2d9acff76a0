"""Readings of several harnesses on the same work: the document that `worklog peers` writes.

It can also be shown without a GPU. It isn't a run: most of its rows are the readings of other
harnesses, as these reported them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worklog.errors import NothingToDraw
from worklog.runs.facts import Calibration
from worklog.runs.files import Date, Positive, read_json
from worklog.runs.measurement import source_label
from worklog.runs.sources import recordings

if TYPE_CHECKING:
    import pandas

KNOWN = "spin"  # work: a kernel of known length in microseconds
SCHEMA = 1
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class HarnessReading:
    """The reading of a harness on some work, or the reason why there is none.

    work, of: "spin" with its true length in microseconds, "cuBLAS" with its N, or a declared
        benchmark with the value of its last axis of numbers above 0
    """

    ruler: str  # the harness
    work: str
    of: Positive
    us: float | None = None  # as the harness reads it
    wall_s: float | None = None  # that the harness needed
    reason: str | None = None
    low: float | None = None  # ends of the 95 % interval, if the harness states it
    high: float | None = None
    converged: bool | None = None  # the interval is as narrow as requested


@dataclass
class Comparison:
    """The parts of a document of `worklog peers` that this package reads."""

    created: Date
    complete: bool
    device: dict[str, Any]
    calibration: Calibration
    rows: list[HarnessReading]
    promises: dict[str, Any]  # other parts than rows
    origin: str = "recorded"  # the default is for a file that states none
    document: dict[str, Any] = field(default_factory=dict)  # all of it

    @property
    def label(self) -> str:
        """The label of every number in this document: source, device, clocks, date."""
        name = self.device.get("name", "unknown GPU")
        cut = "" if self.complete else " · cut short"
        return source_label(self.origin, name, "watched", self.created) + cut

    def frame(self) -> pandas.DataFrame:
        """Return a row per harness (`ruler`) and work.

        A row has a reading in microseconds, or the reason why there is none.
        """
        import pandas

        return pandas.DataFrame(self.document["rows"]).assign(label=self.label)

    @property
    def harnesses(self) -> list[str]:
        """The harnesses that have a row, in order."""
        return [*dict.fromkeys(row.ruler for row in self.rows)]

    @property
    def reasons(self) -> dict[str, str]:
        """The reason of each harness that didn't measure some work, by harness."""
        return {row.ruler: row.reason for row in self.rows if row.reason}

    def works(self, kind: str) -> list[float]:
        """Return the sizes of a kind of work, smallest first.

        These are lengths in µs (KNOWN), N (CUBLAS), or values of a benchmark's last axis.
        """
        return sorted({row.of for row in self.rows if row.work == kind})

    def us(self, kind: str, size: float, column: str = "us") -> dict[str, float]:
        """Return the microseconds of some work by harness.

        column: another number of the rows, such as "wall_s"
        """
        values = {}
        for row in self.rows:
            if row.work == kind and row.of == size:
                values[row.ruler] = getattr(row, column)
        return {name: value for name, value in values.items() if value is not None}

    def wall_s(self, kind: str, size: float) -> dict[str, float]:
        """Return the seconds that each harness needed for some work, if they are known."""
        return self.us(kind, size, "wall_s")

    def errors(self) -> dict[str, Points]:
        """Return the errors of each harness that measured kernels of known length.

        An error is a pair in microseconds: the true length, and the reading minus this length. The
        shortest come first.
        """
        lines: dict[str, Points] = {}
        for row in sorted(self.rows, key=lambda row: row.of):
            if row.work == KNOWN and row.us is not None:
                lines.setdefault(row.ruler, []).append((row.of, row.us - row.of))
        return lines


def open_comparison(path: str | Path | None = None, part: str = "peers") -> Comparison:
    """Return a comparison of harnesses.

    path: a file that `worklog peers` wrote; the default is a recording of the package
    part: the recording: "peers", "benchmarks" for `worklog peers --bench`, or "intervals" for the
        one of tests/record/intervals.py
    Raises BadRunFile for a file that isn't such a document, is damaged, or has a newer schema, and
    NothingToDraw if the package has no such recording.
    """
    if path is not None:
        return _read_comparison(Path(path), "give a file that `worklog peers` wrote")
    for recording in recordings(part).values():
        return _read_comparison(recording, "install gemm-worklog again")
    raise NothingToDraw(
        "no comparison of harnesses is recorded: make one with `worklog peers` on a GPU"
    )


def _read_comparison(path: Path, advice: str) -> Comparison:
    document, comparison = read_json(path, Comparison, kind="peers", schema=SCHEMA, advice=advice)
    comparison.document = document
    return comparison
