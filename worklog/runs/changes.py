"""Compare saved runs: a rule that reports each kernel as faster, slower or unchanged.

Two processes measure the same kernel up to 1 % differently, no matter how narrow the interval of
each is. So the rule needs the scatter between processes, and a smallest change that counts.
tests/record/compare.py records how often the rule is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from worklog.errors import BadRunFile, BadSetting
from worklog.runs.measurement import Measurement
from worklog.runs.run import Run
from worklog.runs.sources import open_run
from worklog.runs.statistics import (
    HOST_HALF,
    NORMAL,
    OVERHEAD_SD_US,
    SLOPE,
    SLOPE_HALF,
    fitted_slope,
    over_shapes,
)
from worklog.runs.text import Bar, Cell, Displayable, Table, a_few, duration, format_signed

FASTER = "faster"
SLOWER = "slower"
SAME = "same"
UNKNOWN = "cannot tell"
FAILED = "failed"
# Settings that may differ between runs that are compared.
HOW_LONG = ("precision", "least_samples", "most_samples", "budget_s", "stopping", "hot_ms")
MARKS = {SLOWER: "▲ slower", FASTER: "▼ faster", FAILED: "✗ failed"}
PAIRED = "use --against-revision, which times both builds in one loop"
ONCE_MORE = "measure once more and compare all of them, as OLD NEW1,NEW2"
# The rule's numbers, resampled from 25 processes x 16 readings on an H100.
SOURCE = "25 processes x 16 readings on an H100 (recordings/intervals/h100.json), resampled"
# Relative standard deviations: the smallest of a difference, and that of a time's slope over the
# clock.
SCATTER = 0.002
SLOPE_SD = 0.35
# Standard errors for a change and for its absence.
SEEN = 2.33
EQUAL = 1.645
# Below this time, work of several kernels, or of an unknown number of kernels, differs between
# processes by the gaps between the kernels.
SEVERAL_US = 60.0
# Below this time, two cards of one model differ: on two H200 (recordings/compare), `warptiled`
# differs by 5 % at 256; between two recorded days, by 2.5 % at 512 and 0.5 % at 1024.
CARDS_US = 100.0
NVBENCH = [
    f"nv/cold/{name}"
    for name in ("time/gpu/mean", "time/gpu/stdev/relative", "sample_size", "sm_clock_rate/mean")
]


@dataclass(frozen=True)
class ProcessMedian:
    """A process's measurement of a kernel at a place. None: unknown."""

    us: float
    half: float  # relative half-width of the 95 % interval in this process
    sm_mhz: float | None = None
    slope: float | None = None  # percent that the time grows with a clock 1 % higher
    kernels: int | None = None  # per launch
    card: str | None = None  # UUID
    model: str | None = None  # of the card


@dataclass(frozen=True)
class Change:
    """The relative change of a time at one clock, and the verdict on it."""

    share: float  # new time / old time - 1
    low: float  # ends of the 95 % interval of the share
    high: float
    verdict: str
    reason: str = ""  # for the verdict

    def __str__(self) -> str:
        return f"{format_signed(self.share, 2)} ±{50 * (self.high - self.low):.2f}"


def change(
    old: Sequence[ProcessMedian], new: Sequence[ProcessMedian], threshold: float = 0.02
) -> Change:
    """Return the change of a kernel, from all processes that measured both versions.

    threshold: the relative change that the rule must find
    Raises BadSetting without a reading on both sides.
    """
    if not (old and new):
        raise BadSetting("a change needs a reading of each side: measure both")
    readings = (*old, *new)
    slopes = [reading.slope for reading in readings if reading.slope is not None]
    slope = fmean(slopes) if slopes else SLOPE
    is_clocked = all(reading.sm_mhz for reading in readings)
    logs = list[list[float]]()
    clocks = list[float]()
    errors = list[float]()
    for side in (old, new):
        mhz = [math.log(reading.sm_mhz or 1.0) if is_clocked else 0.0 for reading in side]
        logs.append(
            [math.log(reading.us) - slope * clock for reading, clock in zip(side, mhz, strict=True)]
        )
        clocks.append(fmean(mhz))
        errors.append(
            math.sqrt(fmean((reading.half / NORMAL) ** 2 for reading in side) / len(side))
        )
    scatter = _scatter(logs, min(reading.us for reading in readings))
    error = math.hypot(*errors, scatter, SLOPE_SD * (clocks[1] - clocks[0]), SCATTER)
    judged_change = judged(fmean(logs[1]) - fmean(logs[0]), error, threshold)
    doubt = _doubt(readings)
    return replace(judged_change, verdict=UNKNOWN, reason=doubt) if doubt else judged_change


