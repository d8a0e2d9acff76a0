"""What a page shows, without widgets: a kernel, a size, settings, and the reading that a run has for them.

Samples are read, never modelled: for a combination that was not measured there is an error.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

from worklog.errors import BadRunFile, WorklogError
from worklog.gpu import gpu_reason
from worklog.kernel import rung
from worklog.plots import Chart
from worklog.problem import Shape
from worklog.runs import (
    PRECISION,
    Estimate,
    Measurement,
    Run,
    Table,
    event_overhead_us,
    forced_source,
    new_path,
    open_run,
    recordings,
    summarize,
)
from worklog.runs import Reading as Samples
from worklog.settings import PITFALLS, Pitfall, Value, rule

GRID = "h200_grid"


class Choice:
    """The chosen kernel and shape, and the runs, the most trusted one first. Raises UnknownRung or BadShape."""

    def __init__(self, runs: Sequence[Run], kernel: str | None = None, size: Shape | int | None = None) -> None:
        self.runs = list(runs)
        self.kernel = self.known_kernels()[-1]
        if kernel is not None:
            self.choose_kernel(kernel)
        self.shape = self.first_shape(sorted(self.known_shapes(), key=_by_work)) if size is None else Shape.of(size)

    def known_kernels(self) -> list[str]:
        """The kernels that there is something to show for, in the order of the drop-down list; at least one."""
        raise NotImplementedError

    def known_shapes(self) -> set[Shape]:
        """The shapes that there is something to show for, of the chosen kernel where that matters."""
        raise NotImplementedError

    def first_shape(self, known: list[Shape]) -> Shape:
        """The shape to begin with: the middle one."""
        return known[len(known) // 2] if known else Shape.of(1024)

    def available(self, kernel: str | None = None, shape: Shape | None = None) -> bool:
        """Whether there is a result for this kernel or shape, with everything else as chosen."""
        return True

    def chart(self) -> Chart:
        """The result as a picture. Raises WorklogError where there is none."""
        raise NotImplementedError

    @property
    def kernels(self) -> list[str]:
        """The known kernels and the chosen one."""
        return list(dict.fromkeys([*self.known_kernels(), self.kernel]))

    @property
    def shapes(self) -> list[Shape]:
        """The known shapes and the chosen one, smallest first."""
        return sorted(self.known_shapes() | {self.shape}, key=_by_work)

    def choose_kernel(self, kernel: str) -> None:
        """Choose another kernel. Raises UnknownRung where it is neither known nor a rung."""
        self.kernel = kernel if kernel in self.known_kernels() else rung(kernel).name

    def choose_shape(self, size: Shape | int) -> None:
        """Choose another shape; a number means a square one. Raises BadShape."""
        self.shape = Shape.of(size)


def _by_work(shape: Shape) -> tuple[int, Shape]:
    return shape.flops, shape


def grid_runs(given: Run | Path | None = None) -> list[Run]:
    """The panel's runs: the given one, else the recorded grid; none with WORKLOG_SOURCE=live. Raises BadRunFile."""
    return [] if given is None and forced_source() == "live" else [grid_run(given)]


def grid_run(given: Run | Path | None = None) -> Run:
    """The given run, else the recorded grid. Raises BadRunFile."""
    if given is None and GRID not in recordings():
        raise BadRunFile(
            f"this installation has no recording {GRID}: reinstall gemm-worklog, or make one on a GPU with "
            f"`worklog grid --out {GRID}.json` and pass it as run="
        )
    return given if isinstance(given, Run) else open_run(given or recordings()[GRID])


def ladder_runs(given: Run | Path | None = None) -> list[Run]:
    """The ladder's and the ablation's runs: the given one, else the default run and, if that was measured here, the
    recording after it (not with WORKLOG_SOURCE=live). Raises BadRunFile where there is no run.
    """
    found = given if isinstance(given, Run) else open_run(given)
    if given is not None or found.origin == "recorded" or forced_source() == "live":
        return [found]
    return [found, *(open_run(path) for path in list(recordings().values())[:1])]


def why_not_live() -> str | None:
    """Why nothing can be measured here, or None."""
    if forced_source() == "recorded":
        return "WORKLOG_SOURCE=recorded"
    return gpu_reason()


def new_file() -> Path:
    """Where the panel's next run is saved: in a folder of its own, so that no command opens it by default."""
    path = new_path("panel", datetime.now(UTC).isoformat(), secrets.token_hex(2))
    return path.parent / "panel" / path.name


Settings = Mapping[str, Value]
PRINTED = 5e-4  # a smaller share is 0.0 %


class NotRecorded(WorklogError):
    """A run does not hold a combination of kernel, shape and settings; the message names what it holds."""


