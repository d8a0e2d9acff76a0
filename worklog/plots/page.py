"""The page around every chart, and where its words go so that no two overlap at any number of rows.

A chart on one pair of axes says what draws it, and `on_axes` draws that on the user's axes or on a page of its own. All
lengths are inches on the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.scale import LogScale
from matplotlib.ticker import Locator, LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from worklog.plots import figure
from worklog.plots.figure import BASELINE, BODY_PT, INK, MARGIN_IN, MUTED, SMALL_PT, WIDTH_IN, Chart

Point = tuple[float, float]
LANE = 0.15  # inches between two names right of the axes
RIGHT = 0.45  # inches beside those names, most of them for the lines that lead to them


def page(
    name: str,
    finding: str,
    subtitle: str,
    footer: Sequence[str],
    alt: Iterable[str],
    body_height: float,
    width: float = WIDTH_IN,
) -> Chart:
    """A chart with its words in place and a free body of that height; title, subtitle and footer are wrapped to fit.

    alt: what the chart is, then what each of its rows says; the alt text ends with the footer as the source.
    """
    what, *rows = alt
    source = [f"Source: {'; '.join(footer)}."] if footer else []
    words = " ".join([f"{what.rstrip('.')}.", *([f"{'; '.join(rows)}."] if rows else []), *source])
    room = 0.98 * (width - 2 * MARGIN_IN)  # drawn at 100 dpi, letters are up to that much wider
    title = figure.wrap(finding, figure.TITLE_PT, room, bold=True)
    below_title = figure.wrap(subtitle, figure.SUBTITLE_PT, room)
    foot = [line for part in footer for line in figure.wrap(part, SMALL_PT, room)]
    head = figure.line_height(figure.TITLE_PT, len(title)) + figure.line_height(figure.SUBTITLE_PT, len(below_title))
    below = MARGIN_IN + figure.line_height(SMALL_PT, len(foot)) + 0.06
    pixels = figure.SCREEN_DPI * (MARGIN_IN + head + 0.08 + body_height + below)
    height = math.ceil(pixels) / figure.SCREEN_DPI  # a part of a pixel would be drawn dark
    new = Chart(name, finding, words, width, height)
    new.body_bottom, new.body_top = below, below + body_height
    top = new.write(MARGIN_IN, height - MARGIN_IN, title, figure.TITLE_PT, weight="bold")
    new.write(MARGIN_IN, top, below_title, figure.SUBTITLE_PT, color=MUTED)
    new.write(MARGIN_IN, below - 0.06, foot, color=MUTED)
    return new


def on_axes(
    ax: Axes | None,
    draw: Callable[[Axes], None],
    name: str,
    finding: str,
    subtitle: str,
    footer: Sequence[str],
    alt: Iterable[str],
    height: float,
    left: float,
    right: float = MARGIN_IN,
    above: float = 0.1,
    below: float = 0.42,
) -> Any:
    """A chart on one pair of axes. As in seaborn, it is drawn on `ax` and that is returned where one is given: no title
    and no source then, which are the user's. Otherwise it gets a page, a Chart that shows itself.

    left, right: from the page's edges to the axes. above, height, below: of the body, the axes in the middle.
    """
    if ax is not None:
        draw(ax)
        return ax
    new = page(name, finding, subtitle, footer, alt, above + height + below)
    draw(new.axes_at(left, new.body_bottom + below, WIDTH_IN - left - right, height))
    return new


def widest(lines: Iterable[str], points: float = BODY_PT) -> float:
    """Width of the longest of these lines of text in inches."""
    return max(figure.text_width(line, points) for line in lines)


def right_of(names: Iterable[str]) -> float:
    """The left edge of axes whose row names start at the left margin, in inches."""
    return MARGIN_IN + widest(names) + 0.12


def name_rows(axes: Axes, height: float, places: Sequence[float], names: Sequence[str]) -> None:
    """Name rows at these places, inches down from the top of axes of that height, without a scale."""
    axes.set_ylim(height, 0)
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def middles(pitch: float, count: int) -> list[float]:
    """Where the middles of rows are that are `pitch` inches high, inches down from the top."""
    return [pitch * (index + 0.5) for index in range(count)]


def beside(axes: Axes, words: str, at: Point, gap: float = 5.0, up: float = 0.0, **how: Any) -> None:
    """Words that start `gap` points right of a data point; with a negative gap they end left of it, with 0 they are
    centred."""
    side = "center" if gap == 0 else "left" if gap > 0 else "right"
    usual: dict[str, Any] = {"ha": side, "va": "center_baseline", "fontsize": SMALL_PT, "color": INK}
    axes.annotate(words, at, (gap, up), textcoords="offset points", **(usual | how))


def leave_room(axes: Axes, names: Iterable[str], points: float = SMALL_PT, small: Iterable[str] = ()) -> None:
    """Make axes narrower, so that the names of points fit at their right (name_points). Call it before drawing. points:
    the size of the names; small: more names, in small letters.
    """
    place = axes.get_position()
    inches = RIGHT - MARGIN_IN + max(widest(names, points), widest(["", *small], SMALL_PT))
    room = inches * axes.figure.dpi / axes.bbox.width * place.width
    axes.set_position((place.x0, place.y0, max(place.width - room, 0.2 * place.width), place.height))


def name_points(axes: Axes, names: Mapping[str, Point], looks: Mapping[str, Mapping[str, Any]]) -> None:
    """Names right of the axes, as high as their data points but at least LANE apart, with a thin line to each point.

    looks: what differs from a small name in ink, by name.
    """
    axes.autoscale_view()  # matplotlib finds limits that follow the data only when it draws
    inches = axes.transData - axes.figure.dpi_scale_trans
    at = {name: inches.transform(point) for name, point in names.items()}
    order = sorted(names, key=lambda name: (at[name][1], name))
    right, top, bottom = (edge / axes.figure.dpi for edge in (axes.bbox.x1, axes.bbox.y1, axes.bbox.y0))
    lanes = LANE * np.arange(len(order))
    free = np.array([at[name][1] for name in order]) - lanes
    # Halfway between moving names only up and moving them only down; in both, no two are closer than a lane.
    spread = (np.maximum.accumulate(free) + np.minimum.accumulate(free[::-1])[::-1]) / 2
    arrow = {"arrowstyle": "-", "color": BASELINE, "linewidth": 0.6, "shrinkA": 1, "relpos": (0, 0.5)}
    for name, height in zip(order, np.clip(spread, bottom, top - lanes[-1]) + lanes, strict=True):
        to_name = 72 * (np.array([right + 0.3, height]) - at[name])
        usual: dict[str, Any] = {"va": "center", "fontsize": SMALL_PT, "color": INK, **looks.get(name, {})}
        axes.annotate(name, names[name], to_name, textcoords="offset points", arrowprops=arrow, **usual)


def scale(
    axis: Axis,
    locator: Locator | Sequence[float],
    label: str = "",
    limits: Point | None = None,
    *,
    log: float = 0,
    written: str = "{x:g}",
) -> None:
    """An axis with ticks where the locator puts them, or at these values, with their values written out; no minor ones.
    limits: by default those of what is drawn. log: the base of a logarithmic scale."""
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


def a_few(low: float, high: float) -> Locator:
    """Two to five round values on a log scale between these."""
    decades = math.log10(high / low)
    if decades < 0.9:
        return MaxNLocator(4, steps=[1, 2, 5, 10])
    return LogLocator(subs=(1, 3) if decades < 2 else (1,), numticks=4)
