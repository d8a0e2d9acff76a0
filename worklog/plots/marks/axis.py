"""Scales and ticks of one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axis import Axis, XAxis
from matplotlib.scale import LogScale
from matplotlib.ticker import Locator, LogLocator, MaxNLocator, NullLocator, StrMethodFormatter


def scale(
    axis: Axis,
    locator: Locator | Sequence[float],
    label: str = "",
    limits: tuple[float, float] | None = None,
    *,
    log: float = 0,
    written: str = "{x:g}",
) -> None:
    """Set an axis's scale, label and ticks, without minor ticks.

    locator: places the ticks; or their values
    limits: default, those of what is drawn
    log: the base of a logarithmic scale
    written: the format of a tick's value
    """
    name = "x" if isinstance(axis, XAxis) else "y"
    if log:
        axis.axes.set(**{f"{name}scale": LogScale(axis, base=log)})
    if limits:
        axis.axes.set(**{f"{name}lim": limits})
    axis.set_label_text(label)
    if isinstance(locator, Locator):
        axis.set_major_locator(locator)
    else:
        axis.set_ticks(locator)
    axis.set_major_formatter(StrMethodFormatter(written))
    axis.set_minor_locator(NullLocator())


def tick_locator(low: float, high: float) -> Locator:
    """Return a locator of two to five round values between these on a log scale."""
    decades = math.log10(high / low)
    if decades < 0.9:
        return MaxNLocator(4, steps=[1, 2, 5, 10])
    return LogLocator(subs=(1, 3) if decades < 2 else (1,), numticks=4)
