"""The first page of the site: the story, the panel, the ladder, and two charts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from functools import partial
from html import escape

from worklog import __version__, plots
from worklog.errors import NothingToDraw
from worklog.kernel import LADDER, RUNGS
from worklog.lab.assets import PANEL_SCRIPTS, assets
from worklog.lab.rung_pages import SIZE, RungPage
from worklog.plots import Chart
from worklog.plots.selection import class_of, labels, measured, rows, shape_to_draw
from worklog.runner.job import jobs_of
from worklog.runner.sources import at_4096, holding
from worklog.runs import CUBLAS, Measurement, Run
from worklog.runs.sources import in_steps
from worklog.runs.text import percent
from worklog.site.chapters import REFERENCE, Chapter, beliefs
from worklog.site.glossary import glossary
from worklog.site.pages import HEADER, document, filled, read_part
from worklog.site.steps import Steps
from worklog.viewer.accesses import access

TEASED = ("naive", "coalesced")
ABOUT = (
    "SGEMM kernels on an NVIDIA GPU, from naive to past cuBLAS: checked, timed, and explained by "
    "what they touch."
)
CHARTS = 2


def front_page(
    run: Run | None, written: Sequence[Chapter], steps: Steps
) -> tuple[str, dict[str, bytes]]:
    """Return index.html, and its charts' pictures by file name.

    run: for the ladder and the chart over sizes (default: this machine's newest, else recordings,
        whose ladder goes on past cuBLAS)
    """
    ladder_run = holding(jobs_of(None, SIZE)[0]) if run is None else run
    sizes_run = ladder_run
    if run is None and ladder_run.origin == "recorded":
        ladder_run = at_4096()
        sizes_run = in_steps()
    sizes, sizes_pictures = _chart("sizes", partial(plots.sizes, sizes_run), steps)
    peers, peers_pictures = _chart("peers", plots.peers, steps)
    story = [_card(chapter) for chapter in written if chapter.page < REFERENCE]
    reference = [_card(chapter) for chapter in written if chapter.page >= REFERENCE]
    beliefs_count = sum(len(beliefs(chapter.body)) for chapter in written)
    body = filled(
        "site.html",
        header=HEADER,
        rungs=str(len(RUNGS)),
        first=written[0].page,
        story=str(len(story)),
        warps="".join(_load(name) for name in TEASED),
        chapters="".join(story),
        wrong=str(beliefs_count),
        reference="".join(reference),
        ladder=_ladder(ladder_run),
        sizes=sizes,
        peers=peers,
        glossary=glossary(),
        version=__version__,
        script="\n\n".join([assets(*PANEL_SCRIPTS), read_part("loading.js"), read_part("site.js")]),
    )
    title = "worklog: SGEMM kernels, checked and timed"
    html = document(title, ABOUT, body, assets("panel.css"))
    return html, sizes_pictures | peers_pictures


def _card(chapter: Chapter) -> str:
    """Return a chapter's entry in the list of chapters."""
    return f"<li><b>{chapter.link()}</b> {escape(chapter.summary)}</li>"


def _ladder(run: Run) -> str:
    """Return a row for everything that was measured at one shape.

    A row of the first ladder opens to what changed, what that costs, and what it gains; further
    ones would make the page long to load.
    """
    shape = shape_to_draw(run, None)
    measurements = rows(run, shape)
    rungs = {record.name: RungPage(run, record.name, shape) for record in LADDER}
    fastest = max((m.tflops or 0.0 for m in measurements), default=0.0) or 1.0
    html = ""
    for m in measurements:
        row = _ladder_row(m, fastest)
        details = rungs[m.kernel]._repr_html_() if m.kernel in rungs else ""
        if details:
            html += f'<details name="rung"><summary>{row}</summary>{details}</details>'
        else:
            kind = "baseline" if m.kernel == CUBLAS else "further"
            html += f'<div class="{kind}">{row}</div>'
    about = f"TFLOP/s at {shape} · share of cuBLAS · class, if the errors are larger than FP32's"
    sources = "<br>".join(escape(label) for label in labels(run, measurements))
    return f'<p class="source">{about}<br>{sources}</p>{html}'


def _ladder_row(m: Measurement, fastest: float) -> str:
    """Return a kernel's name, a bar of its rate, and the rate as text.

    fastest: the rate of a bar over the whole width, in TFLOP/s
    """
    rate = f"{m.tflops:.2f}" if measured(m) else "not measured"
    if measured(m) and m.kernel != CUBLAS:
        rate += f" · {percent(m.ratio)}"
    name = m.kernel
    if measured(m) and class_of(m) != "fp32":
        name += f" · {class_of(m)}"
    width = 100 * (m.tflops or 0.0) / fastest
    bar = f'<span class="track"><i style="left:0;width:{width:.2f}%"></i></span>'
    return f'<span class="row rung"><span>{name}</span>{bar}<span>{rate}</span></span>'


def _chart(name: str, draw: Callable[[], Chart], steps: Steps) -> tuple[str, dict[str, bytes]]:
    """Return a chart in a box that scrolls on a narrow page, and its light and dark picture.

    Without a chart, return the reason why there is none, and no picture.
    """
    steps.begin(f"chart {name}")
    try:
        chart = draw()
    except NothingToDraw as nothing:
        return f"<p>{escape(str(nothing))}</p>", {}
    light = f"{chart.name}.png"
    dark = f"{chart.name}_dark.png"
    pictures = {light: chart.png(), dark: chart.png(dark=True)}
    label = escape(chart.headline)
    html = f'<div class="figure" tabindex="0" role="region" aria-label="{label}">'
    html += f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
    html += f'<img src="{light}" loading="lazy" alt="{escape(chart.alt)}"></picture></div>'
    return html, pictures


def _load(name: str) -> str:
    """Return a picture of the load of a rung's first warp that moves most sectors.

    It shows the sectors, and the words in them that the lanes read.
    """
    kinds = access(name).document["kinds"]
    loads = [kind for kind in kinds if " read " in kind["text"]]
    load = max(loads, key=lambda kind: kind["counts"][0])
    indices = {offset // 4 for offset in load["lanes"]}  # of the 4-byte words
    sectors = sorted({index // 8 for index in indices})
    groups = ""
    for place, sector in enumerate(sectors):
        groups += f'<g style="--place:{place}">{_squares(place, sector, indices)}</g>'
    height = 1.3 * math.ceil(len(sectors) / 4)
    picture = f'<svg viewBox="0 0 34 {height:.1f}" aria-hidden="true">{groups}</svg>'
    text = f"<b>{name}</b>: {load['text']}: <b>{load['cost']}</b>"
    style = "bad" if load["bad"] else "good"
    return f'<a class="{style}" href="access.html#{name}/0/9/1">{text}{picture}</a>'


def _squares(place: int, sector: int, indices: Set[int]) -> str:
    """Return the eight words of a sector as squares, pale if no lane reads them.

    place: of the sector among the sectors, four in a row
    sector, indices: numbers of a sector, and of the words that lanes read
    """
    paths = {"used": "", "pale": ""}
    for number in range(8):
        kind = "used" if 8 * sector + number in indices else "pale"
        paths[kind] += f"M{8.6 * (place % 4) + number:.1f} {1.3 * (place // 4):.1f}h.9v1h-.9z"
    return "".join(f'<path class="{kind}" d="{path}"/>' for kind, path in paths.items())
