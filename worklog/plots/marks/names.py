"""Names of data points, right of them, so that no two overlap. Lengths are inches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from worklog.plots.marks.text import ON_PAPER, Point, widest
from worklog.plots.style import BASELINE, INK, SMALL_PT

LANE = 0.15  # between two names of points
COLUMN = 0.5  # between points whose names are in one column
GAP = 0.14  # from a point to its name
ARROW = {
    "arrowstyle": "-",
    "color": BASELINE,
    "linewidth": 0.6,
    "shrinkA": 1,
    "relpos": (0, 0.5),
}


def leave_room(axes: Axes, names: Iterable[str], points: float = SMALL_PT) -> None:
    """Make axes narrower, so that names right of their points fit (name_points).

    Call it before drawing.

    names: of points at the axes' right edge
    points: the size of the names
    """
    place = axes.get_position()
    room = (GAP + widest(names, points)) * axes.figure.dpi / axes.bbox.width * place.width
    axes.set_position(
        (place.x0, place.y0, max(place.width - room, 0.2 * place.width), place.height)
    )


def name_points(
    axes: Axes, names: Mapping[str, Point], looks: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write names right of data points, with a thin line from each point to its name.

    The names of points that are near each other stand in one column, as high as their points or
    lower, and at least LANE apart.

    names: the data points by name
    looks: by name, properties of its text other than a small one in ink
    """
    axes.autoscale_view()  # matplotlib finds limits that follow the data only when it draws
    inches = axes.transData - axes.figure.dpi_scale_trans
    places = {name: inches.transform(point) for name, point in names.items()}
    top = axes.bbox.y1 / axes.figure.dpi
    bottom = axes.bbox.y0 / axes.figure.dpi
    for column in _columns(places):
        order = sorted(column, key=lambda name: (places[name][1], name))
        left = places[column[-1]][0] + GAP
        heights = _name_heights([places[name][1] for name in order], bottom, top)
        for name, height in zip(order, heights, strict=True):
            properties: dict[str, Any] = {
                "va": "center",
                "fontsize": SMALL_PT,
                "color": INK,
                "bbox": ON_PAPER,
                "textcoords": "offset points",
                "arrowprops": ARROW,
                "annotation_clip": False,
                **looks.get(name, {}),
            }
            to_name = 72 * (np.array([left, height]) - places[name])
            axes.annotate(name, names[name], to_name, **properties)


def _columns(places: Mapping[str, Any]) -> list[list[str]]:
    """Return names in columns: a column has points within COLUMN of its first point.

    places: x and y of each point, in inches
    """
    columns = list[list[str]]()
    for name in sorted(places, key=lambda name: (places[name][0], name)):
        if not columns or places[name][0] - places[columns[-1][0]][0] > COLUMN:
            columns.append([])
        columns[-1].append(name)
    return columns


def _name_heights(heights: Sequence[float], bottom: float, top: float) -> Any:
    """Return the heights of a column's names, from those of its points, the lowest first."""
    lanes = LANE * np.arange(len(heights))
    # From the top down, no name is higher than its point or than LANE below the name above it.
    lowered = np.minimum.accumulate((np.array(heights) - lanes)[::-1])[::-1]
    return np.clip(lowered, bottom, top - lanes[-1]) + lanes
