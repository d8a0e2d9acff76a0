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
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from html import escape
from itertools import product
from pathlib import Path
from string import Template
from typing import Any

from worklog import __version__, plots
from worklog.errors import BadRunFile, NothingToDraw
from worklog.lab.choice import grid_runs, ladder_runs
from worklog.lab.ladder_page import Climb
from worklog.lab.panel_answer import Answer, PanelChoice
from worklog.lab.panel_picture import Axis, Row
from worklog.lab.readings import COMPUTED, LAUNCHES, Held, NotRecorded, Settings, changes, in_words, word
from worklog.plots import DARK, LIGHT, Chart, ablated
from worklog.plots.selection import CUBLAS, measured, rows
from worklog.problem import Shape
from worklog.runs import Run, duration, in_steps, percent
from worklog.settings import PITFALLS, Harness, Value, rule

HERE = Path(__file__).parent
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
SIDE = 1000  # of the square that pictures are drawn on; its origin is the upper left corner
Places = dict[Hashable, int]  # values of JSON, each one once; a value is referred to by its place
ROLES = {colour: f"var(--worklog-{role})" for role, colour in LIGHT.items()}


def site(run: Run | Path | None = None, grid: Run | Path | None = None) -> str:
    """The page's HTML. run: for the ladder and the charts, as for `worklog figures`; grid: for the panel, the panel's
    recording by default. Raises BadRunFile where there is no run, NotRecorded for a grid without an unbiased reading.
    """
    runs, grids = ladder_runs(run), grid_runs(grid)
    if not grids:
        raise BadRunFile(
            "the panel has no recording with WORKLOG_SOURCE=live: give one of `worklog ablate --grid` with --grid"
        )
    charted = next((one for one in runs if ablated(one)), runs[0])
    stepped = in_steps() if run is None and charted.origin == "recorded" else charted
    charts = {name: _chart(partial(plots.ablation, charted, name), f"ablation-of-{name}") for name in ablated(charted)}
    tables = {"panel": panel_table(grids[0]), "ladder": ladder_table(runs), "ablations": [*charts]}
    packed = gzip.compress(json.dumps(tables, ensure_ascii=False).encode(), mtime=0)
    palettes = {name: _variables(palette) for name, palette in (("light", LIGHT), ("dark", DARK))}
    return Template(_file("html")).substitute(
        style=Template(_file("css")).substitute(palettes),
        script=_file("js"),
        data=b64encode(packed).decode("ascii"),
        sizes=_chart(partial(plots.sizes, stepped)),
        peers=_chart(plots.peers),
        ablations="".join(charts.values()) or _chart(partial(plots.ablation, charted)),
        version=__version__,
    )


