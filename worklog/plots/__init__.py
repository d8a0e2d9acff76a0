"""The charts: a run in, a figure out that says its finding, its source and, in words, what it shows.

This room reads runs and draws; it measures nothing and imports nothing that does. Every chart is a matplotlib figure
that shows itself as the last line of a cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from worklog.errors import NothingToDraw
from worklog.plots.ablation import ablated, ablation
from worklog.plots.certificate import Certificate, calibration
from worklog.plots.diagrams import DIAGRAMS
from worklog.plots.figure import Chart, Drawing, save
from worklog.plots.gallery import Caption, gallery, write_gallery
from worklog.plots.ladder import ladder
from worklog.plots.levels import levels
from worklog.plots.ownership import ownership
from worklog.plots.peers import peers
from worklog.plots.roofline import roofline
from worklog.plots.samples import samples
from worklog.plots.sweep import sweep
from worklog.plots.tilemap import tile_map
from worklog.plots.traffic import traffic
from worklog.runs.run import Run

__all__ = [
    "DIAGRAMS",
    "Certificate",
    "Chart",
    "Drawn",
    "ablation",
    "calibration",
    "draw_all",
    "gallery",
    "ladder",
    "levels",
    "ownership",
    "peers",
    "roofline",
    "samples",
    "save",
    "sweep",
    "tile_map",
    "traffic",
    "write_gallery",
]


@dataclass(frozen=True)
class Drawn:
    """What `draw_all` left: the files, what each chart says, and for each that was not drawn, why.

    gallery: the page that shows them, where one was written.
    """

    paths: list[Path] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    captions: dict[str, Caption] = field(default_factory=dict)
    gallery: Path | None = None


def draw_all(run: Run, out: Path) -> Drawn:
    """Draw every chart that the run has the measurements for, each as SVG and PNG, light and dark, in the folder `out`.

    Raises WorklogError where the folder cannot be written.
    """
    charts: dict[str, Callable[[], Drawing]] = {"ladder": partial(ladder, run), "roofline": partial(roofline, run)}
    ablations = {f"ablation_{name}": partial(ablation, run, name) for name in ablated(run)}
    charts |= ablations or {"ablation": partial(ablation, run)}
    charts |= {"traffic": traffic, "calibration": partial(calibration, run), "peers": peers}
    charts |= {name: partial(diagram, run) for name, diagram in DIAGRAMS.items()}
    drawn = Drawn()
    for name, draw in charts.items():
        try:
            chart = draw()
            drawn.paths.extend(save(chart, out / name))
            drawn.captions[name] = Caption(chart.headline, chart.alt)
        except NothingToDraw as nothing:
            drawn.missing[name] = str(nothing)
    return drawn