@dataclass(frozen=True)
class Reading:
    """One result. Times in microseconds with their 95 % interval; ratio: cuBLAS's time over the kernel's. samples: the
    times that count, in launch order.
    """

    run: Run
    measurement: Measurement
    time: Estimate
    ratio: Estimate
    of_roof: float | None
    samples: tuple[float, ...]

    def differs(self, other: Reading) -> bool:
        """Whether the two times differ by more than their noise. Two results from the same samples have no noise: they
        differ where the difference isn't printed as 0.0 %.
        """
        same = self.measurement is other.measurement
        noise = PRINTED if same else self.time.relative_half_width + other.time.relative_half_width + PRECISION
        return abs(self.time.value / other.time.value - 1) > noise


def unbiased_settings(run: Run | None = None) -> dict[str, Value]:
    """The unbiased value of every setting; the run's own where it is another one that isn't biased."""
    own = {} if run is None else run.harness
    kept = {g.setting for g in PITFALLS if rule(own.get(g.setting, "")) in g.also}
    if own.get("placement") == "fixed":  # a run from before this setting has no other
        kept.add("placement")
    return {g.setting: own[g.setting] if g.setting in kept else g.unbiased for g in PITFALLS}


def changes(settings: Settings, run: Run | None = None) -> list[Pitfall]:
    """The pitfalls whose setting is not the unbiased one, in the table's order."""
    unbiased = unbiased_settings(run)
    return [g for g in PITFALLS if settings[g.setting] not in (unbiased[g.setting], g.unbiased)]


def in_words(settings: Settings, which: Iterable[Pitfall] | None = None) -> str:
    """Settings in words: "l2 = warm, queue = off", or "unbiased"."""
    chosen = changes(settings) if which is None else which
    return ", ".join(f"{g.setting} = {word(settings[g.setting])}" for g in chosen) or "unbiased"


def word(value: Value) -> str:
    """A value in words: on and off for True and False."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


LAUNCHES = tuple(g for g in PITFALLS if g.resampled and g.setting != "gate")  # the launches are the same with any gate
TIMER, QUEUE = ([g.setting for g in LAUNCHES].index(setting) for setting in ("timer", "queue"))
ARITHMETIC = ("offset", "timer", "statistic", "roof")  # settings that change a reading of the same launches
Made = tuple[Value, ...]  # the values of LAUNCHES; the table's unbiased value replaces a run's own


@dataclass(frozen=True)
class Nearest:
    """A combination that a run holds, near one that it doesn't hold. words: how they differ, such as "without timer =
    host". distance: smaller where it is nearer.
    """

    kernel: str
    shape: Shape
    settings: dict[str, Value]
    words: str
    distance: tuple[Any, ...]


class Held:
    """What a run holds, found by kernel, shape and the settings of the launches."""

    def __init__(self, run: Run) -> None:
        self.run, self.unbiased = run, unbiased_settings(run)
        self._found: dict[tuple[str, Shape, Made], list[Measurement]] = {}
        self._readings: dict[tuple[Any, ...], Reading] = {}
        for m in run.measurements:
            made = _made(run, m)
            locked = made | {"clocks": rule(made["clocks"])}  # at any frequency
            for key in {self._key(made), self._key(locked)}:
                self._found.setdefault((m.kernel, m.problem, key), []).append(m)

    def _key(self, settings: Settings) -> Made:
        """The settings of the launches. With a host clock no queue builds up, so `queue` doesn't change them."""
        alike = dict(self.unbiased, **({"queue": settings["queue"]} if settings["timer"] == "host" else {}))
        return tuple(g.unbiased if settings[g.setting] == alike[g.setting] else settings[g.setting] for g in LAUNCHES)

    def find(self, kernel: str, shape: Shape, settings: Settings) -> Measurement | None:
        """The measurement whose launches were made with these settings, or None. Settings that only change the
        arithmetic are ignored, and so is the gate; a measurement with the same gate comes first.
        """
        here = self._found.get((kernel, shape, self._key(settings)), ())
        if len(here) == 1:
            return here[0]
        return min(here, key=lambda m: _made(self.run, m)["gate"] != settings["gate"], default=None)

    def has(self, kernel: str, shape: Shape, settings: Settings) -> bool:
        """Whether there is a time for this combination."""
        found = self.find(kernel, shape, settings)
        return found is not None and found.status == "measured"

    def nearest(self, kernel: str, shape: Shape, settings: Settings) -> Nearest | None:
        """The measured combination with the fewest settings changed, and of those the one whose changed settings come
        first in the table: of this kernel at this shape, else at another shape, else of another kernel. None where
        nothing was measured.
        """
        chosen = self._key(settings)

        def apart(made: Made) -> list[int]:
            alike = QUEUE if "host" in (made[TIMER], chosen[TIMER]) else None
            return [i for i, value in enumerate(made) if value != chosen[i] and i != alike]

        def distance(entry: tuple[str, Shape, Made]) -> tuple[Any, ...]:
            name, size, made = entry
            differ = apart(made)
            values = [LAUNCHES[i].values.index(made[i]) for i in differ if made[i] in LAUNCHES[i].values]
            return name != kernel, size != shape, len(differ), differ, values, abs(math.log(size.flops / shape.flops))

        measured = [entry for entry, found in self._found.items() if found[0].status == "measured"]
        if not measured:
            return None
        name, size, made = nearest = min(measured, key=distance)
        differ = {LAUNCHES[i]: made[i] for i in apart(made)}
        own = {g.setting: self.unbiased[g.setting] if value == g.unbiased else value for g, value in differ.items()}
        found = {**settings, **own}
        words = [name] if name != kernel else []
        words += [f"at {size}"] if size != shape else []
        for preposition, values, which in (
            ("without", settings, [g for g, value in differ.items() if value == g.unbiased]),
            ("with", found, [g for g, value in differ.items() if value != g.unbiased]),
        ):
            words += [f"{preposition} {in_words(values, which)}"] if which else []
        return Nearest(name, size, found, " ".join(words), distance(nearest))

    def read(self, kernel: str, shape: Shape, settings: Settings) -> Reading:
        """The reading of one combination. Raises NotRecorded, naming the nearest there is, or why there is no time."""
        run, m = self.run, self.find(kernel, shape, settings)
        if m is None:
            launches = [g for g in changes(settings, run) if g in LAUNCHES]
            nearest = self.nearest(kernel, shape, settings)
            words = "nothing was measured" if nearest is None else f"nearest: {nearest.words}"
            raise NotRecorded(f"not recorded: {kernel} at {shape}, {in_words(settings, launches)}; {words}")
        key = (id(m), *(settings[name] for name in ARITHMETIC))
        if key not in self._readings:
            self._readings[key] = self._summarized(m, settings)
        return self._readings[key]

    def _summarized(self, m: Measurement, settings: Settings) -> Reading:
        run, shape = self.run, m.problem
        if m.status != "measured":
            raise NotRecorded(f"{m.kernel} at {shape}: {m.outcome}: {m.reason}")
        try:
            overhead = event_overhead_us(settings, run.calibration)
        except KeyError:
            raise NotRecorded(
                f"this {run.origin} run has no calibrated event overhead to remove: set offset = kept"
            ) from None
        samples = Samples.of_columns(m.samples)
        peak = m.tflops / m.of_roof if m.of_roof and m.tflops and _made(run, m)["roof"] == "fp32" else None
        found = summarize(samples, settings, run.calibration, shape.flops, peak)
        assert found.ratio is not None
        counted = tuple(us - overhead for us in samples.counted("subject"))
        return Reading(run, m, found.time, found.ratio, found.of_peak, counted)


