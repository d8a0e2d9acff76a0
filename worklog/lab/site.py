"""`worklog site`: the panel, the ladder and the charts as one HTML file that needs no server, no network and no Python.

Everything that the page shows is computed here. panel.js draws it as in a notebook, and site.js looks up the answers
that a notebook's kernel would compute.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from html import escape
from itertools import product
from pathlib import Path
from string import Template
from typing import Any

from worklog import __version__, plots
from worklog.errors import BadRunFile, NothingToDraw
from worklog.lab.choice import grid_runs, ladder_runs
from worklog.lab.ladder_page import Climb
from worklog.lab.page import HERE, palette
from worklog.lab.panel_answer import SPOKEN, PanelChoice
from worklog.lab.panel_page import chosen_places, panel_table, places
from worklog.lab.readings import COMPUTED, NotRecorded
from worklog.plots import DARK, LIGHT, Chart, ablated
from worklog.runs import Run, in_steps
from worklog.settings import PITFALLS

QUEUE = next(g for g in PITFALLS if g.setting == "queue")  # with a host clock, any of its values gives one answer


def site(run: Run | Path | None = None, grid: Run | Path | None = None) -> str:
    """The page's HTML. run: for the ladder and the charts, as for `worklog figures`; grid: for the panel, the panel's
    recording by default. Raises BadRunFile where there is no run, NotRecorded for a grid without an unbiased reading.
    """
    runs, grids = ladder_runs(run), grid_runs(grid)
    if not grids:
        raise BadRunFile(
            "the panel has no recording with WORKLOG_SOURCE=live: give one of `worklog ablate --grid` with --grid"
        )
    charted = next((run for run in runs if ablated(run)), runs[0])
    stepped = in_steps() if run is None and charted.origin == "recorded" else charted
    data = {"panel": panel_data(grids[0]), "ladder": ladder_data(runs)}
    packed = gzip.compress(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode(), mtime=0)
    return Template(_file("site.html")).substitute(
        light=palette(":root", LIGHT, "light"),
        dark=palette(":root", DARK, "dark"),
        style=_file("panel.css") + "\n" + _file("site.css"),
        script=_file("panel.js") + "\n\n" + _file("site.js"),
        data=b64encode(packed).decode("ascii"),
        sizes=_chart(partial(plots.sizes, stepped)),
        peers=_chart(plots.peers),
        ablations="".join(_chart(partial(plots.ablation, charted, name), name) for name in ablated(charted) or [None]),
        version=__version__,
    )


def _file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8").strip()


def _chart(draw: Callable[[], Chart], folded: str | None = None) -> str:
    """A chart for light and dark pages, in a box that scrolls where the page is narrower; or why there is none. folded:
    its name, if the page folds it.
    """
    try:
        chart = draw()
    except NothingToDraw as nothing:
        return f"<p>{escape(str(nothing))}</p>"
    light, dark = (f"data:image/png;base64,{b64encode(chart.png(dark=dark)).decode()}" for dark in (False, True))
    picture = f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
    picture += f'<img src="{light}" alt="{escape(chart.alt)}"></picture>'
    box = f'<div class="figure" tabindex="0" role="region" aria-label="{escape(chart.headline)}">{picture}</div>'
    return f'<details name="{chart.name}"><summary>{folded}</summary>{box}</details>' if folded else box


def panel_data(run: Run) -> dict[str, Any]:
    """The panel on one run, as JSON: the table and what is chosen at first; the answers by "kernel size" and the places
    of the values that aren't SPOKEN; and the samples that answers refer to by their place. Raises NotRecorded for a run
    without an unbiased reading.
    """
    choice, answers = PanelChoice([run]), dict[str, dict[str, Any]]()
    [held] = choice.held
    spoken = [g.setting in SPOKEN for g in PITFALLS]
    samples: dict[tuple[float, ...], int] = {}
    for m in run.measurements:
        if m.status != "measured" or not held.has(m.kernel, m.problem, held.unbiased):
            continue
        choice.kernel, choice.shape = m.kernel, m.problem
        group = answers.setdefault(f"{choice.kernels.index(m.kernel)} {choice.shapes.index(m.problem)}", {})
        free = [g for g in PITFALLS if g in COMPUTED and g.setting not in SPOKEN]
        if m.changed.get("timer") == "host":
            free.append(QUEUE)
        for values in product(*(g.values for g in free)):
            chosen = dict(zip((g.setting for g in free), values, strict=True))
            choice.settings = held.unbiased | m.changed | chosen
            answer = choice.answer().as_json()
            for series in answer["samples"]:
                series[1] = samples.setdefault(tuple(round(us, 3) for us in series[1]), len(samples))
            kept = [str(place) for place, said in zip(places(choice.settings), spoken, strict=True) if not said]
            group[" ".join(kept)] = answer
    if not answers:
        raise NotRecorded(f"this {run.origin} run has no unbiased reading: make a grid with `worklog ablate --grid`")
    # At first the largest size, with the article's four pitfalls.
    choice = PanelChoice([run], size=max(choice.shapes))
    four = {g.setting: g.biased[0] for g in PITFALLS if g.article}
    if choice.available(four):
        choice.settings |= four
    return {
        "table": panel_table(choice),
        "start": chosen_places(choice),
        "answers": answers,
        "spoken": spoken,
        "samples": [*samples],
    }


def ladder_data(runs: list[Run]) -> dict[str, Any]:
    """The ladder page for every rung and size, as JSON: the table and what is chosen at first; sentences and costs by
    "rung size"; the changed lines by rung, without and with comments; bars and source by size.
    """
    climb = Climb(runs)
    names, shapes = climb.names, climb.shapes
    start = {"rung": len(names) - 1, "size": shapes.index(climb.shape), "comments": False}
    steps, code, bars = {}, list[list[str]](), []
    for rung, name in enumerate(names):
        climb.kernel = name
        for size, climb.shape in enumerate(shapes):
            costs = "".join(table.html() for table in climb.tables)
            steps[f"{rung} {size}"] = {"sentences": climb.sentences, "costs": costs}
        code.append([])
        for climb.comments in (False, True):
            code[-1].append(climb.changed_lines())
    for climb.shape in shapes:
        bars.append({"bars": climb.bars, "source": climb.run.full_label})
    table = {"rungs": names, "sizes": list(map(str, shapes))}
    return {"table": table, "start": start, "steps": steps, "code": code, "bars": bars}
