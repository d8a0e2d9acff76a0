"""Whether a kernel became faster or slower between saved runs: one rule, and what it says of every kernel and place.

Two processes read the same kernel up to 1 % differently, whatever the interval in each: so a rule needs what varies
between processes, and a smallest change that counts. tests/record/compare.py records how often the rule is wrong.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import msgspec

from worklog.errors import BadSetting
from worklog.runs.documents import BadRunFile, Bar, Cell, Shown, Table, a_few, duration, signed
from worklog.runs.estimates import (
    HOST_HALF,
    NORMAL,
    OVERHEAD_SD_US,
    SLOPE,
    SLOPE_HALF,
    fitted_slope,
    over_shapes,
)
from worklog.runs.measurement import Measurement
from worklog.runs.run import Run, kept_runs, open_run

if TYPE_CHECKING:
    import pandas

FASTER = "faster"
SLOWER = "slower"
SAME = "same"
UNKNOWN = "cannot tell"
FAILED = "failed"
HOW_LONG = (
    "precision",
    "least_samples",
    "most_samples",
    "budget_s",
    "stopping",
    "hot_ms",
)  # settings that may differ
MARKS = {SLOWER: "▲ slower", FASTER: "▼ faster", FAILED: "✗ failed"}
PAIRED = "use --against-revision, which times both builds in one loop"
ONCE_MORE = "measure once more and compare all of them, as OLD NEW1,NEW2"
# The rule. Relative standard deviations: the least of a difference, and of a time's slope over the clock.
SCATTER = 0.002
SLOPE_SD = 0.35
# standard errors for a change and for its absence
SEEN = 2.33
EQUAL = 1.645
SOURCE = "25 processes x 16 readings on an H100 (recordings/intervals/h100.json), resampled"  # of these numbers
# Below this, work of several kernels, or of an unknown number, differs between processes by the gaps between them.
SEVERAL_US = 60.0
# Below this, a time differs between two cards of one model: of `warptiled` by 5 % at 256 between two H200
# (recordings/compare), and by 2.5 % at 512 and 0.5 % at 1024 between two recorded days.
CARDS_US = 100.0
NVBENCH = [
    f"nv/cold/{of}"
    for of in ("time/gpu/mean", "time/gpu/stdev/relative", "sample_size", "sm_clock_rate/mean")
]


@dataclass(frozen=True)
class Reading:
    """What one process read of a kernel at a place: microseconds, the relative half-width of their 95 % interval in
    this process, the SM clock in MHz, by how many percent the time grows with a clock 1 % higher, kernels per launch,
    the UUID of the card, and its model. None: not known.
    """

    us: float
    half: float
    sm_mhz: float | None = None
    slope: float | None = None
    kernels: int | None = None
    card: str | None = None
    model: str | None = None


@dataclass(frozen=True)
class Change:
    """The new time over the old one at one clock minus 1, the ends of its 95 % interval, and what follows from them."""

    share: float
    low: float
    high: float
    verdict: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{signed(self.share, 2)} ±{50 * (self.high - self.low):.2f}"


def change(old: Sequence[Reading], new: Sequence[Reading], threshold: float = 0.02) -> Change:
    """What the processes that read the old kernel and the new one say together. threshold: a change of this size is to
    be found. Raises BadSetting without a reading on both sides.
    """
    if not (old and new):
        raise BadSetting("a change needs a reading of each side: measure both")
    slopes = [reading.slope for reading in (*old, *new) if reading.slope is not None]
    slope = fmean(slopes) if slopes else SLOPE
    clocked = all(reading.sm_mhz for reading in (*old, *new))
    logs = list[list[float]]()
    clocks = list[float]()
    shares = list[float]()
    for side in (old, new):
        mhz = [math.log(reading.sm_mhz or 1.0) if clocked else 0.0 for reading in side]
        logs.append(
            [math.log(reading.us) - slope * clock for reading, clock in zip(side, mhz, strict=True)]
        )
        clocks.append(fmean(mhz))
        shares.append(
            math.sqrt(fmean((reading.half / NORMAL) ** 2 for reading in side) / len(side))
        )
    us = min(reading.us for reading in (*old, *new))
    free = len(old) + len(new) - 2
    between = OVERHEAD_SD_US / us
    if free:
        rest = sum((time - fmean(side)) ** 2 for side in logs for time in side)
        between = max(between, math.sqrt(rest / free))
    between *= math.sqrt(1 / len(old) + 1 / len(new))
    error = math.hypot(*shares, between, SLOPE_SD * (clocks[1] - clocks[0]), SCATTER)
    made = judged(fmean(logs[1]) - fmean(logs[0]), error, threshold)
    models = {reading.model for reading in (*old, *new) if reading.model}
    if len(models) > 1:
        return replace(
            made, verdict=UNKNOWN, reason=f"several models of GPU: {', '.join(sorted(models))}"
        )
    counts = {reading.kernels for reading in (*old, *new)}
    cards = {reading.card for reading in (*old, *new) if reading.card}
    if counts != {1} and us < SEVERAL_US:
        what = "an unknown number of kernels" if None in counts else "several kernels"
        return replace(
            made, verdict=UNKNOWN, reason=f"{what} in less than {SEVERAL_US:.0f} µs: {PAIRED}"
        )
    if len(cards) > 1 and us < CARDS_US:
        return replace(
            made, verdict=UNKNOWN, reason=f"two cards, and less than {CARDS_US:.0f} µs: {PAIRED}"
        )
    return made


def judged(log: float, error: float, threshold: float = 0.02) -> Change:
    """The verdict on a time whose logarithm has changed by `log`, with this standard error: it counts from half of the
    threshold on, if it exceeds the error; it is absent where even the end of its interval is below the threshold.
    """
    share, low, high = (math.expm1(log + sign * NORMAL * error) for sign in (0, -1, 1))
    if abs(log) > max(threshold / 2, SEEN * error):
        return Change(share, low, high, SLOWER if log > 0 else FASTER)
    if abs(log) + EQUAL * error < threshold:
        return Change(share, low, high, SAME)
    return Change(share, low, high, UNKNOWN, f"the interval reaches the threshold: {ONCE_MORE}")


@dataclass(frozen=True)
class Side:
    """One process's readings. conditions: runs with others can't be compared. versions: between others no difference
    has a known cause. readings: by kernel and place; the reason, where there is no time.
    """

    label: str
    conditions: Mapping[str, Any]
    versions: Mapping[str, str]
    readings: Mapping[tuple[str, str], Reading | str]


def side_of(run: Run) -> Side:
    """A run as one side: what it measured under its own harness."""
    tool = run.tool
    software = run.software
    conditions = {name: value for name, value in run.harness.items() if name not in HOW_LONG}
    versions = {
        "driver": run.gpu.driver,
        "NVRTC": software.get("nvrtc", ""),
        "cuBLAS": software.get("cublas", ""),
    }
    versions["harness"] = str(tool.get("harness") or tool.get("commit") or tool.get("version", ""))[
        :12
    ]
    single = {
        name for name, about in run.kernels.items() if "grid" in about and "choices" not in about
    }
    own = run.select()
    readings = {
        (name, m.place): reading_of(m, run.harness, m.kernel in single)
        for name, m in zip(run.rows_of(own), own, strict=True)
    }
    models = ", ".join(dict.fromkeys(part.gpu.name for part in run.by_card()))
    known = {name: version for name, version in versions.items() if version}
    return Side(run.label, {"GPU": models, **conditions}, known, readings)


def reading_of(m: Measurement, harness: Mapping[str, Any], single: bool = False) -> Reading | str:
    """A measurement as one process's reading; the reason, where it has no time. single: a launch is known to be one
    kernel, where an older file doesn't count them.
    """
    if m.time is None:
        return f"{m.status}: {m.reason}"
    half = math.sqrt(max(0.0, m.time.half_width**2 - (m.time.process or 0.0) ** 2)) / m.time.value
    if harness.get("timer") == "host":
        half = math.hypot(half, HOST_HALF)
    kernels = m.samples.sides[0].kernels if m.samples.sides else None
    slope = None
    if m.sm_mhz:
        fitted, of_fit = fitted_slope(*zip(m.samples.clock_logs(), strict=True))
        slope = fitted if of_fit <= SLOPE_HALF else None
    card, model = (m.context.gpu.uuid, m.context.gpu.name) if m.context else (None, None)
    launched = kernels or int(single) or None
    return Reading(m.time.value, half, m.sm_mhz, slope, launched, card, model)


@dataclass(frozen=True)
class Row:
    """One kernel at one place. us: geometric means of both sides, None where one has no time."""

    kernel: str
    place: str
    old_us: float | None
    new_us: float | None
    change: Change


@dataclass(frozen=True, repr=False)
class Changes(Shown):
    """What became of every kernel that both sides have. differ: conditions that differ, so that nothing is compared.
    versions: others that differ, so that nothing has a verdict. only: kernels and places of one side.
    """

    old: str
    new: str
    threshold: float
    rows: tuple[Row, ...]
    differ: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    def exit_code(self, strict: bool = False) -> int:
        """1 for a slower or newly failed kernel; 2 where runs can't be compared, and if strict, where versions differ;
        else 0.
        """
        if self.differ or (strict and self.versions):
            return 2
        return int(any(row.change.verdict in (SLOWER, FAILED) for row in self.rows))

    @property
    def headline(self) -> str:
        """How many kernels and places have each verdict, or why none has."""
        if self.differ:
            return f"cannot be compared: {'; '.join(self.differ)}"
        verdicts = [row.change.verdict for row in self.rows]
        counts = {
            verdict: verdicts.count(verdict) for verdict in (FAILED, SLOWER, FASTER, SAME, UNKNOWN)
        }
        return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)

    def table(self) -> Table:
        """A row per kernel and place, those that need a look first."""
        names = ("kernel", "size", "old", "new", "change (95 %)", "verdict")
        shown = list[list[Cell]]()
        for row in sorted(
            self.rows, key=lambda row: (row.change.verdict == SAME, -row.change.share)
        ):
            times = [duration(us, padded=True) if us else "–" for us in (row.old_us, row.new_us)]
            bar = Bar(
                str(row.change),
                abs(row.change.share) / (5 * self.threshold),
                row.change.verdict == SLOWER,
            )
            changed = bar if row.old_us and row.new_us else "–"
            shown.append(
                [
                    row.kernel,
                    row.place,
                    *times,
                    changed,
                    MARKS.get(row.change.verdict, row.change.verdict),
                ]
            )
        notes = [f"old: {self.old}", f"new: {self.new}", *self.versions]
        notes += dict.fromkeys(row.change.reason for row in self.rows if row.change.reason)
        notes += self._rule()
        if self.only:
            notes.append(f"on one side only: {a_few(self.only)}")
        title = f"{self.headline} · threshold {100 * self.threshold:g} %"
        return Table(title, names if shown else (), shown, left=2, notes=notes)

    def _rule(self) -> list[str]:
        """Explain the rule if a change below the threshold has a verdict."""
        judged = [row.change for row in self.rows if row.change.verdict in (SLOWER, FASTER)]
        if all(abs(change.share) >= self.threshold for change in judged):
            return []
        percent = 100 * self.threshold
        rule = f"a change counts from {percent / 2:g} % on, half of the threshold, if it exceeds its noise"
        return [f"{rule}: so a slowdown of {percent:g} % isn't missed"]

    def markdown(self) -> str:
        """For a pull request."""
        table = self.table()
        return replace(table, title=f"worklog: {table.title}").page()


def compare(old: Sequence[Side], new: Sequence[Side], threshold: float = 0.02) -> Changes:
    """The changes from one side to the other; several runs of a side are pooled, each a process of its own. Raises
    BadSetting where they have no kernel and place in common.
    """
    first = old[0]
    others = (*old[1:], *new)
    differ = _differing("conditions", first, others)
    versions = [f"another {words}: no verdict" for words in _differing("versions", first, others)]
    before, after = (
        dict.fromkeys(place for side in sides for place in side.readings) for sides in (old, new)
    )
    both = [place for place in before if place in after]
    only = [" at ".join(filter(None, place)) for place in before | after if place not in both]
    if not (both or differ):
        known = f" ({', '.join(only)})" if only else ""
        raise BadSetting(
            f"the runs have no kernel and size in common{known}: measure the same ones"
        )
    rows = [] if differ else [_row(place, old, new, threshold, bool(versions)) for place in both]
    labels = ["; ".join(dict.fromkeys(side.label for side in sides)) for sides in (old, new)]
    return Changes(
        labels[0], labels[1], threshold, tuple(rows), tuple(differ), tuple(versions), tuple(only)
    )


def of_one_loop(run: Run, suffix: str, threshold: float = 0.02) -> Changes:
    """The changes between builds that took turns: a kernel's old one is the baseline of its name and this suffix."""
    rows = list[Row]()
    for m in run.select():
        ratio = m.against.get(m.kernel + suffix)
        if ratio is not None and m.us is not None:
            made = judged(-math.log(ratio.value), ratio.relative_half_width / NORMAL, threshold)
            rows.append(Row(m.kernel, m.place, m.us * ratio.value, m.us, made))
    return Changes(f"builds of {suffix[1:]}, in one loop", run.label, threshold, tuple(rows))


