"""The charts: a run in, a figure out.

A figure has its finding as the title, its source as the footer, and an alt text.

This room reads runs and draws. It measures nothing and imports nothing that does. Every chart is a
matplotlib figure that shows itself as the last line of a cell. Charts on one pair of axes accept
`ax`, and then return it.

`charts/` has a module for each chart: what it selects of a run, and its texts. It is drawn with the
marks of `marks/` on the page of `page.py`. `ground/` draws the hardware. `registry.py` lists the
figures of a run, and `gallery.py` writes them into a folder.
"""

from worklog.plots.charts.ablation import ablation
from worklog.plots.charts.accuracy import accuracy
from worklog.plots.charts.bars import bars
from worklog.plots.charts.calibration import calibration
from worklog.plots.charts.cards import cards
from worklog.plots.charts.changes import changes
from worklog.plots.charts.curves import curves
from worklog.plots.charts.history import history
from worklog.plots.charts.ladder import ladder
from worklog.plots.charts.ladders import ladders
from worklog.plots.charts.lines import lines, sizes
from worklog.plots.charts.ownership import ownership
from worklog.plots.charts.peers import peers
from worklog.plots.charts.roofline import levels_of, roofline
from worklog.plots.charts.samples import samples
from worklog.plots.charts.sweep import heat_map, sweep
from worklog.plots.charts.tile_map import tile_map
from worklog.plots.charts.timeline import timeline
from worklog.plots.charts.traffic import traffic
from worklog.plots.diagrams import DIAGRAMS, headline
from worklog.plots.drawing import Drawing, save
from worklog.plots.gallery import Drawn, draw_all
from worklog.plots.page import Chart
from worklog.plots.registry import Plots

__all__ = [
    "DIAGRAMS", "Chart", "Drawing", "Drawn", "Plots", "ablation", "accuracy", "bars", "calibration",
    "cards", "changes", "curves", "draw_all", "headline", "heat_map", "history", "ladder",
    "ladders", "levels_of", "lines", "ownership", "peers", "roofline", "samples", "save", "sizes",
    "sweep", "tile_map", "timeline", "traffic",
]  # fmt: skip