def _chart(draw: Callable[[], Chart], name: str = "") -> str:
    """A chart in a box that scrolls where the page is narrower, in colours that follow the page, and its alt text; or
    why there is none. Its ids are the chart's own, and an id that nothing refers to is left out.
    """
    try:
        chart = draw()
    except NothingToDraw as nothing:
        return f'<p class="words">{escape(str(nothing))}</p>'
    svg = re.sub(r"<metadata>.*?</metadata>", "", chart.svg(), flags=re.DOTALL)
    opening, end, drawing = svg[svg.index("<svg ") :].partition(">")
    opening = re.sub(r' (xmlns(:xlink)?|version|width|height|aria-labelledby)="[^"]*"', "", opening)
    svg = re.sub("#[0-9a-f]{6}\\b", lambda found: ROLES.get(found[0], found[0]), opening + end + drawing)
    used, own = set(re.findall(r'(?:href="|url\()#([^")]+)', svg)), name or chart.name
    svg = re.sub(r' id="([^"]+)"', lambda found: f' id="{own}-{found[1]}"' if found[1] in used else "", svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{own}-", svg)
    identity = f' id="{name}"' if name else ""
    words = f"<details class=words><summary>in words</summary><p>{escape(chart.alt)}</p></details>"
    box = f'<div class="figure" tabindex="0" role="region" aria-label="{escape(chart.headline)}">{svg}</div>'
    return f"<div{identity}>{box}{words}</div>"


def _variables(palette: Mapping[str, str]) -> str:
    return "".join(f"--worklog-{role}: {colour}; " for role, colour in palette.items())


def _file(kind: str) -> str:
    return (HERE / f"site.{kind}").read_text(encoding="utf-8").strip()


def ladder_table(runs: list[Run]) -> dict[str, Any]:
    """The ladder page for every rung and size, as JSON: sentences and tables by "rung size", the changed lines by rung,
    and the bars by size, each with the percent of the width right of it.
    """
    climb = Climb(runs)
    start, names, shapes = {"rung": climb.kernel, "size": str(climb.shape)}, climb.known_kernels(), climb.shapes
    steps, changed = dict[str, Any](), dict[str, dict[str, str]]()
    for climb.kernel in names:
        for climb.shape in shapes:
            costs = "".join(table.html() for table in climb.tables)
            steps[f"{climb.kernel} {climb.shape}"] = [climb.sentences, costs]
        changed[climb.kernel] = {}
        for kind, climb.comments in (("code", False), ("whole", True)):
            changed[climb.kernel][kind] = climb.changed_lines()
    bars = {str(shape): _bars(runs, shape) for shape in shapes}
    return {"start": start, "rungs": names, "sizes": list(bars), "steps": steps, "changes": changed, "bars": bars}


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


def key_of(settings: Settings) -> str:
    """The key of an answer."""
    return "".join(LETTERS[g.values.index(rule(settings[g.setting]))] for g in PITFALLS)


def panel_table(run: Run) -> dict[str, Any]:
    """The panel on one run, as JSON: the table of pitfalls; the answers by "kernel size" and key; and for the keys of
    recorded values that have no answer, the nearest ones that have. Raises NotRecorded for a run without an unbiased
    reading.
    """
    choice, places = PanelChoice([run]), Places()
    [held] = choice.held
    unbiased, values = key_of(held.unbiased), _choosable(held)
    four = key_of(held.unbiased | {g.setting: g.biased[0] for g in PITFALLS if g.article})
    groups: dict[str, Any] = {}
    start: dict[str, str] = {}  # the last kernel at the largest size, with the article's four pitfalls
    nearest: dict[tuple[str, ...], dict[str, tuple[str, ...]]] = {}  # by the keys of what was measured
    for kernel, shape in product(choice.known_kernels(), choice.shapes):
        choice.kernel, choice.shape = kernel, shape
        if not held.has(kernel, shape, held.unbiased):
            continue
        launches = [combination for combination in values if held.has(kernel, shape, combination)]
        answers: dict[str, int] = {}
        for combination, computed in product(launches, _products({g.setting: g.values for g in COMPUTED})):
            choice.settings = {g.setting: (combination | computed)[g.setting] for g in PITFALLS}
            answers[key_of(choice.settings)] = _record(choice.answer(), places)
        known = tuple(map(key_of, launches))
        if known not in nearest:
            own = [m for m in run.measurements if (m.kernel, m.problem) == (kernel, shape)]
            missing = [combination for combination in values if combination not in launches]
            nearest[known] = _nearest(Held(replace(run, measurements=own)), kernel, shape, missing)
        start = {"kernel": kernel, "size": str(shape), "key": four if four in answers else unbiased}
        groups[f"{kernel} {shape}"] = {"answers": answers, "nearest": [*nearest].index(known)}
    if not groups:
        raise NotRecorded(f"this {run.origin} run has no unbiased reading: make a grid with `worklog ablate --grid`")
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
        "nearest": [*nearest.values()],
        "items": [*places],
    }


def _products(values: Mapping[str, Sequence[Value]]) -> list[dict[str, Value]]:
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def _choosable(held: Held) -> list[dict[str, Value]]:
    """Every combination of the values with which something was measured or that a box switches to; what is computed is
    unbiased.
    """
    made = [m.changed for m in held.run.measurements if m.status == "measured"]
    values: dict[str, list[Value]] = {g.setting: [held.unbiased[g.setting]] for g in PITFALLS}
    for g in LAUNCHES:
        used = [changed[g.setting] for changed in made if g.setting in changed]
        values[g.setting] = list(dict.fromkeys([*values[g.setting], g.unbiased, g.biased[0], *used]))
    return _products(values)


