"""What a run has for a kernel, a size and a combination of settings.

Samples are read, never modelled: for a combination that was not measured there is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

from worklog.errors import WorklogError
from worklog.problem import Shape
from worklog.runs import Difference, Estimate, Measurement, Run, Table, Timed, compare, event_overhead_us, summarize
from worklog.runs import Reading as Samples
from worklog.settings import PITFALLS, Pitfall, Value, rule

Settings = Mapping[str, Value]
LAUNCHES = tuple(g for g in PITFALLS if g.resampled and g.setting != "gate")  # these change how samples are taken
COMPUTED = tuple(g for g in PITFALLS if g not in LAUNCHES)  # with any value of these, the launches are the same
ARITHMETIC = ("offset", "timer", "statistic", "roof")  # settings that change a reading of the same launches
PRINTED = 5e-4  # a smaller share is 0.0 %


class NotRecorded(WorklogError):
    """A run does not hold a combination of kernel, shape and settings; the message names what it holds."""


@dataclass(frozen=True)
class Reading:
    """One result. Times in microseconds with their 95 % interval; ratio: cuBLAS's time over the kernel's. samples: the
    times that count, in launch order. timed: the time with all samples.
    """

    run: Run
    measurement: Measurement
    time: Estimate
    ratio: Estimate
    of_roof: float | None
    samples: tuple[float, ...]
    timed: Timed

    def difference(self, other: Reading) -> Difference:
        """From the other's time to this one, at the other's clock. Two results from the same samples by events have no
        noise: they differ where the difference isn't printed as 0.0 %.
        """
        if self.measurement is other.measurement and not self.timed.by_host:
            return Difference(math.log(self.time.value / other.time.value), PRINTED, 0.0)
        return compare(other.timed, self.timed)


def unbiased_settings(run: Run | None = None) -> dict[str, Value]:
    """The unbiased value of every setting; the run's own where it is another one that isn't biased. A run from before
    `placement` has only its biased value.
    """
    settings = {g.setting: g.unbiased for g in PITFALLS}
    own = {} if run is None else run.harness
    return settings | {
        g.setting: own[g.setting]
        for g in PITFALLS
        if g.setting in own and (g.setting == "placement" or not g.is_biased(own[g.setting]))
    }


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
    """What a run holds, found by kernel, shape and the settings of the launches that aren't unbiased."""

    def __init__(self, run: Run) -> None:
        self.run, self.unbiased = run, unbiased_settings(run)
        self._known = [g for g in LAUNCHES if g.setting not in run.unknown]
        self._found: dict[tuple[Any, ...], Measurement] = {}
        self._by_gate: dict[tuple[Any, ...], Measurement] = {}
        self._readings: dict[tuple[Any, ...], Reading] = {}
        for m in run.measurements:
            made = made_with(run, m)
            for settings in (made, made | {"clocks": rule(made["clocks"])}):  # "locked" means at any frequency
                key = m.kernel, m.problem, self._key(settings)
                self._found.setdefault(key, m)
                self._by_gate.setdefault((*key, made["gate"]), m)

    def _changed(self, settings: Settings) -> dict[str, Value]:
        chosen = ((g, settings[g.setting]) for g in self._known)
        return {g.setting: value for g, value in chosen if value not in (g.unbiased, self.unbiased[g.setting])}

    def _key(self, settings: Settings) -> frozenset[tuple[str, Value]]:
        changed = self._changed(settings)
        if settings["timer"] == "host":
            changed.pop("queue", None)  # with a host clock no queue builds up
        return frozenset(changed.items())

    def find(self, kernel: str, shape: Shape, settings: Settings) -> Measurement | None:
        """The measurement whose launches were made with these settings, or None. Settings that only change the
        arithmetic are ignored, and so is the gate; a measurement with the same gate comes first.
        """
        key = kernel, shape, self._key(settings)
        return self._by_gate.get((*key, settings["gate"])) or self._found.get(key)

    def has(self, kernel: str, shape: Shape, settings: Settings) -> bool:
        """Whether there is a time for this combination."""
        found = self.find(kernel, shape, settings)
        return found is not None and found.status == "measured"

    def nearest(self, kernel: str, shape: Shape, settings: Settings) -> Nearest | None:
        """The measured combination with the fewest settings changed, and of those the one whose changed settings come
        first in the table: of this kernel at this shape, else at another shape, else of another kernel. None where
        nothing was measured.
        """
        chosen = self._changed(settings)

        def differences(made: Mapping[str, Value]) -> dict[Pitfall, Value]:
            differ = {g: made.get(g.setting) for g in LAUNCHES if made.get(g.setting) != chosen.get(g.setting)}
            by_host = made.get("timer") == "host"
            return {
                g: self.unbiased[g.setting] if value is None else value
                for g, value in differ.items()
                if not (by_host and g.setting == "queue")
            }

        def distance(entry: tuple[Any, ...]) -> tuple[Any, ...]:
            name, size, made = entry
            differ = differences(dict(made))
            steps = [(LAUNCHES.index(g), g.values.index(rule(value))) for g, value in differ.items()]
            return name != kernel, size != shape, len(steps), steps, abs(math.log(size.flops / shape.flops))

        measured = [entry for entry, found in self._found.items() if found.status == "measured"]
        if not measured:
            return None
        name, size, made = entry = min(measured, key=distance)
        differ = differences(dict(made))
        found = {**settings, **{g.setting: value for g, value in differ.items()}}
        back = [g for g, value in differ.items() if value == self.unbiased[g.setting]]
        words = {
            name: name != kernel,
            f"at {size}": size != shape,
            f"without {in_words(settings, back)}": bool(back),
            f"with {in_words(found, [g for g in differ if g not in back])}": len(back) < len(differ),
        }
        return Nearest(name, size, found, " ".join(each for each, said in words.items() if said), distance(entry))

    def read(self, kernel: str, shape: Shape, settings: Settings) -> Reading:
        """The reading of one combination. Raises NotRecorded, naming the nearest there is, or why there is no time."""
        m = self.find(kernel, shape, settings)
        if m is None:
            launches = [g for g in changes(settings, self.run) if g in LAUNCHES]
            nearest = self.nearest(kernel, shape, settings)
            words = "nothing was measured" if nearest is None else f"nearest: {nearest.words}"
            raise NotRecorded(f"not recorded: {kernel} at {shape}, {in_words(settings, launches)}; {words}")
        key = (id(m), *(settings[name] for name in ARITHMETIC))
        if key not in self._readings:
            self._readings[key] = _summarized(self.run, m, settings)
        return self._readings[key]


