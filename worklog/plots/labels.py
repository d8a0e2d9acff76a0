"""Where to put the words beside points so that no two overlap: greedy, in the order given, and the same every time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float]

DISTANCES = (0.08, 0.13, 0.2, 0.3, 0.42, 0.56, 0.72, 0.9, 1.1, 1.4, 1.8, 2.3)
# Right first, then left, above and below, then between: what a reader expects beside a point.
DIRECTIONS = tuple(math.radians(degrees) for degrees in (0, 180, 90, 270, 30, 330, 150, 210, 60, 300, 120, 240))
GAP = 0.03


@dataclass(frozen=True)
class Box:
    """A rectangle on the page, in inches."""

    x0: float
    y0: float
    x1: float
    y1: float

    def overlap(self, other: Box) -> float:
        """Area that both cover, with a small gap around them."""
        wide = min(self.x1, other.x1) - max(self.x0, other.x0) + GAP
        high = min(self.y1, other.y1) - max(self.y0, other.y0) + GAP
        return wide * high if wide > 0 and high > 0 else 0.0

    def outside(self, bounds: Box) -> float:
        """How far this sticks out of the bounds."""
        return max(bounds.x0 - self.x0, self.x1 - bounds.x1, bounds.y0 - self.y0, self.y1 - bounds.y1, 0.0)

    def shrunk(self, by: float) -> Box:
        """The same rectangle with its edges moved in."""
        return Box(self.x0 + by, self.y0 + by, self.x1 - by, self.y1 - by)

    @property
    def centre(self) -> Point:
        """Its middle."""
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2

    def nearest(self, point: Point) -> Point:
        """The point of this rectangle that is nearest to another."""
        return min(max(point[0], self.x0), self.x1), min(max(point[1], self.y0), self.y1)


def stroke(start: Point, end: Point, step: float = 0.03) -> NDArray[np.float64]:
    """A line as points close together, (n, 2), for `place` to keep words off it."""
    n = max(2, math.ceil(math.dist(start, end) / step))
    return np.column_stack([np.linspace(a, b, n) for a, b in zip(start, end, strict=True)])


def place(
    anchors: Sequence[Point],
    sizes: Sequence[Point],
    bounds: Box,
    taken: Sequence[Box] = (),
    strokes: NDArray[np.float64] | None = None,
) -> list[Box]:
    """A rectangle of each size near its anchor, in inches: inside the bounds, off the taken places and each other.

    Strokes are lines to keep off where that does not lead too far away.
    """
    ink = np.empty((0, 2)) if strokes is None else strokes
    placed: list[Box] = []
    for anchor, size in zip(anchors, sizes, strict=True):
        candidates = [(_box(anchor, size, d, a), d + 0.004 * i) for d in DISTANCES for i, a in enumerate(DIRECTIONS)]
        occupied = [*taken, *placed]
        costs = [_cost(anchor, box, cost, bounds, occupied, ink) for box, cost in candidates]
        best = candidates[int(np.argmin(costs))][0]
        placed.append(best)
        ink = np.concatenate([ink, stroke(anchor, best.nearest(anchor))])
    return placed


def _box(anchor: Point, size: Point, distance: float, angle: float) -> Box:
    """The rectangle whose edge is that far from the anchor in that direction."""
    x = anchor[0] + math.cos(angle) * (distance + size[0] / 2 * abs(math.cos(angle)))
    y = anchor[1] + math.sin(angle) * (distance + size[1] / 2)
    return Box(x - size[0] / 2, y - size[1] / 2, x + size[0] / 2, y + size[1] / 2)


def _cost(
    anchor: Point, box: Box, distance: float, bounds: Box, occupied: Sequence[Box], ink: NDArray[np.float64]
) -> float:
    """Overlaps and leaving the bounds weigh more than any distance; lines under the words, and words under the line to
    the anchor, weigh as much as some distance."""
    forbidden = 1e4 * box.outside(bounds) + 1e5 * sum(box.overlap(other) for other in occupied)
    leader = stroke(anchor, box.nearest(anchor))[3:]
    crossed = _inside(ink, box) + 4 * sum(_inside(leader, other) for other in occupied)
    return forbidden + distance + 0.08 * crossed


def _inside(points: NDArray[np.float64], box: Box) -> int:
    x, y = points[:, 0], points[:, 1]
    return int(np.count_nonzero((x > box.x0) & (x < box.x1) & (y > box.y0) & (y < box.y1)))