def _scatter(logs: Sequence[Sequence[float]], us: float) -> float:
    """Return the standard error of a change that comes from the scatter between processes.

    logs: of the times of both sides at one clock
    us: the shortest time
    """
    count = sum(map(len, logs))
    deviation = OVERHEAD_SD_US / us
    degrees_of_freedom = count - 2
    if degrees_of_freedom:
        squares = []
        for side in logs:
            mean = fmean(side)
            squares += [(log - mean) ** 2 for log in side]
        deviation = max(deviation, math.sqrt(sum(squares) / degrees_of_freedom))
    return deviation * math.sqrt(1 / len(logs[0]) + 1 / len(logs[1]))


def _doubt(readings: Sequence[ProcessMedian]) -> str:
    """Return the reason why the readings of a kernel can't be compared; "" if they can."""
    us = min(reading.us for reading in readings)
    models = {reading.model for reading in readings if reading.model}
    cards = {reading.card for reading in readings if reading.card}
    counts = {reading.kernels for reading in readings}
    if len(models) > 1:
        return f"several models of GPU: {', '.join(sorted(models))}"
    if counts != {1} and us < SEVERAL_US:
        number = "an unknown number of kernels" if None in counts else "several kernels"
        return f"{number} in less than {SEVERAL_US:.0f} µs: {PAIRED}"
    if len(cards) > 1 and us < CARDS_US:
        return f"two cards, and less than {CARDS_US:.0f} µs: {PAIRED}"
    return ""


def judged(log: float, error: float, threshold: float = 0.02) -> Change:
    """Return the verdict on a change of a time.

    log: the change of the time's logarithm
    error: its standard error
    A change counts from half of the threshold on, if it exceeds its error. A time is unchanged
    if even the end of its interval is below the threshold.
    """
    share, low, high = (math.expm1(log + sign * NORMAL * error) for sign in (0, -1, 1))
    if abs(log) > max(threshold / 2, SEEN * error):
        return Change(share, low, high, SLOWER if log > 0 else FASTER)
    if abs(log) + EQUAL * error < threshold:
        return Change(share, low, high, SAME)
    return Change(share, low, high, UNKNOWN, f"the interval reaches the threshold: {ONCE_MORE}")


@dataclass(frozen=True)
class Revision:
    """A revision of the kernels: the readings of a process."""

    label: str
    conditions: Mapping[str, Any]  # revisions with different conditions can't be compared
    # Between revisions with different versions, no change has a known cause.
    versions: Mapping[str, str]
    readings: Mapping[
        tuple[str, str], ProcessMedian | str
    ]  # by kernel and place; or why there's no time


def revision_of(run: Run) -> Revision:
    """Return a run as a revision: the measurements under the run's own harness."""
    conditions = {name: value for name, value in run.harness.items() if name not in HOW_LONG}
    single = {
        name
        for name, description in run.kernels.items()
        if "grid" in description and "choices" not in description
    }
    measurements = run.select()
    readings = {
        (name, m.place): process_median(m, run.harness, m.kernel in single)
        for name, m in zip(run.rows_of(measurements), measurements, strict=True)
    }
    models = ", ".join(dict.fromkeys(part.gpu.name for part in run.by_card()))
    return Revision(run.label, {"GPU": models, **conditions}, _versions(run), readings)


