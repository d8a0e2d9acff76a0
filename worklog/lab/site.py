"""`worklog site`: a folder of pages that need no server, no network and no Python.

Everything that they show is computed here. panel.js draws the panel as in a notebook, and site.js looks up the answers
that a notebook's kernel would compute.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape
from itertools import product
from pathlib import Path
from typing import Any

from worklog import __version__, plots
from worklog.analysis import access
from worklog.analysis.accesses import page
from worklog.analysis.html import document, packed, part
from worklog.errors import BadRunFile, NothingToDraw
from worklog.kernel import FP32, LADDER, RUNGS
from worklog.lab.chapters import HEADER, STORY, beliefs, chapters, glossary, pages
from worklog.lab.readings import LAUNCHES, SPOKEN, Answers, NotRecorded, grid_runs
from worklog.lab.rungs import Climb, ladder_runs, usual_shape
from worklog.lab.widgets import Panel, places
from worklog.plots import Chart, ablated
from worklog.plots.selection import CUBLAS, measured, rows
from worklog.runs import Run, in_steps, percent
from worklog.settings import PITFALLS

# With another value of these, the launches are the same.
COMPUTED = [g for g in PITFALLS if g not in LAUNCHES and g.setting not in SPOKEN]
QUEUE = next(g for g in PITFALLS if g.setting == "queue")  # with a host clock, any of its values gives one answer
TEASED = ("naive", "coalesced")
ABOUT = "SGEMM kernels on an NVIDIA GPU, from naive to past cuBLAS: checked, timed, and explained by what they touch."


def site(run: Run | Path | None = None, grid: Run | Path | None = None) -> dict[str, bytes]:
    """Every file by name. run: for the ladder and the charts, as for `worklog figures`; grid: for the panel, its own
    recording by default. Raises BadRunFile where there is no run, NotRecorded for a grid without an unbiased reading.
    """
    written = chapters()
    cards = [f"<li><b>{chapter.link()}</b> {escape(chapter.summary)}</li>" for chapter in written]
    data, charts, runs = answers(grid), dict[str, bytes](), ladder_runs(run)
    charted = next((run for run in runs if ablated(run)), runs[0])
    stepped = in_steps() if run is None and charted.origin == "recorded" else charted
    index = part(
        "site.html",
        header=HEADER,
        rungs=str(len(RUNGS)),
        first=written[0].page,
        story=str(len(STORY)),
        warps="".join(_load(name) for name in TEASED),
        chapters="".join(cards[: len(STORY)]),
        wrong=str(sum(len(beliefs(chapter.body)) for chapter in written)),
        reference="".join(cards[len(STORY) :]),
        ladder=_ladder(runs),
        sizes=_chart(partial(plots.sizes, stepped), charts),
        peers=_chart(plots.peers, charts),
        glossary=glossary(),
        version=__version__,
        script="\n\n".join(part(f"{name}.js") for name in ("dom", "panel", "site")),
    )
    html = {
        "index.html": document("worklog: SGEMM kernels, checked and timed", ABOUT, index, "panel"),
        **pages(written),
    }
    html["access.html"] = page([access(kernel) for kernel in (*LADDER, *FP32)], HEADER)
    return {name: text.encode() for name, text in html.items()} | charts | {"data.js": data}


def answers(given: Run | Path | None) -> bytes:
    """data.js: every answer of the panel, by what is chosen but for settings that change only words. Each part of an
    answer is its place in `parts`, because most parts belong to several answers.
    """
    grids = grid_runs(given)
    if not grids:
        raise BadRunFile(
            "the panel has no recording with WORKLOG_SOURCE=live: give one of `python -m tests.record.grid` with --grid"
        )
    of, grid = Answers([grids[0]]), grids[0]
    kernel, largest, parts = of.kernels[-1], of.shapes[-1], dict[str, int]()
    if not any(of.has(m.kernel, m.problem, of.unbiased) for m in grid.measurements):
        raise NotRecorded(f"this {grid.origin} run has no unbiased reading: make one: `python -m tests.record.grid`")
    four = {g.setting: g.biased[0] for g in PITFALLS if g.article}
    panel = Panel(of, kernel, largest, four if of.has(kernel, largest, of.unbiased | four) else {})
    panel.reason = "the page measures nothing"
    timed = [place for place, g in enumerate(PITFALLS) if g.setting not in SPOKEN]
    data: dict[str, Any] = {"start": panel.chosen, "timed": timed, "answers": {}}
    data["table"] = {name: values for name, values in panel.table.items() if name != "live"}
    for chosen in _choices(of, grid):
        panel.chosen = chosen
        key = (chosen["kernel"], chosen["size"], *(chosen["values"][place] for place in timed))
        texts = {name: json.dumps(value, ensure_ascii=False) for name, value in panel.answer.items()}
        answer = {name: parts.setdefault(text, len(parts)) for name, text in texts.items()}
        data["answers"]["/".join(map(str, key))] = answer
    return f'globalThis.worklogData = "{packed(data | {"parts": [*map(json.loads, parts)]})}";\n'.encode()


def _choices(of: Answers, grid: Run) -> Iterator[dict[str, Any]]:
    """What a reader of the page can choose: each measurement's settings, and those that need no further launches."""
    for m in grid.measurements:
        if m.status != "measured" or not of.has(m.kernel, m.problem, of.unbiased):
            continue
        free = [*COMPUTED, QUEUE] if m.changed.get("timer") == "host" else COMPUTED
        where = {"kernel": of.kernels.index(m.kernel), "size": of.shapes.index(m.problem)}
        for values in product(*(g.values for g in free)):
            chosen = dict(zip((g.setting for g in free), values, strict=True))
            yield {**where, "values": places(of.unbiased | m.changed | chosen)}


