"""What each harness read on the same work: the document that `worklog peers` writes, shown without a GPU too.

It isn't a run: most of its rows are other harnesses' readings, shown as they gave them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

import numpy as np
from msgspec import Meta

from worklog.errors import NothingToDraw
from worklog.runs.clocks import fitted_slope
from worklog.runs.documents import ByLength, Date, Positive, converted, read_json
from worklog.runs.estimates import DRIFT_SD_US, NORMAL, Estimate, Values, process_half_us
from worklog.runs.measurement import source_label
from worklog.runs.recordings import recordings

if TYPE_CHECKING:
    import pandas

KNOWN, CUBLAS = "spin", "cuBLAS"  # the two kinds of work: a kernel of known length in microseconds, a product of size N

SCHEMA = 1  # the newest that is read here

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


class Coverage(TypedDict):
    """For each process, the interval and the SM clock of each reading, as many in each. kernels: per launch; an older
    file may state why they aren't known, or nothing, and 1 is assumed.
    """

    work: NotRequired[str]
    of: float
    intervals_us: list[list[Interval]]
    sm_mhz: list[list[Annotated[float, Meta(ge=1, lt=1e6)]]]
    kernels: NotRequired[int | str]


class Promises(TypedDict):
    """What is read beside the rows. A comparison that was cut short, or an older one, lacks some."""

    wall_s: list[Wall]
    aa: NotRequired[Same]
    coverage: NotRequired[list[Coverage]]


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
        works = (KNOWN, CUBLAS, *self.benchmarks)
        if self.complete and self.rows and not self.benchmarks and "aa" not in self.promises:
            raise ValueError("promises lacks aa")
        coverage = self.promises.get("coverage", [])
        if not (self.rows or coverage):
            raise ValueError("rows is empty")
        for point in coverage:
            readings, clocks = ([len(one) for one in part] for part in (point["intervals_us"], point["sm_mhz"]))
            if readings != clocks or not readings or not 0 < min(readings) == max(readings):
                raise ValueError("promises: coverage needs as many intervals_us and sm_mhz in each process")
        if other := {row.work for row in self.rows}.difference(works):
            raise ValueError(f"rows: work is {other.pop()!r:.60}: works are {', '.join(works)}")


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
        rows = (row for row in self.rows if (row.work, row.of) == (kind, of))
        return {row.ruler: row.wall_s for row in rows if row.wall_s is not None}

    def errors(self) -> dict[str, Points]:
        """(true length, reading minus it) in microseconds of each harness that read a known length, shortest first."""
        found: dict[str, Points] = {name: [] for name in self.harnesses}
        for row in sorted(self.rows, key=lambda row: row.of):
            if row.work == KNOWN and row.us is not None:
                found[row.ruler].append((row.of, row.us - row.of))
        return {name: points for name, points in found.items() if points}

    def coverage(self) -> dict[str, tuple[float, float]]:
        """By work, such as "cuBLAS at 256": in how many of the pairs of readings the 95 % interval of their difference
        holds 0, for pairs in one process, with the drift in their intervals, and for all pairs across processes, with
        the process part. It should be 0.95, or 0.965 if the width of an interval comes from PILOT placements. Empty
        where it isn't recorded.

        The readings are compared at one clock: see at_one_clock().
        """
        found = {}
        for point in self.document["promises"].get("coverage", ()):
            read = [[Estimate(us, low, high) for low, us, high in process] for process in at_one_clock(point).tolist()]
            kernels = point.get("kernels")
            halves = NORMAL * DRIFT_SD_US, process_half_us(kernels if isinstance(kernels, int) else 1)
            in_one, across_all = ([[one.between_processes(half) for one in each] for each in read] for half in halves)
            within = [pair for each in in_one for pair in zip(each[::2], each[1::2], strict=False)]
            across = [
                pair
                for number, each in enumerate(across_all)
                for other in across_all[:number]
                for pair in product(each, other)
            ]
            found[f"{point.get('work', CUBLAS)} at {point['of']:g}"] = (_held(within), _held(across))
        return found


def at_one_clock(point: Coverage) -> Values:
    """The intervals of a work at one SM clock, processes x readings x (low, value, high). An interval is of the time at
    the clock that the reading states, and where the clocks aren't locked, that clock differs by a few tenths of a
    percent between readings.
    """
    clocks = np.log(point["sm_mhz"])
    scaled: Values = point["intervals_us"] * np.exp(clock_slope(point) * (clocks.mean() - clocks))[..., None]
    return scaled


def clock_slope(point: Coverage) -> float:
    """By how many percent a time grows with an SM clock 1 % higher, fitted within each process: see fitted_slope()."""
    return fitted_slope([*np.log(point["sm_mhz"])], [*np.log(np.array(point["intervals_us"])[..., 1])])[0]


def _held(pairs: Sequence[tuple[Estimate, Estimate]]) -> float:
    """The share of pairs whose difference has 0 in its 95 % interval, NaN without pairs. That interval adds the sides
    of both in quadrature, the lower of one and the upper of the other (MOVER: Zou and Donner 2008), since an interval
    of order statistics need not be symmetric.
    """
    ordered = (sorted(pair, key=lambda one: one.value) for pair in pairs)
    held = [
        upper.value - lower.value <= math.hypot(lower.high - lower.value, upper.value - upper.low) + 1e-12 * upper.value
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
        recorded = recordings(part)
        if not recorded:
            raise NothingToDraw("no comparison of harnesses is recorded: make one with `worklog peers` on a GPU")
        path = [*recorded.values()][-1]
    document, found = read_json(Path(path), Document, "peers", range(1, SCHEMA + 1), advice)
    return Comparison(document, "recorded" if shipped else found.origin)