def _versions(run: Run) -> dict[str, str]:
    """Return the known versions of the software that a run used."""
    harness = run.tool.get("harness") or run.tool.get("commit") or run.tool.get("version", "")
    versions = {
        "driver": run.gpu.driver,
        "NVRTC": run.software.get("nvrtc", ""),
        "cuBLAS": run.software.get("cublas", ""),
        "harness": str(harness)[:12],
    }
    return {name: version for name, version in versions.items() if version}


def process_median(
    m: Measurement, harness: Mapping[str, Any], single: bool = False
) -> ProcessMedian | str:
    """Return a measurement as a reading of a process; or the reason why it has no time.

    single: a launch is known to be one kernel; for older files, which don't count kernels
    """
    if m.time is None:
        return f"{m.status}: {m.reason}"
    half_width = (
        math.sqrt(max(0.0, m.time.half_width**2 - (m.time.process or 0.0) ** 2)) / m.time.value
    )
    if harness.get("timer") == "host":
        half_width = math.hypot(half_width, HOST_HALF)
    kernels = m.samples.sides[0].kernels if m.samples.sides else None
    if not kernels:
        kernels = 1 if single else None
    slope = None
    if m.sm_mhz:
        fit, fit_half_width = fitted_slope(*zip(m.samples.clock_logs, strict=True))
        slope = fit if fit_half_width <= SLOPE_HALF else None
    gpu = m.context.gpu if m.context else None
    return ProcessMedian(
        m.time.value,
        half_width,
        m.sm_mhz,
        slope,
        kernels,
        card=gpu.uuid if gpu else None,
        model=gpu.name if gpu else None,
    )


@dataclass(frozen=True)
class KernelChange:
    """A kernel at a place."""

    kernel: str
    place: str
    old_us: float | None  # geometric mean over the processes; None if it has no time
    new_us: float | None
    change: Change


@dataclass(frozen=True, repr=False)
class Changes(Displayable):
    """The changes of every kernel that both sides have."""

    old: str
    new: str
    threshold: float
    rows: tuple[KernelChange, ...]
    differ: tuple[str, ...] = ()  # conditions that differ, so that nothing is compared
    versions: tuple[str, ...] = ()  # versions that differ, so that nothing has a verdict
    only: tuple[str, ...] = ()  # kernels and places that only one side has

    def exit_code(self, strict: bool = False) -> int:
        """Return the exit code of a comparison.

        It's 1 for a slower or newly failed kernel, 2 if the runs can't be compared, else 0.

        strict: also return 2 if versions differ
        """
        if self.differ or (strict and self.versions):
            return 2
        return int(any(row.change.verdict in (SLOWER, FAILED) for row in self.rows))

    @property
    def headline(self) -> str:
        """The number of rows with each verdict, or why there are no verdicts."""
        if self.differ:
            return f"cannot be compared: {'; '.join(self.differ)}"
        verdicts = [row.change.verdict for row in self.rows]
        counts = {
            verdict: verdicts.count(verdict) for verdict in (FAILED, SLOWER, FASTER, SAME, UNKNOWN)
        }
        return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)

    def table(self) -> Table:
        """Return a row per kernel and place; unchanged rows come last."""
        names = ("kernel", "size", "old", "new", "change (95 %)", "verdict")
        rows = sorted(self.rows, key=lambda row: (row.change.verdict == SAME, -row.change.share))
        cells = [self._cells(row) for row in rows]
        notes = [f"old: {self.old}", f"new: {self.new}", *self.versions]
        notes += self._reasons()
        notes += self._rule()
        if self.only:
            notes.append(f"on one side only: {a_few(self.only)}")
        title = f"{self.headline} · threshold {100 * self.threshold:g} %"
        return Table(title, names if cells else (), cells, left=2, notes=notes)

    def _cells(self, row: KernelChange) -> list[Cell]:
        verdict = row.change.verdict
        times = [duration(us, padded=True) if us else "–" for us in (row.old_us, row.new_us)]
        change: Cell = "–"
        if row.old_us and row.new_us:
            length = abs(row.change.share) / (5 * self.threshold)
            change = Bar(str(row.change), length, verdict == SLOWER)
        return [row.kernel, row.place, *times, change, MARKS.get(verdict, verdict)]

    def _reasons(self) -> list[str]:
        """Return each reason for a verdict, with the kernels and places that have it."""
        subjects = dict[str, list[str]]()
        for row in self.rows:
            if row.change.reason:
                subject = " at ".join(filter(None, (row.kernel, row.place)))
                subjects.setdefault(row.change.reason, []).append(subject)
        return [f"{a_few(names)}: {reason}" for reason, names in subjects.items()]

    def _rule(self) -> list[str]:
        """Explain the rule if a change below the threshold has a verdict."""
        judged = [row.change for row in self.rows if row.change.verdict in (SLOWER, FASTER)]
        if all(abs(change.share) >= self.threshold for change in judged):
            return []
        percent = 100 * self.threshold
        rule = (
            f"a change counts from {percent / 2:g} % on, half of the threshold, if it exceeds "
            "its noise"
        )
        return [f"{rule}: so a slowdown of {percent:g} % isn't missed"]

    def markdown(self) -> str:
        """Return the table as Markdown, for a pull request."""
        table = self.table()
        return replace(table, title=f"worklog: {table.title}").page()


