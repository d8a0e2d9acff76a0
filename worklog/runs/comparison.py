"""What each harness read on the same work: the document that `worklog peers` writes, shown without a GPU too.

It isn't a run: most of its rows are other harnesses' readings, shown as they gave them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worklog.errors import NothingToDraw
from worklog.runs.documents import Date, Positive, read_json
from worklog.runs.measurement import source_label
from worklog.runs.records import Calibration
from worklog.runs.run import recordings

if TYPE_CHECKING:
    import pandas

KNOWN, CUBLAS = "spin", "cuBLAS"  # the two kinds of work: a kernel of known length in microseconds, a product of size N
SCHEMA = 1
Points = list[tuple[float, float]]


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


@dataclass
class Comparison:
    """A document of `worklog peers`, as far as it is read here; `document` is all of it. promises: what is read beside
    the rows. origin: as its file says; "recorded" for a file that says nothing.
    """

    created: Date
    complete: bool
    device: dict[str, Any]
    calibration: Calibration
    rows: list[Row]
    promises: dict[str, Any]
    origin: str = "recorded"
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What must stand beside every number of it: source, device, clocks, date."""
        name, cut = self.device.get("name", "unknown GPU"), "" if self.complete else " · cut short"
        return source_label(self.origin, name, "watched", self.created) + cut

    def frame(self) -> pandas.DataFrame:
        """One row per harness (`ruler`) and work: its reading in microseconds, or the reason why there is none."""
        import pandas

        return pandas.DataFrame(self.document["rows"]).assign(label=self.label)

    @property
    def harnesses(self) -> list[str]:
        """Every harness with a row, in order."""
        return [*dict.fromkeys(row.ruler for row in self.rows)]

    @property
    def reasons(self) -> dict[str, str]:
        """Why a harness did not read a work, by harness."""
        return {row.ruler: row.reason for row in self.rows if row.reason}

    def works(self, kind: str) -> list[float]:
        """The known lengths (KNOWN), sizes (CUBLAS) or values of a benchmark's last axis, smallest first."""
        return sorted({row.of for row in self.rows if row.work == kind})

    def us(self, kind: str, of: float, number: str = "us") -> dict[str, float]:
        """Microseconds of one work, by harness. number: or another one of its rows, as "wall_s"."""
        here = {row.ruler: getattr(row, number) for row in self.rows if (row.work, row.of) == (kind, of)}
        return {name: value for name, value in here.items() if value is not None}

    def wall_s(self, kind: str, of: float) -> dict[str, float]:
        """Seconds for one work, by harness, where that is known."""
        return self.us(kind, of, "wall_s")

    def errors(self) -> dict[str, Points]:
        """(true length, reading minus it) in microseconds of each harness that read a known length, shortest first."""
        lines: dict[str, Points] = {}
        for row in sorted(self.rows, key=lambda row: row.of):
            if row.work == KNOWN and row.us is not None:
                lines.setdefault(row.ruler, []).append((row.of, row.us - row.of))
        return lines


def open_comparison(path: str | Path | None = None, part: str = "peers") -> Comparison:
    """The comparison in a file that `worklog peers` wrote, or by default the recording that comes with the package:
    part "peers", "benchmarks" for `worklog peers --bench`, or "intervals" for what tests/record/intervals.py wrote.

    Raises BadRunFile for a file that isn't such a document, is damaged, or has a newer schema, NothingToDraw if the
    package holds no comparison.
    """
    advice = "install gemm-worklog again" if path is None else "give a file that `worklog peers` wrote"
    for known in recordings(part).values() if path is None else (Path(path),):
        document, comparison = read_json(known, Comparison, "peers", (SCHEMA,), advice)
        comparison.document = document
        return comparison
    raise NothingToDraw("no comparison of harnesses is recorded: make one with `worklog peers` on a GPU")
