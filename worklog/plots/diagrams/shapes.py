"""What the diagrams are drawn with: boxes, words that fit them, arrows, wires and marks, in inches on the page.

A diagram says where its boxes are; nothing here decides a place. Text is measured before it is drawn, so that a box
can be made as high as its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import dist
from typing import Any

from matplotlib.patches import Circle, FancyBboxPatch, PathPatch, Polygon
from matplotlib.path import Path

from worklog.plots.labels import Box, Point
from worklog.plots.page import Page
from worklog.plots.style import ACCENT, BODY_PT, INK, MUTED, PALE, PAPER, SMALL_PT, TINT, line_height, wrap

PAD = 0.09
CORNER = 0.06
HEAD = 0.085  # length of an arrow's head
BADGE = 0.095


@dataclass(frozen=True)
class Say:
    """Words in one look; wrapped where they are too wide."""

    words: str
    points: float = BODY_PT
    colour: str = INK
    bold: bool = False


def title(words: str, colour: str = INK) -> Say:
    """The name of a box."""
    return Say(words, BODY_PT, colour, bold=True)


def small(words: str, colour: str = MUTED) -> Say:
    """What is said about it."""
    return Say(words, SMALL_PT, colour)


def lines(parts: Sequence[Say], width: float) -> list[Say]:
    """The parts, one a line, none wider than `width` inches."""
    return [
        Say(line, part.points, part.colour, part.bold)
        for part in parts
        if part.words
        for line in wrap(part.words, part.points, width, bold=part.bold)
    ]


def height(parts: Sequence[Say], width: float) -> float:
    """Inches that the parts take when wrapped to `width`."""
    return sum(line_height(line.points) for line in lines(parts, width))


def card_height(parts: Sequence[Say], width: float) -> float:
    """Inches that a card of this width takes with the parts in it."""
    return height(parts, width - 2 * PAD) + 2 * PAD


class Canvas:
    """The body of a page as a drawing: x from the page's left edge, y down from the body's upper edge, in inches."""

    def __init__(self, page: Page) -> None:
        self.width = page.width
        self.axes = page.axes(0, page.body_bottom, page.width, page.body_height)
        self.axes.set_xlim(0, page.width)
        self.axes.set_ylim(page.body_height, 0)
        self.axes.set_axis_off()

    def box(self, box: Box, fill: str = PAPER, edge: str = MUTED, *, width: float = 0.8, dashed: bool = False) -> None:
        """A rectangle with slightly round corners."""
        radius = min(CORNER, (box.x1 - box.x0) / 2, (box.y1 - box.y0) / 2)
        style = f"round,pad=0,rounding_size={radius}"
        shape = FancyBboxPatch((box.x0, box.y0), box.x1 - box.x0, box.y1 - box.y0, boxstyle=style)
        shape.set(facecolor=fill, edgecolor=edge, linewidth=width, linestyle=(0, (3, 2)) if dashed else "-", zorder=1)
        self.axes.add_patch(shape)

    def words(self, x: float, y: float, words: str, points: float = BODY_PT, **how: Any) -> None:
        """One line of text; y is its upper edge unless `va` says otherwise."""
        self.axes.text(x, y, words, fontsize=points, zorder=5, **({"va": "top", "color": INK} | how))

    def say(self, x: float, y: float, parts: Sequence[Say], width: float, ha: str = "left") -> float:
        """Parts one under the other, wrapped; the y below them."""
        for line in lines(parts, width):
            weight = "bold" if line.bold else "normal"
            middle = y + line_height(line.points) / 2
            self.words(x, middle, line.words, line.points, color=line.colour, weight=weight, ha=ha, va="center")
            y += line_height(line.points)
        return y

    def card(self, box: Box, parts: Sequence[Say], *, ours: bool = False, ha: str = "left", **look: Any) -> None:
        """A box with words in the middle of its height."""
        self.box(box, **({"fill": TINT if ours else PALE, "edge": ACCENT if ours else MUTED} | look))
        room = box.x1 - box.x0 - 2 * PAD
        x = box.x0 + PAD if ha == "left" else box.centre[0]
        self.say(x, box.centre[1] - height(parts, room) / 2, parts, room, ha)

    def wire(self, *points: Point, colour: str = MUTED, width: float = 1.1, dashed: bool = False) -> None:
        """A line through the points, round at its corners."""
        codes, path = [Path.MOVETO], [points[0]]
        for before, corner, after in zip(points, points[1:], points[2:], strict=False):
            radius = min(0.08, dist(before, corner) / 2, dist(corner, after) / 2)
            path += [_towards(corner, before, radius), corner, _towards(corner, after, radius)]
            codes += [Path.LINETO, Path.CURVE3, Path.CURVE3]
        path.append(points[-1])
        codes.append(Path.LINETO)
        line = PathPatch(Path(path, codes), fill=False, edgecolor=colour, linewidth=width, capstyle="butt", zorder=2)
        line.set_linestyle((0, (3, 2)) if dashed else "-")
        self.axes.add_patch(line)

    def arrow(self, *points: Point, colour: str = MUTED, width: float = 1.1, dashed: bool = False) -> None:
        """A wire with a head at its last point."""
        tip, before = points[-1], points[-2]
        base = _towards(tip, before, HEAD)
        self.wire(*points[:-1], base, colour=colour, width=width, dashed=dashed)
        along = ((tip[0] - base[0]) / HEAD, (tip[1] - base[1]) / HEAD)
        side = (-along[1] * HEAD * 0.42, along[0] * HEAD * 0.42)
        corners = [tip, (base[0] + side[0], base[1] + side[1]), (base[0] - side[0], base[1] - side[1])]
        self.axes.add_patch(Polygon(corners, closed=True, facecolor=colour, zorder=3))

    def dot(self, x: float, y: float, radius: float = 0.035, *, fill: str = ACCENT, edge: str | None = None) -> None:
        """A small circle."""
        self.axes.add_patch(Circle((x, y), radius, facecolor=fill, edgecolor=edge or fill, linewidth=0.9, zorder=4))

    def badge(self, x: float, y: float, words: str, colour: str = MUTED) -> None:
        """A number in a filled circle."""
        self.dot(x, y, BADGE, fill=colour)
        self.words(x, y, words, SMALL_PT, color=PAPER, weight="bold", ha="center", va="center_baseline")

    def rectangle(self, box: Box, fill: str, edge: str = "none", width: float = 0.0) -> None:
        """A bar: sharp corners, no edge unless asked for."""
        corners = [(box.x0, box.y0), (box.x1, box.y0), (box.x1, box.y1), (box.x0, box.y1)]
        self.axes.add_patch(Polygon(corners, closed=True, facecolor=fill, edgecolor=edge, linewidth=width, zorder=2))


def _towards(start: Point, end: Point, by: float) -> Point:
    """The point `by` inches from start on the way to end."""
    share = by / dist(start, end)
    return start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])