def _made(run: Run, m: Measurement) -> dict[str, Value]:
    """The settings that a measurement was made with."""
    return {g.setting: g.unbiased for g in PITFALLS} | run.harness | m.changed


def contents(run: Run) -> Table:
    """What a run holds for the panel: rungs, sizes, and the combinations of settings with a time at each of these."""
    held = Held(run)
    places = list(dict.fromkeys((m.kernel, m.problem) for m in run.measurements))

    def there(*changes: tuple[Pitfall, Value]) -> bool:
        settings = {**held.unbiased, **{g.setting: value for g, value in changes}}
        return all(held.has(*place, settings) for place in places)

    values = [(g, v) for g in LAUNCHES for v in g.values if v not in (g.unbiased, held.unbiased[g.setting])]
    alone = [change for change in values if there(change)]
    pairs = [(one, other) for one, other in combinations(alone, 2) if one[0] is not other[0]]
    several = [g for g, value in alone if value == g.biased[0]]
    whole = [subset for count in range(len(several) + 1) for subset in combinations(several, count)]
    held_whole = {subset for subset in whole if there(*((g, g.biased[0]) for g in subset))}
    complete = max(
        (s for s in held_whole if all(part in held_whole for n in range(len(s)) for part in combinations(s, n))),
        key=lambda subset: (len(subset), -whole.index(subset)),
        default=(),
    )
    more = f"every combination of {_names(complete)}" if len(complete) > 2 else "none"
    together = "; and all of these settings together" if tuple(several) in held_whole - {complete} else ""
    most = max((len(m.samples.get("us", ())) for m in run.measurements), default=0)
    rows = [
        ("rungs", ", ".join(dict.fromkeys(kernel for kernel, _ in places))),
        ("sizes", ", ".join(str(shape) for shape in dict.fromkeys(shape for _, shape in places))),
        ("one setting changed", _listed(alone)),
        ("two of these", f"{sum(there(*pair) for pair in pairs)} of {len(pairs)} pairs"),
        ("three or more of these", more + together),
        ("any value of", f"{_names([g for g in PITFALLS if g not in LAUNCHES])}: these need no other launches"),
        ("not recorded", _listed([change for change in values if change not in alone])),
    ]
    notes = [f"{len(run.measurements)} measurements of at most {most} samples", run.label]
    return Table("recorded for the panel", (), rows, left=2, notes=notes)


def _names(pitfalls: Iterable[Pitfall]) -> str:
    return ", ".join(g.setting for g in pitfalls)


def _listed(changes: Iterable[tuple[Pitfall, Value]]) -> str:
    return ", ".join(in_words({g.setting: value}, [g]) for g, value in changes) or "none"