def _differing(what: str, first: Side, others: Sequence[Side]) -> list[str]:
    """What both know and isn't the same, with both values."""
    mine = getattr(first, what)
    differ = set[str]()
    for theirs in (getattr(other, what) for other in others):
        same = mine.keys() & theirs.keys()
        differ |= {
            f"{name} ({mine[name]} → {theirs[name]})" for name in same if mine[name] != theirs[name]
        }
    return sorted(differ)


def _row(
    place: tuple[str, str],
    old: Sequence[Side],
    new: Sequence[Side],
    threshold: float,
    unknown: bool,
) -> Row:
    """unknown: whether versions differ, so that a change has no verdict. Without a time on each side, the reason."""
    times = list[list[Reading]]()
    reasons = list[str]()
    for sides in (old, new):
        known = [side.readings[place] for side in sides if place in side.readings]
        reasons.append(next((reading for reading in known if isinstance(reading, str)), ""))
        times.append([reading for reading in known if isinstance(reading, Reading)])
    before, after = (
        None if why else over_shapes([r.us for r in of])[1]
        for of, why in zip(times, reasons, strict=True)
    )
    if before is None or after is None:
        verdict = FAILED if before and reasons[1].startswith("failed") else UNKNOWN
        made = Change(0.0, 0.0, 0.0, verdict, f"{' at '.join(place)}: {reasons[1] or reasons[0]}")
    else:
        made = change(times[0], times[1], threshold)
        made = replace(made, verdict=UNKNOWN, reason="") if unknown else made
    return Row(*place, before, after, made)


