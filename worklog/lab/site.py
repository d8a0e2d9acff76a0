"""`worklog site`: the panel, the ladder and the charts as one HTML file that needs no server, no network and no Python.

Everything that the page shows is computed here; its script looks up and draws. Every answer of the panel is in one
table: words, and pictures as places on a square. An answer is found by its key: a letter for each pitfall, in the
table's order, for the place of its value.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from html import escape
from itertools import product
from pathlib import Path
from string import Template
from typing import Any

from worklog import __version__, plots
from worklog.analysis.memory_counts import memory_counts
from worklog.errors import BadRunFile, NothingToDraw
from worklog.lab.choice import (
    LAUNCHES,
    Held,
    NotRecorded,
    Settings,
    changes,
    grid_runs,
    in_words,
    ladder_runs,
    word,
)
from worklog.lab.ladder_page import Climb, changed_lines
from worklog.lab.panel_answer import Answer, Axis, PanelChoice, Row
from worklog.plots import DARK, LIGHT, Chart, ablated
from worklog.plots.selection import CUBLAS, measured, rows
from worklog.problem import Shape
from worklog.runs import Run, duration, in_steps, percent
from worklog.settings import PITFALLS, Harness, Value, rule

HERE = Path(__file__).parent
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
SIDE = 1000  # of the square that pictures are drawn on; its origin is the upper left corner
Combination = dict[str, Value]


def site(run: Run | Path | None = None, grid: Run | Path | None = None) -> str:
    """The page's HTML. run: for the ladder and the charts, as for `worklog figures`; grid: for the panel, the panel's
    recording by default. Raises BadRunFile where there is no run, NotRecorded for a grid without an unbiased reading.
    """
    runs, grids = ladder_runs(run), grid_runs(grid)
    if not grids:
        raise BadRunFile("the panel has no recording with WORKLOG_SOURCE=live: give one of `worklog grid` with --grid")
    stepped = in_steps() if run is None and runs[0].origin == "recorded" else runs[0]
    charts = {name: _chart(partial(plots.ablation, runs[0], name), f"ablation-of-{name}") for name in ablated(runs[0])}
    tables = {"panel": panel_table(grids[0]), "ladder": ladder_table(runs), "ablations": [*charts]}
    packed = gzip.compress(json.dumps(tables, ensure_ascii=False).encode(), mtime=0)
    palettes = {name: _variables(palette) for name, palette in (("light", LIGHT), ("dark", DARK))}
    return Template(_file("html")).substitute(
        style=Template(_file("css")).substitute(palettes),
        script=_file("js"),
        data=b64encode(packed).decode("ascii"),
        sizes=_chart(partial(plots.sizes, stepped)),
        peers=_chart(plots.peers),
        ablations="".join(charts.values()) or _chart(partial(plots.ablation, runs[0])),
        version=__version__,
    )


def ladder_table(runs: list[Run]) -> dict[str, Any]:
    """The ladder page for every rung and size, as JSON: sentences and tables by "rung size", the changed lines by rung,
    and the bars by size, each with the percent of the width right of it.
    """
    climb, pool = Climb(runs, memory_counts()), Pool()
    climb.shape = climb.first_shape(climb.shapes)
    start, names, shapes = {"rung": climb.kernel, "size": str(climb.shape)}, climb.known_kernels(), climb.shapes
    steps, changes = {}, {}
    for climb.kernel in names:
        for climb.shape in shapes:
            step = climb.step()
            tables = "".join(table.html() for table in step.tables)
            steps[f"{climb.kernel} {climb.shape}"] = [pool(step.sentences), pool(tables)]
        changes[climb.kernel] = {
            "code": changed_lines(step, comments=False),
            "whole": changed_lines(step, comments=True),
        }
    return {
        "start": start,
        "rungs": names,
        "before": [None, *names[:-1]],
        "after": [*names[1:], None],
        "sizes": list(map(str, shapes)),
        "steps": steps,
        "changes": changes,
        "bars": {str(shape): _bars(runs, shape) for shape in shapes},
        "items": pool.items,
    }


def _bars(runs: list[Run], shape: Shape) -> dict[str, Any]:
    run = next(run for run in runs if run.select(shape=shape))
    found = rows(run, shape)
    longest = max((m.tflops or 0.0 for m in found), default=0.0) or 1.0
    bars = []
    for m in found:
        words = "not measured"
        if measured(m):
            words = f"{m.tflops:.2f}" + ("" if m.kernel == CUBLAS else f" · {percent(m.ratio)}")
        bars.append([m.kernel, round(100 - 100 * (m.tflops or 0.0) / longest, 2), words])
    return {"source": run.full_label, "rows": bars}


def _chart(draw: Callable[[], Chart], name: str = "") -> str:
    """A chart in a box that scrolls where the page is narrower, in colours that follow the page, and its alt text; or
    why there is none.
    """
    try:
        chart = draw()
    except NothingToDraw as nothing:
        return f'<p class="words">{escape(str(nothing))}</p>'
    svg = chart.svg()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg ") :], flags=re.DOTALL)
    svg = (
        re.sub(r' (xmlns(:xlink)?|version|width|height)="[^"]*"', "", svg.partition(">")[0])
        + ">"
        + svg.partition(">")[2]
    )
    svg = re.sub("#[0-9a-f]{6}\\b", lambda found: ROLES.get(found[0], found[0]), svg)
    identity = f' id="{name}"' if name else ""
    words = f"<details class=words><summary>in words</summary><p>{escape(chart.alt)}</p></details>"
    box = f'<div class="figure" tabindex="0" role="region" aria-label="{escape(chart.headline)}">{svg}</div>'
    return f"<div{identity}>{box}{words}</div>"


ROLES = {colour: f"var(--worklog-{role})" for role, colour in LIGHT.items()}


def _variables(palette: Mapping[str, str]) -> str:
    return "".join(f"--worklog-{role}: {colour}; " for role, colour in palette.items())


def _file(kind: str) -> str:
    return (HERE / f"site.{kind}").read_text(encoding="utf-8").strip()


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


def key_of(settings: Settings) -> str:
    """The key of an answer."""
    return "".join(LETTERS[g.values.index(rule(settings[g.setting]))] for g in PITFALLS)


def panel_table(run: Run) -> dict[str, Any]:
    """The panel on one run, as JSON: the table of pitfalls; the answers by "kernel size" and key; and for the keys of
    recorded values that have no answer, the nearest ones that have. Raises NotRecorded for a run without an unbiased
    reading.
    """
    choice, pool = PanelChoice([run]), Pool()
    [held] = choice.held
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
    label = answer.reading.measurement.label
    words = (answer.headline.split(" → "), answer.comparison, answer.others, label, answer.role)
    samples = [(role, reading.samples, reading.time.value) for role, reading in answer.shown]
    return [*map(pool, words), pool.made(_samples, *samples), pool.made(_steps, *answer.rows)]


def _place(axis: Axis, value: float) -> float:
    """The value's place between 0 and SIDE, in tenths."""
    low, high, at = (math.log(v) if axis.logarithmic else v for v in (axis.low, axis.high, value))
    return round(SIDE * (at - low) / (high - low), 1)


