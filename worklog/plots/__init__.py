"""The charts: a run in, a figure out with its finding as the title, its source as the footer, and an alt text.

This room reads runs and draws; it measures nothing and imports nothing that does. Every chart is a matplotlib figure
that shows itself as the last line of a cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from worklog.errors import NothingToDraw
from worklog.plots.ablation import ablated, ablation
from worklog.plots.accuracy import accuracy, error_growth
from worklog.plots.bars import bars, energy, sweep
from worklog.plots.diagrams import DIAGRAMS, headline
from worklog.plots.figure import DARK, DARK_PAGES, LIGHT, Chart, Drawing, gallery, save, write_gallery
from worklog.plots.known_lengths import calibration, certificate, peers
from worklog.plots.ladder import ladder, ladders
from worklog.plots.levels import levels, traffic
from worklog.plots.lines import lines, sizes
from worklog.plots.roofline import roofline
from worklog.plots.samples import samples
from worklog.plots.tiles import ownership, tile_map
from worklog.runs import Run

__all__ = [
    "DARK", "DARK_PAGES", "DIAGRAMS", "LIGHT", "Chart", "Drawing", "Drawn", "ablated", "ablation", "accuracy", "bars",
    "calibration", "certificate", "draw_all", "energy", "error_growth", "gallery", "headline", "ladder", "ladders",
    "levels", "lines", "ownership", "peers", "roofline", "samples", "save", "sizes", "sweep", "tile_map", "traffic",
    "write_gallery",
]  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """The result of `draw_all`: the charts by name, their files, and for each chart that was not drawn, why.

    gallery: the page that shows them, where one was written.
    """

    charts: dict[str, Drawing] = field(default_factory=dict)
    paths: list[Path] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    gallery: Path | None = None


def draw_all(run: Run, out: Path, others: Mapping[str, Callable[[], Drawing]] | None = None) -> Drawn:
    """Draw every chart that the run has the measurements for, each as SVG and PNG, light and dark, in the folder `out`,
    and the page that shows them. others: more charts by name, which don't come from a run.

    Raises WorklogError where the folder cannot be written.
    """
    of_run: dict[str, Callable[[Run], Drawing]] = {
        "headline": headline,
        "ladder": ladder,
        "sizes": sizes,
        "roofline": roofline,
    }
    draws: dict[str, Callable[[], Drawing]] = {name: partial(draw, run) for name, draw in of_run.items()}
    ablations = {f"ablation_{name}": partial(ablation, run, name) for name in ablated(run)}
    draws |= ablations or {"ablation": partial(ablation, run)}
    for name in {m.kernel: None for m in run.select() if m.shape is None}:
        stem = "".join(letter if letter.isalnum() else "_" for letter in name)
        draws[f"lines_{stem}"] = partial(lines, replace(run, measurements=run.select(name)))
    draws |= {"traffic": traffic, "calibration": partial(calibration, run), "peers": peers, **(others or {})}
    draws |= {name: partial(diagram, run) for name, diagram in DIAGRAMS.items()}
    drawn = Drawn()
    for name, draw in draws.items():
        try:
            drawn.charts[name] = draw()
            drawn.paths.extend(save(drawn.charts[name], out / name))
        except NothingToDraw as nothing:
            drawn.missing[name] = str(nothing)
    return replace(drawn, gallery=write_gallery(drawn.charts, drawn.missing, out))
