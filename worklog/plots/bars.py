"""A measured rate as a bar with its interval and its numbers, and the line that it is compared with."""

from __future__ import annotations

from matplotlib.axes import Axes

from worklog.plots.page import beside
from worklog.plots.style import ACCENT, INK, MUTED, PAPER, text_width
from worklog.problem.gemm import tflops
from worklog.runs.run import Measurement

BEHIND = {"facecolor": PAPER, "pad": 1.0}  # words stand in front of the reference lines


def interval(m: Measurement) -> tuple[float, float]:
    """The 95 % interval in TFLOP/s: the longer time is the lower rate."""
    if not m.us_low or not m.us_high:
        return m.tflops or 0.0, m.tflops or 0.0
    return tflops(m.problem, m.us_high), tflops(m.problem, m.us_low)


def rate_bar(axes: Axes, m: Measurement, y: float, height: float, words: str, points: float, colour: str) -> None:
    """A bar with whiskers; its words are inside where they fit, else beside it. The x axis must be set already."""
    rate, (low, high) = m.tflops or 0.0, interval(m)
    axes.barh(y, rate, height, color=colour)
    whiskers = [[max(rate - low, 0.0)], [max(high - rate, 0.0)]]
    axes.errorbar(rate, y, xerr=whiskers, color=INK, elinewidth=1.0, capsize=10 * height, capthick=1.0)
    length = min(rate, low) / axes.get_xlim()[1] * axes.bbox.width / axes.figure.dpi
    if length > text_width(words, points) + 0.2:
        inside = PAPER if colour == ACCENT else INK
        beside(axes, words, (min(rate, low), y), -5, fontsize=points, color=inside)
    else:
        beside(axes, words, (max(rate, high), y), fontsize=points, bbox=BEHIND)


def reference_line(axes: Axes, x: float, words: str, y: float, *, drawn: bool = True) -> None:
    """A vertical line from y down; its words are beside its upper end, on the side where there is more room."""
    if drawn:
        axes.plot([x, x], [y - 0.06, axes.get_ylim()[0]], color=MUTED, linewidth=0.9, zorder=0.5, clip_on=False)
    gap = 4 if x < axes.get_xlim()[1] / 3 else -4
    beside(axes, words, (x, y), gap, va="center", color=MUTED, annotation_clip=False)