def history(
    kernel: str = "", gpu: str = "", since: str = "", until: str = "", commit: str = ""
) -> pandas.DataFrame:
    """The measurements of many runs of this machine as one frame: the columns of `run.frame()`, and before them the
    run's name, when it was made, the card and the commit. The arguments choose as in saved().

    Example: `worklog.history("warptiled", since="2026-11").pivot_table("us", "created", "n")`.
    """
    import pandas

    rows = list[dict[str, Any]]()
    for run in saved(kernel, gpu, since, until, commit):
        about: dict[str, Any] = {"run": run.path and run.path.stem, "created": run.created}
        about |= {"gpu": run.gpu.name, "uuid": run.gpu.uuid, "commit": run.tool.get("commit")}
        rows += [about | row for row in run.rows() if kernel in ("", row["kernel"])]
    return pandas.DataFrame(rows)


def saved(
    kernel: str = "", gpu: str = "", since: str = "", until: str = "", commit: str = ""
) -> list[Run]:
    """The runs of this machine, newest first. kernel: one of theirs. gpu: a part of the card's name or UUID. since,
    until: first and last UTC time, as "2026-11", "2026-11-27" or longer. commit: the first digits. Raises
    BadSetting for another form of a time.
    """
    for time in filter(None, (since, until)):
        if not re.fullmatch(r"\d{4}(-(0\d|1[0-2])(-[0-3]\d(T[\d:+.]*)?)?)?", time):
            raise BadSetting(
                f"{time!r} isn't a UTC day, month or time: write it as 2026-11-27, 2026-11 or 2026-11-27T03:12"
            )
    runs = list[Run]()
    for run in kept_runs():
        held = not kernel or any(m.kernel == kernel for m in run.measurements)
        card = gpu.lower() in f"{run.gpu.name} {run.gpu.uuid}".lower()
        of_commit = str(run.tool.get("commit") or "").startswith(commit)
        if (
            held
            and card
            and of_commit
            and since <= run.created
            and run.created[: len(until)] <= until
        ):
            runs.append(run)
    return runs


