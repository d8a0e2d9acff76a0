"""The page around every chart, and where its words go so that no two overlap.

All lengths are inches on the page.

Everything is placed in inches, so that nothing overlaps at any number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.ticker import Locator, LogLocator, MaxNLocator, NullLocator, StrMethodFormatter
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from worklog.plots import figure
from worklog.plots.figure import (
    BODY_PT,
    INK,
    MARGIN_IN,
    MUTED,
    SMALL_PT,
    SUBTITLE_PT,
    TITLE_PT,
    WIDTH_IN,
    Chart,
    text_width,
)

Point = tuple[float, float]
Points = NDArray[np.float64]

# A label is beside its point, this far away and this much higher or lower, or straight above or below it.
ACROSS = (0.09, 0.2, 0.34, 0.5, 0.75, 1.1)
HEIGHTS = tuple(sorted((0.07 * n for n in range(-15, 16)), key=abs))
GAP = 0.03
NEAR = 0.04  # words closer than this to what they name touch it
FAR = 0.17  # a label further from its point than this needs a line to it
ROUNDS = 3  # after the first, each label is placed again, now that the others are known


def nearest(box: Bbox, point: Point) -> Point:
    """The point of a rectangle that is nearest to another point."""
    return min(max(point[0], box.x0), box.x1), min(max(point[1], box.y0), box.y1)


def stroke(start: Point, end: Point, step: float = 0.03) -> Points:
    """A line as points close together, (n, 2), for `place` to keep words off it."""
    return np.linspace(start, end, max(2, math.ceil(math.dist(start, end) / step)))


def place(
    anchors: Sequence[Point], sizes: Sequence[Point], bounds: Bbox, taken: Sequence[Bbox], strokes: Points
) -> list[Bbox]:
    """A rectangle of each size near its anchor: inside the bounds, off the taken places and each other.

    Strokes are lines to keep off where that does not lead too far away.
    """
    candidates = [_candidates(anchor, size, bounds) for anchor, size in zip(anchors, sizes, strict=True)]
    from_the_top = sorted(enumerate(anchors), key=lambda one: -one[1][1])  # so that their lines do not cross
    placed: dict[int, Bbox] = {}
    for _ in range(ROUNDS):
        for index, anchor in from_the_top:
            others = {i: box for i, box in placed.items() if i != index}
            leaders = [stroke(anchors[i], nearest(box, anchors[i])) for i, box in others.items()]
            occupied = np.array([box.extents for box in (*taken, *others.values())]).reshape(-1, 4)
            costs = _costs(np.array(anchor), candidates[index], occupied, np.concatenate([strokes, *leaders]))
            placed[index] = Bbox.from_extents(*candidates[index][costs.argmin()])
    return [placed[index] for index in range(len(anchors))]


def _candidates(anchor: Point, size: Point, bounds: Bbox) -> Points:
    """Rectangles around the anchor, (n, 4), pushed back into the bounds: right and left of it, above and below."""
    half = np.array(size) / 2
    offsets = [(side * (gap + half[0]), up) for gap, side, up in product(ACROSS, (1, -1), HEIGHTS)]
    offsets += [(0.0, side * (gap + half[1])) for gap, side in product(ACROSS, (1, -1))]
    centres = np.clip(np.array(anchor) + np.array(offsets), bounds.min + half, bounds.max - half)
    return np.hstack([centres - half, centres + half])


def _costs(anchor: Points, boxes: Points, occupied: Points, ink: Points) -> Points:
    """Overlaps weigh more than any distance; a line to the anchor, lines under the words, and words under the line to
    the anchor, weigh as much as some distance. Rounded, so that equal costs are equal on every machine."""
    near = np.clip(anchor, boxes[:, :2], boxes[:, 2:])
    distance = np.hypot(*(near - anchor).T)
    shared = np.minimum(boxes[:, None, 2:], occupied[:, 2:]) - np.maximum(boxes[:, None, :2], occupied[:, :2]) + GAP
    overlap = np.maximum(shared, 0).prod(axis=2).sum(axis=1)
    leader = anchor + (near - anchor)[:, None] * np.linspace(0.35, 1, 12)[:, None]
    lined = (distance > FAR) * (0.2 + 0.32 * _inside(leader[:, :, None], occupied).sum(axis=(1, 2)))
    crossed = _inside(ink, boxes[:, None]).sum(axis=1)
    costs: Points = 1e5 * overlap + 1e3 * (distance < NEAR) + distance + lined + 0.08 * crossed
    return costs.round(9)


def _inside(points: Points, boxes: Points) -> NDArray[np.bool_]:
    """Which points, (…, 2), are inside which boxes, (…, 4)."""
    inside: NDArray[np.bool_] = np.all((points > boxes[..., :2]) & (points < boxes[..., 2:]), axis=-1)
    return inside


@dataclass(frozen=True)
class Page:
    """A figure with its words in place and a free body. Inches; y counts up from the figure's lower edge."""

    figure: Chart
    width: float
    body_bottom: float
    body_height: float

    @property
    def body_top(self) -> float:
        """Upper edge of the body."""
        return self.body_bottom + self.body_height

    def axes(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """Axes whose plotting area is exactly this rectangle."""
        whole = self.figure.get_figheight()
        return self.figure.add_axes((left / self.width, bottom / whole, width / self.width, height / whole))

    def rows(self, left: float, bottom: float, width: float, pitch: float, names: Sequence[str]) -> Axes:
        """Axes with one row per name, each `pitch` inches high; y counts inches down from the top."""
        axes = self.axes(left, bottom, width, pitch * len(names))
        axes.set_ylim(pitch * len(names), 0)
        axes.set_yticks([pitch * (index + 0.5) for index in range(len(names))], names)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        return axes

    def text(self, x: float, y: float, words: str, points: float = BODY_PT, **how: Any) -> None:
        """Text at a place on the page."""
        self.figure.text(x, y, words, fontsize=points, transform=self.figure.dpi_scale_trans, **how)

    def lines(self, x: float, top: float, lines: Iterable[str], points: float = SMALL_PT, **how: Any) -> float:
        """Lines of text, one below another from `top` on; return where the next one starts."""
        for line in lines:
            self.text(x, top, line, points, va="top", **how)
            top -= figure.line_height(points)
        return top

    def line(self, start: tuple[float, float], end: tuple[float, float], **how: Any) -> None:
        """A straight line on the page."""
        across, up = zip(start, end, strict=True)
        self.figure.add_artist(Line2D(across, up, transform=self.figure.dpi_scale_trans, **how))


def right_of(names: Iterable[str]) -> float:
    """Where axes start whose row names begin at the left margin, in inches."""
    return MARGIN_IN + max(text_width(name, BODY_PT) for name in names) + 0.12


def beside(axes: Axes, words: str, at: tuple[float, float], gap: float = 5.0, up: float = 0.0, **how: Any) -> None:
    """Words that start `gap` points right of a data point; with a negative gap they end left of it, with 0 they are
    centred."""
    side = "center" if gap == 0 else "left" if gap > 0 else "right"
    usual: dict[str, Any] = {"ha": side, "va": "center_baseline", "fontsize": SMALL_PT, "color": INK}
    axes.annotate(words, at, (gap, up), textcoords="offset points", **(usual | how))


def ticks(axis: Axis, locator: Locator | Sequence[float], written: str = "{x:g}") -> None:
    """Ticks where the locator puts them, or at these values, with their values written out; no minor ones."""
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
    return LogLocator(subs=(1, 3) if decades < 2 else (1,), numticks=5)


def page(
    name: str,
    finding: str,
    subtitle: str,
    footer: Sequence[str],
    alt: Iterable[str],
    body_height: float,
    width: float = WIDTH_IN,
) -> Page:
    """A page for a body of that height; title, subtitle and footer are wrapped to fit.

    alt: what the chart is, then what each of its rows says; the alt text ends with the footer as the source.
    """
    what, *rows = alt
    source = [f"Source: {'; '.join(footer)}."] if footer else []
    words = " ".join([f"{what.rstrip('.')}.", *([f"{'; '.join(rows)}."] if rows else []), *source])
    room = 0.98 * (width - 2 * MARGIN_IN)  # drawn at 100 dpi, letters are up to that much wider
    title = figure.wrap(finding, TITLE_PT, room, bold=True)
    below_title = figure.wrap(subtitle, SUBTITLE_PT, room)
    foot = [line for part in footer for line in figure.wrap(part, SMALL_PT, room)]
    head = figure.line_height(TITLE_PT, len(title)) + figure.line_height(SUBTITLE_PT, len(below_title))
    below = MARGIN_IN + figure.line_height(SMALL_PT, len(foot)) + 0.06
    height = MARGIN_IN + head + 0.08 + body_height + below
    new = Page(Chart(name, finding, words, width, height), width, below, body_height)
    top = new.lines(MARGIN_IN, height - MARGIN_IN, title, TITLE_PT, weight="bold")
    new.lines(MARGIN_IN, top, below_title, SUBTITLE_PT, color=MUTED)
    new.lines(MARGIN_IN, below - 0.06, foot, color=MUTED)
    return new