def _ladder(runs: Sequence[Run]) -> str:
    """Everything that was measured at one shape; a rung opens to what changed, what that costs, and what it gains."""
    shape = usual_shape(runs)
    climbs = [Climb(runs, record.name, shape) for record in LADDER]
    shown, rungs = rows(climbs[-1].run, shape), {climb.kernel: climb for climb in climbs}
    fastest, html = max((m.tflops or 0.0 for m in shown), default=0.0) or 1.0, ""
    for m in shown:
        share = "" if m.kernel == CUBLAS else f" · {percent(m.ratio)}"
        words = f"{m.tflops:.2f}{share}" if measured(m) else "not measured"
        track = f'<span class="track"><i style="left:0;width:{100 * (m.tflops or 0.0) / fastest:.2f}%"></i></span>'
        row = f'<span class="row rung"><span>{m.kernel}</span>{track}<span>{words}</span></span>'
        inside = rungs[m.kernel]._repr_html_() if m.kernel in rungs else ""
        html += f'<details name="rung"><summary>{row}</summary>{inside}</details>' if inside else f"<div>{row}</div>"
    return f'<p class="source">TFLOP/s at {shape} · share of cuBLAS · {climbs[-1].run.full_label}</p>{html}'


def _chart(draw: Callable[[], Chart], files: dict[str, bytes]) -> str:
    """A chart for light and dark pages, in a box that scrolls where the page is narrower; or why there is none."""
    try:
        chart = draw()
    except NothingToDraw as nothing:
        return f"<p>{escape(str(nothing))}</p>"
    light, dark = f"{chart.name}.png", f"{chart.name}_dark.png"
    files |= {light: chart.png(), dark: chart.png(dark=True)}
    picture = f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
    picture += f'<img src="{light}" loading="lazy" alt="{escape(chart.alt)}"></picture>'
    return f'<div class="figure" tabindex="0" role="region" aria-label="{escape(chart.headline)}">{picture}</div>'


def _load(name: str) -> str:
    """The load of a rung's first warp that moves most: its sectors, and the words in them that the lanes read."""
    kinds = access(name).document["kinds"]
    load = max((kind for kind in kinds if " read " in kind["text"]), key=lambda kind: kind["counts"][0])
    words = {offset // 4 for offset in load["lanes"]}
    sectors, drawn = sorted({word // 8 for word in words}), ""
    for place, sector in enumerate(sectors):
        paths = {"used": "", "pale": ""}
        for word in range(8):
            kind = "used" if 8 * sector + word in words else "pale"
            paths[kind] += f"M{8.6 * (place % 4) + word:.1f} {1.3 * (place // 4):.1f}h.9v1h-.9z"
        inside = "".join(f'<path class="{kind}" d="{path}"/>' for kind, path in paths.items())
        drawn += f'<g style="--place:{place}">{inside}</g>'
    picture = f'<svg viewBox="0 0 34 {1.3 * math.ceil(len(sectors) / 4):.1f}" aria-hidden="true">{drawn}</svg>'
    said = f"<b>{name}</b>: {load['text']}: <b>{load['cost']}</b>"
    return f'<a class="{"bad" if load["bad"] else "good"}" href="access.html#{name}/0/9/1">{said}{picture}</a>'