def sides(words: str) -> list[Side]:
    """The sides of a comparison: runs as for open_run(), or files of NVBench's --json, with commas between them. Raises
    BadSetting and BadRunFile.
    """
    named = list[Side]()
    for word in filter(None, words.split(",")):
        try:
            document = msgspec.json.decode(Path(word).read_bytes())
        except (OSError, ValueError):
            document = None
        nvbench = isinstance(document, dict) and "benchmarks" in document
        named.append(side_of_nvbench(document, word) if nvbench else side_of(open_run(word)))
    if not named:
        raise BadSetting(
            "name a run on each side: a file, a name of `worklog log`, or REVISION:PATH"
        )
    return named


def side_of_nvbench(document: Any, file: str) -> Side:
    """What NVBench's --json of one process says: each benchmark's mean GPU time at each state. Raises BadRunFile."""
    readings = dict[tuple[str, str], Reading | str]()
    try:
        cards = ", ".join(device["name"] for device in document["devices"])
        version = str(document["meta"]["version"]["nvbench"]["string"])
        for benchmark, state, values in nvbench_states(document):
            place = benchmark, state["name"]
            readings[place] = f"skipped: {state.get('skip_reason') or 'no time'}"
            if NVBENCH[0] in values:
                mean, noise, count = (values[tag] for tag in NVBENCH[:3])
                mhz = values.get(NVBENCH[3], 0.0) / 1e6
                readings[place] = Reading(1e6 * mean, NORMAL * noise / count**0.5, mhz or None)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise BadRunFile(
            f"{file} isn't a whole file of NVBench's --json ({error!r}): write it again"
        ) from error
    return Side(f"NVBench · {cards} · {file}", {"GPU": cards}, {"NVBench": version}, readings)


def nvbench_states(document: Any) -> Iterator[tuple[str, dict[str, Any], dict[str, float]]]:
    """Of NVBench's JSON, each benchmark's name and states, with the numbers of each by their tags; times in seconds."""
    for benchmark in document["benchmarks"]:
        for state in benchmark["states"]:
            numbers = {}
            for summary in state.get("summaries") or ():
                for datum in summary.get("data") or ():
                    if datum["name"] == "value" and datum["type"] in ("float64", "int64"):
                        numbers[summary["tag"]] = float(datum["value"])
            yield benchmark["name"], state, numbers
