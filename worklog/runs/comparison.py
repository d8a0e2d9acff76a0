"""What each harness read on the same work: the document that `worklog peers` writes, shown without a GPU too.

It isn't a run: most of its rows are other harnesses' readings, shown as they gave them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np

from worklog.errors import BadRunFile, NothingToDraw
from worklog.runs.documents import check, check_date, read_json
from worklog.runs.measurement import check_positive
from worklog.runs.run import recordings, source_label

if TYPE_CHECKING:
    import pandas

KNOWN, CUBLAS = "spin", "cuBLAS"  # the two kinds of work: a kernel of known length in microseconds, a product of size N

SCHEMA = 1  # the newest that is read here

Points = list[tuple[float, float]]
Interval = tuple[float, float, float]  # low, middle, high


@dataclass(frozen=True)
class Row:
    """One harness (`ruler` in the file) on one work: microseconds as it reads them and the seconds that it took, or the
    reason why there are none. work: "spin" with its true length in microseconds, "cuBLAS" with its N, or a declared
    benchmark with the value of its last axis of numbers above 0. low, high: its 95 % interval, if the harness states
    one; converged: whether it is as narrow as requested.
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


# What of a document is read here, in a chart or in a notebook; the rest is provenance. of: the size of cuBLAS.
PARTS: dict[str, Any] = {
    "created": str,
    "origin?": str,
    "complete": bool,
    "benchmarks?": list[str],
    "device": {"name": str},
    "calibration": {"offset_us": float, "offset_by_length_us": dict[float, float]},
    "rows": [get_type_hints(Row)],
    "promises": {},
}
PROMISES: dict[str, Any] = {
    # Seconds to an interval of cuBLAS, by this harness and by NVBench, and those of this harness's further readings.
    "wall_s": [{"of": float, "worklog_s": float, "converged": bool, "nvbench_s": float | None}],
    "again": [{"of": float, "wall_s": float, "converged": bool}],
    # Of `pairs` readings of the same kernel, how many agree; the two intervals of each pair.
    "aa": {"work": str, "of": float, "pairs": int, "agree": int, "intervals_us": list[tuple[Interval, Interval]]},
    # Events and the tracer, alternating.
    "beside_cupti": [{"work": str, "of": float, "events_us": float, "tracer_us": float}],
    # For each process, the interval and the SM clock of each reading; the median seconds of one reading.
    "coverage": [
        {"work": str, "of": float, "intervals_us": list[list[Interval]], "sm_mhz": list[list[float]], "wall_s": float}
    ],
}


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

    def frame(self) -> pandas.DataFrame:
        """One row per harness (`ruler`) and work: its reading in microseconds, or the reason why there is none."""
        import pandas

        return pandas.DataFrame(self.document["rows"]).assign(label=self.label)

    @property
    def harnesses(self) -> list[str]:
        """Every harness with a row, in order."""
        return list(dict.fromkeys(row["ruler"] for row in self.document["rows"]))

    @property
    def reasons(self) -> dict[str, str]:
        """Why a harness did not read a work, by harness."""
        return {row["ruler"]: row["reason"] for row in self.document["rows"] if row["reason"]}

    @property
    def kinds(self) -> list[str]:
        """Every kind of work with a row, in order."""
        return list(dict.fromkeys(row["work"] for row in self.document["rows"]))

    def works(self, kind: str) -> list[float]:
        """The known lengths (KNOWN), sizes (CUBLAS) or values of a benchmark's last axis, smallest first."""
        return sorted({row["of"] for row in self.document["rows"] if row["work"] == kind})

    def us(self, kind: str, of: float) -> dict[str, float]:
        """Microseconds of one work, by harness."""
        return self._column("us", kind, of)

    def wall_s(self, kind: str, of: float) -> dict[str, float]:
        """Seconds for one work, by harness, where that is known."""
        return self._column("wall_s", kind, of)

    def coverage(self) -> dict[float, tuple[float, float]]:
        """By size of cuBLAS: in how many of the pairs of readings the 95 % interval of their difference holds 0, for
        pairs in one process and pairs across processes. 0.95 is what it should be. Empty where it isn't recorded.

        The readings are compared at one clock: an interval is of the time at the SM clock that the reading states, and
        where the clocks aren't locked, that clock differs by a few tenths of a percent between readings.
        """
        found = {}
        for point in self.document["promises"].get("coverage", ()):
            clocks = np.array(point["sm_mhz"])
            processes = (point["intervals_us"] * (clocks / clocks.mean())[..., None]).tolist()
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
        """(true length, reading minus it) in microseconds of each harness that read a known length, shortest first."""
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


def open_comparison(path: str | Path | None = None, part: str = "peers") -> Comparison:
    """The comparison in a file that `worklog peers` wrote, or by default the recording that comes with the package:
    part "peers", "intervals" for what `worklog peers --only intervals` wrote, "benchmarks" for `worklog peers --bench`.

    Raises BadRunFile for a file that isn't such a document, is damaged, or has a newer schema, NothingToDraw if the
    package holds no comparison.
    """
    shipped, advice = path is None, "give a file that `worklog peers` wrote"
    if path is None:
        advice = "install gemm-worklog again"
        found = recordings(part)
        if not found:
            raise NothingToDraw("no comparison of harnesses is recorded: make one with `worklog peers` on a GPU")
        path = [*found.values()][-1]
    document = read_json(Path(path), "peers", range(1, SCHEMA + 1), advice)
    try:
        _require_whole(document)
    except (ValueError, RecursionError) as error:
        raise BadRunFile(f"{path} isn't a whole comparison of harnesses ({error}): {advice}") from error
    return Comparison(document, "recorded" if shipped else document.get("origin", "recorded"))


def _require_whole(document: dict[str, Any]) -> None:
    """Raise ValueError for a part that is missing, of a wrong type or out of range. A comparison that was cut short
    lacks the parts that weren't measured yet; one from before `again`, `beside_cupti` or `coverage` lacks those.
    """
    check("", document, PARTS)
    check_date(document["created"])
    promises = document["promises"]
    declared = document.get("benchmarks", [])
    needed = {"wall_s", "aa"} if document["complete"] and document["rows"] and not declared else {"wall_s"}
    check("promises", promises, {name: part for name, part in PROMISES.items() if name in needed | promises.keys()})
    if not document["calibration"]["offset_by_length_us"]:
        raise ValueError("offset_by_length_us is empty")
    if not (document["rows"] or promises.get("coverage")):
        raise ValueError("rows is empty")
    for number, row in enumerate(document["rows"], 1):
        if row["work"] not in (works := (KNOWN, CUBLAS, *declared)):
            raise ValueError(f"rows {number} work is {row['work']!r:.60}: works are {', '.join(works)}")
        check_positive(f"rows {number} ", row, ["of"])
    for number, point in enumerate(promises["wall_s"], 1):
        check_positive(f"wall_s {number} ", point, ["worklog_s"])
