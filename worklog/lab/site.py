"""`worklog site`: the panel, the ladder and the charts as one HTML file that needs no server, no network and no Python.

Everything that the page shows is computed here. panel.js draws it as in a notebook, and site.js looks up the answers
that a notebook's kernel would compute.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html import escape
from itertools import product
from pathlib import Path
from string import Template
from typing import Any

from worklog import __version__, plots
from worklog.analysis.accesses import palette
from worklog.errors import BadRunFile, NothingToDraw
from worklog.lab.chapters import contents
from worklog.lab.ladder_page import Ladder, ladder_runs
from worklog.lab.page import HERE, Page
from worklog.lab.panel_answer import SPOKEN, Answers
from worklog.lab.panel_page import Panel, places
from worklog.lab.readings import LAUNCHES, NotRecorded, grid_runs
from worklog.plots import DARK, LIGHT, Chart, ablated
from worklog.runs import Run, in_steps
from worklog.settings import PITFALLS

# With another value of these, the launches are the same.
COMPUTED = [g for g in PITFALLS if g not in LAUNCHES and g.setting not in SPOKEN]
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
    parts: dict[str, int] = {}
    panel, ladder = _panel(grids[0]), Ladder(runs)
    ignored = [2 + place for place, g in enumerate(PITFALLS) if g.setting in SPOKEN]  # after the kernel and the size
    steps = [{"rung": r, "size": size} for r, size in product(range(len(ladder.names)), range(len(ladder.shapes)))]
    data = {"panel": _looked_up(panel, _choices(panel), ignored, parts), "ladder": _looked_up(ladder, steps, [], parts)}
    document = json.dumps(data, ensure_ascii=False, separators=(",", ":"))[:-1] + f',"parts":[{",".join(parts)}]}}'
    return Template(_file("site.html")).substitute(
        light=palette(":root", LIGHT, "light"),
        dark=palette(":root", DARK, "dark"),
        style=_file("panel.css") + "\n" + _file("site.css"),
        script=_file("panel.js") + "\n\n" + _file("site.js"),
        data=b64encode(gzip.compress(document.encode(), mtime=0)).decode("ascii"),
        chapters=contents(),
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


def _looked_up(
    page: Page, choices: Iterable[dict[str, Any]], ignored: Sequence[int], parts: dict[str, int]
) -> dict[str, Any]:
    """A page for site.js: every answer, by what is chosen but for the `ignored` places. Each part of an answer is its
    place in `parts`, JSON texts, because most parts belong to several answers.
    """
    start, answers = page.chosen, dict[str, dict[str, int]]()
    for page.chosen in choices:
        flat = [
            place for chosen in page.chosen.values() for place in (chosen if isinstance(chosen, list) else [chosen])
        ]
        key = json.dumps([place for i, place in enumerate(flat) if i not in ignored], separators=(",", ":"))
        answer = answers[key] = {}
        for name, part in page.answer.items():
            text = json.dumps(part, ensure_ascii=False, separators=(",", ":"))
            answer[name] = parts.setdefault(text, len(parts))
    table = {name: values for name, values in page.table.items() if name != "live"}
    return {"table": table, "start": start, "answers": answers, "ignored": ignored}


def _panel(grid: Run) -> Panel:
    """The panel, at first at the largest size, with the article's four pitfalls if they were recorded. Raises
    NotRecorded for a grid without an unbiased reading.
    """
    answers = Answers([grid])
    kernel, largest = answers.kernels[-1], answers.shapes[-1]
    if not any(answers.has(m.kernel, m.problem, answers.unbiased) for m in grid.measurements):
        raise NotRecorded(f"this {grid.origin} run has no unbiased reading: make a grid with `worklog ablate --grid`")
    four = {g.setting: g.biased[0] for g in PITFALLS if g.article}
    return Panel(answers, kernel, largest, four if answers.has(kernel, largest, answers.unbiased | four) else {})


def _choices(panel: Panel) -> Iterator[dict[str, Any]]:
    """What a reader of the page can choose: each measurement's settings, and those that need no further launches."""
    answers, panel.reason = panel.answers, "the page measures nothing"
    for m in answers.held[0].run.measurements:
        if m.status != "measured" or not answers.has(m.kernel, m.problem, answers.unbiased):
            continue
        free = [*COMPUTED, QUEUE] if m.changed.get("timer") == "host" else COMPUTED
        for values in product(*(g.values for g in free)):
            chosen = dict(zip((g.setting for g in free), values, strict=True))
            yield {
                "kernel": answers.kernels.index(m.kernel),
                "size": answers.shapes.index(m.problem),
                "values": places(answers.unbiased | m.changed | chosen),
            }
