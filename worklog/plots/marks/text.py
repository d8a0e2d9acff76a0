"""Texts next to data points, and the width of texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matplotlib.axes import Axes

from worklog.plots import style
from worklog.plots.style import BODY_PT, INK, PAPER, SMALL_PT

Point = tuple[float, float]
ON_PAPER = {"facecolor": PAPER, "pad": 1.0}  # a box that puts a text in front of lines


def widest(lines: Iterable[str], points: float = BODY_PT) -> float:
    """Return the width of the longest of these lines of text in inches."""
    return max(style.text_width(line, points) for line in lines)


def annotate(
    axes: Axes,
    text: str,
    point: Point,
    *,
    gap: float = 5.0,
    lift: float = 0.0,
    **properties: Any,
) -> None:
    """Write a text next to a data point.

    gap: in points; positive: the text starts that far right of the point; negative: it ends
        left of the point; 0: it is centred
    lift: how far the text is above the point, in points
    properties: of matplotlib's text, other than a small one in ink
    """
    side = "center"
    if gap > 0:
        side = "left"
    elif gap < 0:
        side = "right"
    defaults: dict[str, Any] = {
        "ha": side,
        "va": "center_baseline",
        "fontsize": SMALL_PT,
        "color": INK,
    }
    axes.annotate(text, point, (gap, lift), textcoords="offset points", **(defaults | properties))
