"""Every answer of the panel as one table, for a page that only looks up: words, and pictures as places on a square.

An answer is found by its key: a letter for each pitfall, in the table's order, for the place of its value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

from worklog.lab.choice import LAUNCHES, Held, NotRecorded, Reading, Settings, changes, in_words, word
from worklog.lab.panel_answer import WIDE, Answer, PanelChoice, limits, us_ticks
from worklog.problem import Shape
from worklog.runs import Run, duration
from worklog.settings import PITFALLS, Harness, Value, rule

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
SIDE = 1000  # of the square that pictures are drawn on; its origin is the upper left corner
Combination = dict[str, Value]


class Pool:
    """Values of JSON, each one once; a value is referred to by its place."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._places: dict[str, int] = {}
        self._made: dict[tuple[Any, ...], int] = {}

    def __call__(self, item: Any) -> int:
        """The value's place."""
        place = self._places.setdefault(json.dumps(item), len(self.items))
        if place == len(self.items):
            self.items.append(item)
        return place

    def made(self, make: Callable[..., Any], *parts: Any) -> int:
        """The place of make(pool, *parts), which is made once."""
        if (make, parts) not in self._made:
            self._made[make, parts] = self(make(self, *parts))
        return self._made[make, parts]


class Cached(Held):
    """A run of which each reading is summarized once, and the nearest combination isn't looked for."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._readings: dict[tuple[Any, ...], Reading] = {}

    def read(self, kernel: str, shape: Shape, settings: Settings) -> Reading:
        """The reading of one combination. Raises NotRecorded."""
        m = self.find(kernel, shape, settings)
        if m is None:
            raise NotRecorded("not recorded")
        key = (id(m), *(settings[name] for name in ("offset", "timer", "statistic", "roof")))
        if key not in self._readings:
            self._readings[key] = super().read(kernel, shape, settings)
        return self._readings[key]


def key_of(settings: Settings) -> str:
    """The key of an answer."""
    return "".join(LETTERS[g.values.index(rule(settings[g.setting]))] for g in PITFALLS)


def panel_table(run: Run) -> dict[str, Any]:
    """The panel on one run, as JSON: the table of pitfalls; the answers by "kernel size" and key; and for the keys of
    recorded values that have no answer, the nearest ones that have. Raises NotRecorded for a run without an unbiased
    reading.
    """
    held, pool = Cached(run), Pool()
    choice = PanelChoice([run])
    choice.held = [held]
    unbiased, values = key_of(held.unbiased), _choosable(held)
    four = key_of(held.unbiased | {g.setting: g.biased[0] for g in PITFALLS if g.article})
    groups: dict[str, Any] = {}
    start: dict[str, str] = {}  # the last kernel at the largest size, with the article's four pitfalls
    nearest: dict[frozenset[str], dict[str, tuple[str, str, str]]] = {}
    for kernel, shape in product(choice.known_kernels(), choice.shapes):
        choice.kernel, choice.shape = kernel, shape
        if not held.has(kernel, shape, held.unbiased):
            continue
        launches = [combination for combination in values if held.has(kernel, shape, combination)]
        answers: dict[str, int] = {}
        for combination, computed in product(launches, _products({g.setting: g.values for g in COMPUTED})):
            choice.settings = {g.setting: (combination | computed)[g.setting] for g in PITFALLS}
            answers[key_of(choice.settings)] = pool(_record(choice.answer(), pool))
        known = frozenset(map(key_of, launches))
        if known not in nearest:
            own = [m for m in run.measurements if (m.kernel, m.problem) == (kernel, shape)]
            missing = [combination for combination in values if combination not in launches]
            nearest[known] = _nearest(Held(replace(run, measurements=own)), kernel, shape, missing)
        start = {"kernel": kernel, "size": str(shape), "key": four if four in answers else unbiased}
        groups[f"{kernel} {shape}"] = {"answers": answers, "nearest": pool(nearest[known])}
    if not groups:
        raise NotRecorded(f"this {run.origin} run has no unbiased reading: make a grid with `worklog grid`")
    return {
        "kernels": choice.known_kernels(),
        "sizes": [str(shape) for shape in choice.shapes],
        "pitfalls": [
            {
                "setting": g.setting,
                "title": g.title,
                "what": g.what,
                "article": g.article,
                "values": [word(value) for value in g.values],
                "biased": [g.is_biased(value) for value in g.values],
                "first_biased": g.values.index(g.biased[0]),
                "fixed": g.values.index(g.unbiased),
                "recorded": [g in COMPUTED or any(c[g.setting] == value for c in values) for value in g.values],
                "launches": g in LAUNCHES,
            }
            for g in PITFALLS
        ],
        "unbiased": unbiased,
        "naive": key_of(Harness.naive().biased()),
        "start": start,
        "groups": groups,
        "items": pool.items,
    }


COMPUTED = [g for g in PITFALLS if g not in LAUNCHES]  # with every value of these, the launches are the same


def _products(values: Mapping[str, Sequence[Value]]) -> list[Combination]:
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def _choosable(held: Held) -> list[Combination]:
    """Every combination of the values with which something was measured or that a box switches to; what is computed is
    unbiased.
    """
    made = [m.changed for m in held.run.measurements if m.status == "measured"]
    values: dict[str, list[Value]] = {g.setting: [held.unbiased[g.setting]] for g in PITFALLS}
    for g in LAUNCHES:
        used = [changed[g.setting] for changed in made if g.setting in changed]
        values[g.setting] = list(dict.fromkeys([*values[g.setting], g.unbiased, g.biased[0], *used]))
    return _products(values)


def _nearest(held: Held, kernel: str, shape: Shape, missing: Sequence[Combination]) -> dict[str, tuple[str, str, str]]:
    """For each missing combination the key of the nearest one, how that one differs, and the missing one in words."""
    found = {}
    for settings in missing:
        nearest = held.nearest(kernel, shape, settings)
        assert nearest is not None
        launches = [g for g in changes(settings, held.run) if g in LAUNCHES]
        found[key_of(settings)] = (key_of(nearest.settings), nearest.words, in_words(settings, launches))
    return found


def _record(answer: Answer, pool: Pool) -> list[int]:
    """An answer as places in the pool: number, comparison, other lines, label, colour, and the two pictures."""
    colour = ("accent" if answer.off > 0 else "alert") if answer.biased else "ink"
    words = (answer.headline.split(" → "), answer.comparison, answer.others, answer.reading.measurement.label, colour)
    shown = [("grey", answer.unbiased)] * bool(answer.changed) + [
        ("alert" if colour == "alert" else "accent", answer.reading)
    ]
    samples = [(role, reading.samples, reading.time.value) for role, reading in shown]
    steps = [(s.name, s.visible, s.amount, s.before.time.value, s.after.time.value) for s in answer.steps]
    ends = (answer.unbiased.time.value, answer.reading.time.value)
    return [*map(pool, words), pool.made(_samples, *samples), pool.made(_steps, *ends, *steps) if steps else pool([])]


@dataclass(frozen=True)
class Axis:
    """From low to high, logarithmic where the values differ much. air: as in limits()."""

    low: float
    high: float

    @classmethod
    def around(cls, values: Sequence[float], air: float) -> Axis:
        """The axis of a picture with these values."""
        return cls(*limits(values, air))

    @property
    def logarithmic(self) -> bool:
        """Whether equal distances are equal factors."""
        return self.low > 0 and self.high > WIDE * self.low

    def __call__(self, value: float) -> float:
        """The value's place between 0 and SIDE, in tenths."""
        low, high, at = (math.log(v) if self.logarithmic else v for v in (self.low, self.high, value))
        return round(SIDE * (at - low) / (high - low), 1)


