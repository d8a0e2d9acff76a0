"""Errors of a time on kernels of known length: their axis and their texts."""

from __future__ import annotations

from collections.abc import Collection

from matplotlib.axes import Axes

from worklog.plots.marks.axis import scale
from worklog.plots.style import MUTED


def length_axis(axes: Axes, lengths: Collection[float], left: float, right: float) -> None:
    """Prepare a log axis of true lengths, with a line at no error.

    left, right: the axis's ends, as factors of the shortest and the longest length
    """
    scale(
        axes.xaxis,
        sorted(lengths),
        "true length, µs",
        (left * min(lengths), right * max(lengths)),
        log=10,
    )
    axes.axhline(0, color=MUTED, linewidth=0.6)


def signed(error: float, digits: int = 3) -> str:
    """Return the error with its sign; 0 is positive."""
    return f"{error:+z.{digits}f}".replace("-", "−")
