"""`worklog site`: the panel, the ladder and the charts as one HTML file that needs no server, no network and no Python.

Everything that the page shows is computed here; its script looks up and draws.
"""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from worklog import __version__, plots
from worklog.analysis.memory_counts import memory_counts
from worklog.errors import BadRunFile, NothingToDraw
from worklog.lab.answers import Pool, panel_table
from worklog.lab.choice import grid_runs, ladder_runs
from worklog.lab.ladder_page import Climb, changed_lines
from worklog.plots import DARK, LIGHT, Chart, ablated
from worklog.plots.selection import CUBLAS, measured, rows
from worklog.problem import Shape
from worklog.runs import Run, percent

HERE = Path(__file__).parent


def site(run: Run | Path | None = None, grid: Run | Path | None = None) -> str:
    """The page's HTML. run: for the ladder and the charts, as for `worklog figures`; grid: for the panel, the panel's
    recording by default. Raises BadRunFile where there is no run, NotRecorded for a grid without an unbiased reading.
    """
    runs, grids = ladder_runs(run), grid_runs(grid)
    if not grids:
        raise BadRunFile("the panel has no recording with WORKLOG_SOURCE=live: give one of `worklog grid` with --grid")
    charts = {name: _chart(partial(plots.ablation, runs[0], name), f"ablation-of-{name}") for name in ablated(runs[0])}
    tables = {"panel": panel_table(grids[0]), "ladder": ladder_table(runs), "ablations": [*charts]}
    packed = gzip.compress(json.dumps(tables, ensure_ascii=False).encode(), mtime=0)
    palettes = {name: _variables(palette) for name, palette in (("light", LIGHT), ("dark", DARK))}
    return Template(_file("html")).substitute(
        style=Template(_file("css")).substitute(palettes),
        script=_file("js"),
        data=b64encode(packed).decode("ascii"),
        sizes=_chart(partial(plots.sizes, runs[0])),
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
