"""Lines over x with their bands, and with a name at the end of each line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import Locator, LogLocator, MaxNLocator

from worklog.plots.marks.axis import scale
from worklog.plots.marks.names import leave_room, name_points
from worklog.plots.style import ACCENT, BODY_PT, GREY

# x values with a tick of their own, and with dots
MOST_TICKS = 8
MOST_DOTS = 11
WIDE = 8.0  # largest over smallest: beyond that, an axis is logarithmic
MARKS = "osD^vPX*<>"
FIRST = {"color": ACCENT, "weight": "bold"}  # the look of the accented line's name


@dataclass(frozen=True)
class Line:
    """A line over x."""

    name: str  # at the line's end
    points: Sequence[tuple[float, ...]]  # x, y and, if it is known, the interval of y
    colour: str
    is_dashed: bool = False
    name_look: Mapping[str, Any] = field(default_factory=dict)  # properties of the name's text


def values_of(lines: Sequence[Line], index: int) -> set[float]:
    """Return the values of all points at this index.

    index: 0 is x, 1 is y, 3 is y's upper end
    """
    values = set[float]()
    for line in lines:
        values |= {point[index] for point in line.points}
    return values


def x_axis(axes: Axes, lines: Sequence[Line], label: str, wide: float = WIDE) -> None:
    """Prepare the x axis and the grid for these lines.

    wide: x is logarithmic if its largest value is at least this multiple of the smallest
    """
    xs = sorted(values_of(lines, 0))
    log = 2 if xs[0] > 0 and xs[-1] / xs[0] >= wide else 0
    locator: Locator | list[float] = xs
    if len(xs) > MOST_TICKS:
        locator = LogLocator(2) if log else MaxNLocator(6)
    scale(axes.xaxis, locator, label, log=log, written="{x:.6g}")
    axes.grid(True, zorder=0)


def draw_lines(axes: Axes, lines: Sequence[Line], widest_pt: float = BODY_PT) -> None:
    """Draw lines in their bands, with a name at each line's end.

    The accented line is in front.

    widest_pt: the size of names for which the axes leave room
    """
    leave_room(axes, [line.name for line in lines], widest_pt)
    has_dots = len(values_of(lines, 0)) <= MOST_DOTS
    for number, line in enumerate(lines):
        xs, ys, *band = zip(*line.points, strict=True)
        # Without clip paths, each of which is a layer: the PNG is drawn in a fifth of the time.
        if len(band) == 2:
            axes.fill_between(
                xs,
                band[0],
                band[1],
                color=(line.colour, 0.25),
                linewidth=0,
                zorder=2,
                clip_on=False,
            )
        axes.plot(
            xs,
            ys,
            "--" if line.is_dashed else "-",
            color=line.colour,
            zorder=_layer(line.colour),
            marker=MARKS[number % len(MARKS)],
            markersize=3.2 if has_dots else 0.0,
            clip_on=False,
        )
    ends = {line.name: (line.points[-1][0], line.points[-1][1]) for line in lines}
    name_points(axes, ends, {line.name: line.name_look for line in lines})


def _layer(colour: str) -> int:
    """Return a line's zorder: colours are in front of grey, the accent is in front."""
    if colour == ACCENT:
        return 5
    return 3 if colour == GREY else 4