def _samples(pool: Pool, *shown: tuple[str, tuple[float, ...], float]) -> dict[str, Any]:
    """The samples of each reading: its colour, its dots as a path with the transform that puts it in place, and the
    height of its estimate; and the ticks of the axis, each with its height, also in percent.
    """
    axis = Axis.around([us for _, samples, time in shown for us in (*samples, time)], 1.25)
    wide = SIDE / (max(len(samples) for _, samples, _ in shown) + 1)
    readings = []
    for colour, samples, time in shown:
        bottom, top = _place(axis, min(samples)), _place(axis, max(samples))
        place = f"translate(0 {SIDE - bottom:.1f})scale({wide:.2f} {max(top - bottom, 0.1) / -SIDE:.5f})"
        readings.append([colour, pool(_dots(samples, axis.logarithmic)), place, round(SIDE - _place(axis, time), 1)])
    ticks = axis.ticks.tick_values(axis.low, axis.high)
    heights = [(us, round(SIDE - _place(axis, us), 1)) for us in ticks if axis.low <= us <= axis.high]
    return {"readings": readings, "ticks": [[y, duration(us), _percent(y)] for us, y in heights]}


@lru_cache(maxsize=4096)
def _dots(samples: tuple[float, ...], logarithmic: bool) -> str:
    """A path of points: x counts samples from 1, y is 0 at the lowest and SIDE at the highest."""
    values = [math.log(us) if logarithmic else us for us in samples]
    low, span = min(values), max(values) - min(values) or 1.0
    return "".join(f"M{i} {SIDE * (value - low) / span:.0f}h0" for i, value in enumerate(values, start=1))


def _steps(_: Pool, *steps: Row) -> list[Row]:
    """The rows with the percent of the width left and right of the bar instead of the times."""
    if not steps:
        return []
    made, axis = list[Row](), Axis.of_rows(steps)
    for name, role, before, after, words in steps:
        left, right = sorted(_place(axis, us) for us in (before, after))
        made.append((name, role, _percent(left), _percent(SIDE - right), words))
    return made


def _percent(units: float) -> float:
    return round(100 * units / SIDE, 2)