def made_with(run: Run, m: Measurement) -> dict[str, Value]:
    """The settings that a measurement was made with."""
    return {g.setting: g.unbiased for g in PITFALLS} | run.harness | m.changed


def _summarized(run: Run, m: Measurement, settings: Settings) -> Reading:
    if m.status != "measured":
        raise NotRecorded(f"{m.kernel} at {m.problem}: {m.outcome}: {m.reason}")
    try:
        overhead = event_overhead_us(settings, run.calibration)
    except KeyError:
        raise NotRecorded(
            f"this {run.origin} run has no calibrated event overhead to remove: set offset = kept"
        ) from None
    samples = Samples.of_columns(m.samples)
    peak = m.tflops / m.of_roof if m.of_roof and m.tflops and made_with(run, m)["roof"] == "fp32" else None
    found = summarize(samples, settings, run.calibration, m.problem.flops, peak)
    assert found.ratio is not None
    counted = tuple(us - overhead for us in samples.counted("subject"))
    timed = Timed(found.time, samples, overhead, settings["timer"] == "host")
    return Reading(run, m, found.time, found.ratio, found.of_peak, counted, timed)


def contents(run: Run) -> Table:
    """What a run holds for the panel: rungs, sizes, and the combinations of settings with a time at each of these."""
    held = Held(run)
    places = list(dict.fromkeys((m.kernel, m.problem) for m in run.measurements))

    @cache
    def there(*changed: tuple[Pitfall, Value]) -> bool:
        settings = {**held.unbiased, **{g.setting: value for g, value in changed}}
        return all(held.has(*place, settings) for place in places)

    values = [(g, v) for g in LAUNCHES for v in g.values if v not in (g.unbiased, held.unbiased[g.setting])]
    alone = [(g, v) for g, v in values if g.setting not in run.unknown and there((g, v))]
    pairs = [pair for pair in combinations(alone, 2) if pair[0][0] is not pair[1][0]]
    first = tuple(change for change in alone if change[1] == change[0].biased[0])

    def every_part_is_there(changed: tuple[tuple[Pitfall, Value], ...]) -> bool:
        return all(there(*part) for count in range(len(changed) + 1) for part in combinations(changed, count))

    subsets = (subset for count in range(len(first), 2, -1) for subset in combinations(first, count))
    complete = next(filter(every_part_is_there, subsets), ())
    more = f"every combination of {_names(g for g, _ in complete)}" if complete else "none"
    if there(*first) and first != complete:
        more += "; and all of these settings together"
    restored = [g for g, _ in first if there(*(change for change in first if change[0] is not g))]
    most = max((len(m.samples.get("us", ())) for m in run.measurements), default=0)
    rows = [
        ("rungs", ", ".join(dict.fromkeys(kernel for kernel, _ in places))),
        ("sizes", ", ".join(str(shape) for shape in dict.fromkeys(shape for _, shape in places))),
        ("one setting changed", _listed(alone)),
        ("two of these", f"{sum(there(*pair) for pair in pairs)} of {len(pairs)} pairs"),
        ("three or more of these", more),
        ("all of these but one", f"restored: {_names(restored)}" if restored else "none"),
        ("any value of", f"{_names(COMPUTED)}: these need no other launches"),
        ("not recorded", _listed([change for change in values if change not in alone])),
    ]
    notes = [f"{len(run.measurements)} measurements of at most {most} samples", run.label]
    return Table("recorded for the panel", (), rows, left=2, notes=notes)


def _names(pitfalls: Iterable[Pitfall]) -> str:
    return ", ".join(g.setting for g in pitfalls)


def _listed(changed: Iterable[tuple[Pitfall, Value]]) -> str:
    return ", ".join(in_words({g.setting: value}, [g]) for g, value in changed) or "none"
