"""The first page of the site: the claim, the chapters, the ladder, the panel, and two charts."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from html import escape

from PIL import Image

from worklog import __version__, plots
from worklog.errors import NothingToDraw
from worklog.kernel import RUNGS
from worklog.lab.assets import assets
from worklog.lab.rung_pages import SIZE
from worklog.plots import Chart
from worklog.plots.drawing import DPI, SCREEN_DPI
from worklog.plots.selection import class_of, rows, shape_to_draw
from worklog.runner.job import jobs_of
from worklog.runner.sources import at_4096, holding
from worklog.runs import CUBLAS, Measurement, Run
from worklog.runs.sources import in_steps
from worklog.site import scripts
from worklog.site.card import card
from worklog.site.chapters import REFERENCE, Chapter, beliefs
from worklog.site.ladder import ladder
from worklog.site.pages import CARD, DARK_SCREEN, document, filled, header
from worklog.site.steps import Steps
from worklog.viewer.accesses import access

TEASED = ("naive", "coalesced")
ABOUT = (
    "SGEMM kernels on an NVIDIA GPU, from naive to past cuBLAS: checked, timed, and explained by "
    "what they touch."
)
# The link to a kernel with a race, which a live site runs.
BREAKING = (
    '<li><a href="access.html#shared?mistake=no-second-barrier">Break a kernel</a>'
    "<p>remove a barrier, and see the race with its lines</p></li>"
)
CHARTS = 2
PALE = 0.25  # opacity of a word that no lane reads


@dataclass(frozen=True)
class FrontPage:
    """The first page of the site."""

    html: str
    files: dict[str, bytes]  # its pictures, by file name


def front_page(
    run: Run | None, written: Sequence[Chapter], steps: Steps, *, is_live: bool
) -> FrontPage:
    """Return index.html with its pictures.

    run: for the ladder and the chart over sizes (default: this machine's newest, else recordings,
        whose ladder goes on past cuBLAS)
    is_live: whether the site's pages run kernels
    """
    ladder_run, sizes_run = _runs(run)
    sizes, pictures = _chart("sizes", partial(plots.sizes, sizes_run), steps)
    peers, peers_pictures = _chart("peers", plots.peers, steps)
    pictures |= peers_pictures
    loads = [_load(name) for name in TEASED]
    shape = shape_to_draw(ladder_run, None)
    claim = _claim(rows(ladder_run, shape))
    pictures[CARD] = card(claim, [(load.about, load.squares) for load in loads])
    body = filled(
        "site.html",
        header=header("index.html"),
        claim=escape(claim),
        rungs=str(len(RUNGS)),
        first=written[0].page,
        story=str(sum(chapter.page < REFERENCE for chapter in written)),
        breaking=BREAKING if is_live else "",
        warps="".join(load.html for load in loads),
        chapters="".join(_entry(chapter) for chapter in written if chapter.page < REFERENCE),
        wrong=str(sum(len(beliefs(chapter.body)) for chapter in written)),
        reference="".join(_entry(chapter) for chapter in written if chapter.page >= REFERENCE),
        ladder=ladder(ladder_run, shape),
        sizes=sizes,
        peers=peers,
        version=__version__,
        script=scripts.READER.text(),
    )
    title = "worklog: SGEMM kernels, checked and timed"
    return FrontPage(document(title, ABOUT, body, assets("panel.css")), pictures)


def _runs(run: Run | None) -> tuple[Run, Run]:
    """Return the runs of the ladder and of the chart over sizes, as front_page() has them."""
    if run is not None:
        return run, run
    newest = holding(jobs_of(None, SIZE)[0])
    if newest.origin == "recorded":
        return at_4096(), in_steps()
    return newest, newest


def _claim(measurements: Sequence[Measurement]) -> str:
    """Return the title: how many times as fast as the first rung the fastest FP32 rung is."""
    times = {}
    for m in measurements:
        if m.us and m.kernel != CUBLAS and class_of(m) == "fp32":
            times[m.kernel] = m.us
    first = times.get(RUNGS[0].name)
    if first is None:
        return "How an SGEMM becomes fast, and how its time is measured right"
    factor = first / min(times.values())
    return f"How an SGEMM becomes {factor:.0f} times as fast, and how its time is measured right"


def _entry(chapter: Chapter) -> str:
    """Return a chapter's entry in the list of chapters."""
    return (
        f'<li><span class="number">{chapter.number}</span>'
        f"<div><b>{chapter.link()}</b><p>{escape(chapter.summary)}</p></div>"
        f'<span class="minutes">{chapter.minutes} min</span></li>'
    )


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
    with Image.open(io.BytesIO(pictures[light])) as picture:
        width, height = (round(SCREEN_DPI * side / DPI) for side in picture.size)
    html = f'<figure class="chart"><div class="scroll" tabindex="0" aria-label="{label}">'
    html += f'<picture><source media="{DARK_SCREEN}" srcset="{dark}">'
    html += f'<img src="{light}" width="{width}" height="{height}" loading="lazy" '
    html += f'alt="{escape(chart.alt)}"></picture></div></figure>'
    return html, pictures


@dataclass(frozen=True)
class Load:
    """The load of a rung's first warp that moves most sectors."""

    about: str
    squares: str  # the words of its sectors as SVG
    html: str  # a link to the access viewer, with the picture


def _load(name: str) -> Load:
    """Return the load of a rung that moves most sectors, with its sectors and their words."""
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
    html = f'<a class="{style}" href="access.html#{name}/0/9/1">{text}{picture}</a>'
    return Load(f"{name}: {load['text']}: {load['cost']}", groups, html)


def _squares(place: int, sector: int, indices: Set[int]) -> str:
    """Return the eight words of a sector as squares, pale if no lane reads them.

    place: of the sector among the sectors, four in a row
    sector, indices: numbers of a sector, and of the words that lanes read
    """
    paths = {"used": "", "pale": ""}
    for number in range(8):
        kind = "used" if 8 * sector + number in indices else "pale"
        paths[kind] += f"M{8.6 * (place % 4) + number:.1f} {1.3 * (place // 4):.1f}h.9v1h-.9z"
    opacity = {"used": 1, "pale": PALE}
    return "".join(
        f'<path class="{kind}" opacity="{opacity[kind]}" d="{path}"/>'
        for kind, path in paths.items()
    )