def compare_revisions(
    old: Sequence[Revision], new: Sequence[Revision], threshold: float = 0.02
) -> Changes:
    """Return the changes from the old side to the new side.

    Several runs of a side are pooled; each of them is a process.
    Raises BadSetting if the sides have no kernel and place in common.
    """
    baseline = old[0]
    others = (*old[1:], *new)
    conditions = [(baseline.conditions, other.conditions) for other in others]
    versions = [(baseline.versions, other.versions) for other in others]
    different_conditions = tuple(_differences(conditions))
    version_notes = tuple(f"another {text}: no verdict" for text in _differences(versions))
    old_places = _places(old)
    new_places = _places(new)
    shared = [place for place in old_places if place in new_places]
    unshared = [place for place in old_places | new_places if place not in shared]
    names = tuple(" at ".join(filter(None, place)) for place in unshared)
    if not (shared or different_conditions):
        listed = f" ({', '.join(names)})" if names else ""
        raise BadSetting(
            f"the runs have no kernel and size in common{listed}: measure the same ones"
        )
    rows = []
    if not different_conditions:
        rows = [
            _row(place, old, new, threshold=threshold, is_uncaused=bool(version_notes))
            for place in shared
        ]
    return Changes(
        _label(old),
        _label(new),
        threshold,
        tuple(rows),
        differ=different_conditions,
        versions=version_notes,
        only=names,
    )


def _label(revisions: Sequence[Revision]) -> str:
    return "; ".join(dict.fromkeys(revision.label for revision in revisions))


def _places(revisions: Sequence[Revision]) -> dict[tuple[str, str], None]:
    """Return the kernels and places that revisions have readings of, as an ordered set."""
    places = dict[tuple[str, str], None]()
    for revision in revisions:
        places |= dict.fromkeys(revision.readings)
    return places


def of_one_loop(run: Run, suffix: str, threshold: float = 0.02) -> Changes:
    """Return the changes between builds that took turns in one loop.

    suffix: the old build of a kernel is the baseline with the kernel's name and this suffix
    """
    rows = list[KernelChange]()
    for m in run.select():
        ratio = m.against.get(m.kernel + suffix)
        if ratio is not None and m.us is not None:
            error = ratio.relative_half_width / NORMAL
            judged_change = judged(-math.log(ratio.value), error, threshold)
            rows.append(KernelChange(m.kernel, m.place, m.us * ratio.value, m.us, judged_change))
    return Changes(f"builds of {suffix[1:]}, in one loop", run.label, threshold, tuple(rows))