def _samples(pool: Pool, *shown: tuple[str, tuple[float, ...], float]) -> dict[str, Any]:
    """The samples of each reading: its colour, its dots as a path with the transform that puts it in place, and the
    height of its estimate; and the ticks of the axis, each with its height, also in percent.
    """
    axis = Axis.around([us for _, samples, time in shown for us in (*samples, time)], 1.25)
    wide = SIDE / (max(len(samples) for _, samples, _ in shown) + 1)
    readings = []
    for colour, samples, time in shown:
        bottom, top = axis(min(samples)), axis(max(samples))
        place = f"translate(0 {SIDE - bottom:.1f})scale({wide:.2f} {max(top - bottom, 0.1) / -SIDE:.5f})"
        readings.append([colour, pool(_dots(samples, axis.logarithmic)), place, round(SIDE - axis(time), 1)])
    ticks = us_ticks(axis.logarithmic).tick_values(axis.low, axis.high)
    heights = [(us, round(SIDE - axis(us), 1)) for us in ticks if axis.low <= us <= axis.high]
    return {"readings": readings, "ticks": [[y, duration(us), _percent(y)] for us, y in heights]}


@lru_cache(maxsize=4096)
def _dots(samples: tuple[float, ...], logarithmic: bool) -> str:
    """A path of points: x counts samples from 1, y is 0 at the lowest and SIDE at the highest."""
    values = [math.log(us) if logarithmic else us for us in samples]
    low, span = min(values), max(values) - min(values) or 1.0
    return "".join(f"M{i} {SIDE * (value - low) / span:.0f}h0" for i, value in enumerate(values, start=1))


def _steps(
    _: Pool, first: float, last: float, *steps: tuple[str, bool, str, float, float]
) -> list[tuple[str, str, float, float, str]]:
    """The steps from the unbiased time to this one, in rows: name, colour, percent of the width left of the bar and
    right of it, amount.
    """
    axis = Axis.around([first, *(after for *_, after in steps)], 1.15)

    def row(name: str, colour: str, before: float, after: float, words: str) -> tuple[str, str, float, float, str]:
        left, right = sorted((axis(before), axis(after)))
        return name, colour, _percent(left), _percent(SIDE - right), words

    rows = [row("unbiased", "dot", first, first, duration(first))]
    for name, visible, amount, before, after in steps:
        colour = ("alert" if after < before else "accent") if visible else "grey"
        rows.append(row(name, colour, before, after, amount))
    return [*rows, row("this reading", "dot", last, last, duration(last))]


def _percent(units: float) -> float:
    return round(100 * units / SIDE, 2)
