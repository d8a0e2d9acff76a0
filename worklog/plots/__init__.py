"""The charts: a run in, a figure out with its finding as the title, its source as the footer, and an alt text.

This room reads runs and draws; it measures nothing and imports nothing that does. Every chart is a matplotlib figure
that shows itself as the last line of a cell. Charts on one pair of axes take `ax`, and then return it.
"""

from __future__ import annotations

from functools import partial, update_wrapper

from worklog.plots.charts.ablation import ablated, ablation
from worklog.plots.charts.harness import calibration, peers, samples
from worklog.plots.charts.lines import accuracy, error_growth, lines, sizes
from worklog.plots.charts.memory import levels, levels_of, roofline, traffic
from worklog.plots.charts.rates import bars, ladder, ladders, sweep
from worklog.plots.charts.tiles import ownership, tile_map
from worklog.plots.diagrams import DIAGRAMS, headline
from worklog.plots.figure import DARK_PAGES, Chart, Drawing, save
from worklog.plots.registry import Drawn, draw_all, write_gallery
from worklog.plots.style import DARK, LIGHT
from worklog.runs import Run

__all__ = [
    "DARK", "DARK_PAGES", "DIAGRAMS", "LIGHT", "Chart", "Drawing", "Drawn", "Plots", "ablated", "ablation", "accuracy",
    "bars", "calibration", "draw_all", "error_growth", "headline", "ladder", "ladders", "levels",
    "levels_of", "lines", "ownership", "peers", "roofline", "samples", "save", "sizes", "sweep", "tile_map", "traffic",
    "write_gallery",
]  # fmt: skip

# The methods of `run.plot`.
OF_A_RUN = (ladder, ladders, sizes, lines, roofline, levels, ablation, samples, accuracy, calibration)


class Plots:
    """The charts of one run, as `run.plot`: `run.plot.ladder(size=4096)` is `worklog.plots.ladder(run, size=4096)`."""

    def __init__(self, run: Run) -> None:
        for chart in OF_A_RUN:
            setattr(self, chart.__name__, update_wrapper(partial(chart, run), chart))