def _differences(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[str]:
    """Return the names that have different values in both mappings of a pair, with the values."""
    differences = set[str]()
    for old, new in pairs:
        for name in old.keys() & new.keys():
            if old[name] != new[name]:
                differences.add(f"{name} ({old[name]} → {new[name]})")
    return sorted(differences)


def _row(
    place: tuple[str, str],
    old: Sequence[Revision],
    new: Sequence[Revision],
    *,
    threshold: float,
    is_uncaused: bool,
) -> KernelChange:
    """Return the change of a kernel at a place; without a time on each side, the reason.

    place: kernel and place
    is_uncaused: whether versions differ, so that a change has no verdict
    """
    old_times, old_reason = _times(old, place)
    new_times, new_reason = _times(new, place)
    old_us = None if old_reason else over_shapes([reading.us for reading in old_times])[1]
    new_us = None if new_reason else over_shapes([reading.us for reading in new_times])[1]
    if old_us is None or new_us is None:
        verdict = FAILED if old_us and new_reason.startswith("failed") else UNKNOWN
        no_change = Change(0.0, 0.0, 0.0, verdict, new_reason or old_reason)
        return KernelChange(*place, old_us, new_us, no_change)
    judged_change = change(old_times, new_times, threshold)
    if is_uncaused:
        judged_change = replace(judged_change, verdict=UNKNOWN, reason="")
    return KernelChange(*place, old_us, new_us, judged_change)


def _times(
    revisions: Sequence[Revision], place: tuple[str, str]
) -> tuple[list[ProcessMedian], str]:
    """Return the readings of a kernel at a place, and the reason of the first that has no time."""
    times = list[ProcessMedian]()
    reasons = list[str]()
    for revision in revisions:
        reading = revision.readings.get(place)
        if isinstance(reading, str):
            reasons.append(reading)
        elif reading is not None:
            times.append(reading)
    return times, reasons[0] if reasons else ""


def open_revisions(sources: str) -> list[Revision]:
    """Return the revisions of one side of a comparison.

    sources: runs as for open_run(), or files of NVBench's --json, with commas between them
    Raises BadSetting without a source, and BadRunFile for a file that can't be read.
    """
    opened = list[Revision]()
    for source in filter(None, sources.split(",")):
        try:
            document = msgspec.json.decode(Path(source).read_bytes())
        except (OSError, ValueError):
            document = None
        if isinstance(document, dict) and "benchmarks" in document:
            opened.append(revision_of_nvbench(document, source))
        else:
            opened.append(revision_of(open_run(source)))
    if not opened:
        raise BadSetting(
            "name a run on each side: a file, a name of `worklog log`, or REVISION:PATH"
        )
    return opened


def revision_of_nvbench(document: Any, file: str) -> Revision:
    """Return NVBench's --json of a process as a revision.

    The readings are each benchmark's mean GPU times by state.

    Raises BadRunFile for an incomplete file.
    """
    readings = dict[tuple[str, str], ProcessMedian | str]()
    try:
        cards = ", ".join(device["name"] for device in document["devices"])
        version = str(document["meta"]["version"]["nvbench"]["string"])
        for benchmark, state, values in nvbench_states(document):
            place = benchmark, state["name"]
            readings[place] = f"skipped: {state.get('skip_reason') or 'no time'}"
            if NVBENCH[0] in values:
                mean, noise, count = (values[tag] for tag in NVBENCH[:3])
                mhz = values.get(NVBENCH[3], 0.0) / 1e6
                readings[place] = ProcessMedian(
                    1e6 * mean, NORMAL * noise / count**0.5, mhz or None
                )
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise BadRunFile(
            f"{file} isn't a whole file of NVBench's --json ({error!r}): write it again"
        ) from error
    return Revision(f"NVBench · {cards} · {file}", {"GPU": cards}, {"NVBench": version}, readings)


def nvbench_states(document: Any) -> Iterator[tuple[str, dict[str, Any], dict[str, float]]]:
    """Yield the benchmarks of NVBench's JSON: name, state, numbers by tag.

    Times are in seconds.
    """
    for benchmark in document["benchmarks"]:
        for state in benchmark["states"]:
            numbers = {}
            for summary in state.get("summaries") or ():
                for datum in summary.get("data") or ():
                    if datum["name"] == "value" and datum["type"] in ("float64", "int64"):
                        numbers[summary["tag"]] = float(datum["value"])
            yield benchmark["name"], state, numbers
