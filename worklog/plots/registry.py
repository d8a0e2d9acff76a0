"""The registry of the figures that a run gives, and the folder with all of them.

The page of all figures is Markdown named README.md, so that a repository shows it with the folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from pathlib import Path

from worklog.errors import NothingToDraw, WorklogError
from worklog.plots.charts.ablation import ablated, ablation
from worklog.plots.charts.known_lengths import calibration, peers
from worklog.plots.charts.ladder import ladder
from worklog.plots.charts.levels import traffic
from worklog.plots.charts.lines import lines, sizes
from worklog.plots.charts.roofline import roofline
from worklog.plots.diagrams import DIAGRAMS, headline
from worklog.plots.figure import Drawing, save, writing
from worklog.runs import Run, write_bytes

Draw = Callable[[], Drawing]

# A new figure of a run is one entry here; its name is its file's.
FIGURES: dict[str, Callable[[Run], Drawing]] = {
    "headline": headline,
    "ladder": ladder,
    "sizes": sizes,
    "roofline": roofline,
    "traffic": lambda run: traffic(),
    "calibration": calibration,
    "peers": lambda run: peers(),
    **DIAGRAMS,
}


def figures_of(run: Run) -> dict[str, Draw]:
    """How to draw each figure of a run by name: the registry's, its ablations, and the lines of its benchmarks."""
    draws: dict[str, Draw] = {name: partial(draw, run) for name, draw in FIGURES.items()}
    for kernel in ablated(run):
        draws[f"ablation_{kernel}"] = partial(ablation, run, kernel)
    if not ablated(run):
        draws["ablation"] = partial(ablation, run)
    for kernel in dict.fromkeys(m.kernel for m in run.select() if m.shape is None):
        stem = "".join(letter if letter.isalnum() else "_" for letter in kernel)
        draws[f"lines_{stem}"] = partial(lines, replace(run, measurements=run.select(kernel)))
    return draws


@dataclass(frozen=True)
class Drawn:
    """The result of `draw_all`: the charts by name, their files, and for each chart that was not drawn, why.

    gallery: the page that shows them, where one was written.
    """

    charts: dict[str, Drawing] = field(default_factory=dict)
    paths: list[Path] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    gallery: Path | None = None


def draw_all(run: Run, out: Path, others: Mapping[str, Draw] | None = None, only: Collection[str] = ()) -> Drawn:
    """Draw every chart that the run has the measurements for, each as SVG and PNG, light and dark, in the folder `out`,
    and the page that shows them. others: more charts by name, which don't come from a run, or which replace the run's.
    only: draw these and replace their parts of the page (default: all).

    Raises WorklogError where the folder cannot be written, or for a name in `only` that no figure has.
    """
    draws = figures_of(run) | dict(others or {})
    if unknown := set(only) - draws.keys():
        raise WorklogError(f"no figure is called {', '.join(sorted(unknown))}: choose from {', '.join(draws)}")
    drawn = Drawn()
    for name in only or draws:
        try:
            drawn.charts[name] = draws[name]()
            drawn.paths.extend(save(drawn.charts[name], out / name))
        except NothingToDraw as nothing:
            drawn.missing[name] = str(nothing)
    return replace(drawn, gallery=write_gallery(drawn.charts, drawn.missing, out, replacing=bool(only)))


BEGIN = "<!-- written by `worklog figures` and `worklog article`"
PARTS = {True: "## The article's diagrams, with this machine's numbers", False: "## The charts"}
# Heading, picture in the palette of the reader's page, alt text, and links to the SVGs.
FIGURE = """\
### {headline}

<picture><source media="(prefers-color-scheme: dark)" srcset="{name}_dark.png">\
<img src="{name}.png" width="700" alt="{alt}"></picture>

<details><summary>In words · <a href="{name}.svg">SVG</a>, <a href="{name}_dark.svg">dark</a></summary>

{words}

</details>"""


def section(name: str, chart: Drawing) -> str:
    """A figure's part of the page."""
    words = {"headline": escape(chart.headline, False), "words": escape(chart.alt, False), "alt": escape(chart.alt)}
    return FIGURE.format(name=name, **words)


def gallery(charts: Mapping[str, Drawing], missing: Mapping[str, str]) -> str:
    """The page in Markdown: the article's diagrams, then the charts, then why others are missing."""
    page = [f"{BEGIN}, which overwrite it -->", "# The figures"]
    for of_article, heading in PARTS.items():
        sections = [section(name, charts[name]) for name in charts if name.startswith("diagram_") is of_article]
        if sections:
            page += [heading, *sections]
    page += [f"Not drawn: `{name}`, {why}" for name, why in missing.items()]
    return "\n\n".join(page) + "\n"


def write_gallery(
    charts: Mapping[str, Drawing], missing: Mapping[str, str], folder: Path, *, replacing: bool = False
) -> Path | None:
    """Write README.md into the folder of the figures. Returns None and writes nothing if there is no chart, or if the
    folder has a README.md from another source. replacing: keep the page, but for the parts of these charts. Raises
    WorklogError where the file cannot be written.
    """
    path = folder / "README.md"
    with writing(f"the gallery {path}"):
        before = path.read_bytes() if path.exists() else b""
        if not charts or not (before or BEGIN.encode()).startswith(BEGIN.encode()):
            return None
        page = gallery(charts, missing)
        if replacing and before:
            page = before.decode()
            for name, chart in charts.items():
                old = rf'### [^\n]*\n\n<picture>[^\n]*srcset="{name}_dark\.png".*?</details>'
                place, new = re.search(old, page, re.DOTALL), section(name, chart)
                page = page[: place.start()] + new + page[place.end() :] if place else f"{page}\n{new}\n"
        write_bytes(path, page.encode())
    return path
