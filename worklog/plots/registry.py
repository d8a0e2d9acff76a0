"""The charts of a run by name: the figures of its folder, and the methods of `run.plot`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, update_wrapper
from typing import Any

from worklog.plots.charts.ablation import ablation
from worklog.plots.charts.accuracy import accuracy
from worklog.plots.charts.calibration import calibration
from worklog.plots.charts.cards import cards
from worklog.plots.charts.energy import energy
from worklog.plots.charts.ladder import ladder
from worklog.plots.charts.ladders import ladders
from worklog.plots.charts.lines import lines, sizes
from worklog.plots.charts.peers import peers
from worklog.plots.charts.roofline import roofline
from worklog.plots.charts.samples import samples
from worklog.plots.charts.traffic import traffic
from worklog.plots.diagrams import DIAGRAMS, headline
from worklog.plots.drawing import Drawing
from worklog.plots.selection import in_order
from worklog.runs import Run


class Plots:
    """The charts of one run, as `run.plot`.

    `run.plot.ladder(size=4096)` is `worklog.plots.ladder(run, size=4096)`.
    """

    def __init__(self, run: Run) -> None:
        self.ladder = partial(ladder, run)
        self.ladders = partial(ladders, run)
        self.energy = partial(energy, run)
        self.sizes = partial(sizes, run)
        self.lines = partial(lines, run)
        self.roofline = partial(roofline, run)
        self.ablation = partial(ablation, run)
        self.samples = partial(samples, run)
        self.accuracy = partial(accuracy, run)
        self.calibration = partial(calibration, run)
        self.cards = partial(cards, run)
        for chart in vars(self).values():
            update_wrapper(chart, chart.func)


def _traffic(_run: Run) -> Drawing:
    """Return the chart of the rungs' traffic, which doesn't depend on a run."""
    return traffic()


def _peers(_run: Run) -> Drawing:
    """Return the recorded comparison with other harnesses, which doesn't depend on a run."""
    return peers()


# A new figure of a run is one entry here. Its name is the name of its file.
# Each value returns a Drawing, and a chart that is drawn on a user's axes returns these.
FIGURES: dict[str, Callable[[Run], Any]] = {
    "headline": headline,
    "ladder": ladder,
    "sizes": sizes,
    "roofline": roofline,
    "traffic": _traffic,
    "calibration": calibration,
    "peers": _peers,
    **DIAGRAMS,
}


def charts_of(run: Run) -> dict[str, Callable[[], Drawing]]:
    """Return the run's figures, energy, ablations and lines of benchmarks, by name."""
    charts: dict[str, Callable[[], Drawing]] = {
        name: partial(draw, run) for name, draw in FIGURES.items()
    }
    if any(m.energy for m in run.select() if m.shape):  # most runs don't measure it
        charts["energy"] = partial(energy, run)
    for kernel in in_order(sorted({m.kernel for m in run.measurements if m.changed})):
        charts[f"ablation_{kernel}"] = partial(ablation, run, kernel)
    if not any(m.changed for m in run.measurements):
        charts["ablation"] = partial(ablation, run)
    for kernel in dict.fromkeys(m.kernel for m in run.select() if m.shape is None):
        stem = "".join(letter if letter.isalnum() else "_" for letter in kernel)
        charts[f"lines_{stem}"] = partial(lines, replace(run, measurements=run.select(kernel)))
    return charts