def _nearest(held: Held, kernel: str, shape: Shape, missing: Sequence[Settings]) -> dict[str, tuple[str, ...]]:
    """For each missing combination the key of the nearest one, how that one differs, and the missing one in words."""
    found = dict[str, tuple[str, ...]]()
    for settings in missing:
        nearest = held.nearest(kernel, shape, settings)
        assert nearest is not None
        launches = [g for g in changes(settings, held.run) if g in LAUNCHES]
        found[key_of(settings)] = (key_of(nearest.settings), nearest.words, in_words(settings, launches))
    return found


def _record(answer: Answer, places: Places) -> int:
    """The place of an answer: of its number, comparison, other lines, label, colour, and its two pictures."""
    label = answer.reading.measurement.label
    words = (tuple(answer.headline.split(" → ")), answer.comparison, tuple(answer.others), label, answer.whole.role)
    shown = [(role, reading.samples, reading.time.value) for role, reading in answer.shown]
    axis = Axis.around([us for _, samples, time in shown for us in (*samples, time)], 1.25)
    dots = tuple(_place(places, _dots(samples, axis.logarithmic)) for _, samples, _ in shown)
    parts = (*words, _samples(axis, dots, *shown), _steps(*answer.rows))
    return _place(places, tuple(_place(places, part) for part in parts))


def _place(places: Places, item: Hashable) -> int:
    return places.setdefault(item, len(places))


@cache
def _dots(samples: tuple[float, ...], logarithmic: bool) -> str:
    """A path of points: x counts samples from 1, y is 0 at the lowest and SIDE at the highest."""
    values = [math.log(us) if logarithmic else us for us in samples]
    low, span = min(values), max(values) - min(values) or 1.0
    return "".join(f"M{i} {SIDE * (value - low) / span:.0f}h0" for i, value in enumerate(values, start=1))


@cache
def _samples(axis: Axis, dots: tuple[int, ...], *shown: tuple[str, tuple[float, ...], float]) -> tuple[Any, ...]:
    """The samples of each reading: its colour, its dots' place with the transform that puts them in place, and the
    height of its estimate; and the ticks of the axis: height, words, and height in percent.
    """
    wide = SIDE / (max(len(samples) for _, samples, _ in shown) + 1)
    readings = []
    for path, (colour, samples, time) in zip(dots, shown, strict=True):
        bottom, top = _along(axis, min(samples)), _along(axis, max(samples))
        transform = f"translate(0 {SIDE - bottom:.1f})scale({wide:.2f} {max(top - bottom, 0.1) / -SIDE:.5f})"
        readings.append((colour, path, transform, round(SIDE - _along(axis, time), 1)))
    ticks = [us for us in axis.ticks.tick_values(axis.low, axis.high) if axis.low <= us <= axis.high]
    heights = [round(SIDE - _along(axis, us), 1) for us in ticks]
    return tuple(readings), tuple((y, duration(us), _percent(y)) for us, y in zip(ticks, heights, strict=True))


@cache
def _steps(*steps: Row) -> tuple[Row, ...]:
    """The rows with the percent of the width left and right of the bar instead of the times."""
    if not steps:
        return ()
    made, axis = list[Row](), Axis.of_rows(steps)
    for name, role, before, after, words in steps:
        left, right = sorted(_along(axis, us) for us in (before, after))
        made.append((name, role, _percent(left), _percent(SIDE - right), words))
    return tuple(made)


def _along(axis: Axis, value: float) -> float:
    """The value's place on the axis between 0 and SIDE, in tenths."""
    low, high, at = (math.log(v) if axis.logarithmic else v for v in (axis.low, axis.high, value))
    return round(SIDE * (at - low) / (high - low), 1)


def _percent(units: float) -> float:
    return round(100 * units / SIDE, 2)
