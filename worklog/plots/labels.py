"""Where to put the words beside points so that no two overlap: one after the other, in a few rounds, always the same.

All lengths are inches on the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float]

DISTANCES = (0.08, 0.13, 0.2, 0.3, 0.42, 0.56, 0.72, 0.9, 1.1, 1.4, 1.8, 2.3)
# Right first, then left, above and below, then between: what a reader expects beside a point.
DIRECTIONS = tuple(
    math.radians(degrees)
    for degrees in (
        0,
        180,
        90,
        270,
        *range(15, 90, 15),
        *range(345, 270, -15),
        *range(105, 180, 15),
        *range(255, 180, -15),
    )
)
GAP = 0.03
NEAR = 0.04  # words closer than this to what they name touch it
FAR = 0.17  # a label further from its point than this needs a line to it
ROUNDS = 3  # after the first, each label is placed again, now that the others are known


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
    lines = np.empty((0, 2)) if strokes is None else strokes
    placed: list[Box | None] = [None] * len(anchors)
    for _ in range(ROUNDS):
        for index, (anchor, size) in enumerate(zip(anchors, sizes, strict=True)):
            others = [(at, box) for i, (at, box) in enumerate(zip(anchors, placed, strict=True)) if box and i != index]
            occupied = [*taken, *(box for _, box in others)]
            ink = np.concatenate([lines, *(stroke(at, box.nearest(at)) for at, box in others)])
            candidates = _candidates(anchor, size, bounds)
            costs = [_cost(anchor, box, distance, occupied, ink) for box, distance in candidates]
            placed[index] = candidates[int(np.argmin(costs))][0]
    return [box for box in placed if box]


def _candidates(anchor: Point, size: Point, bounds: Box) -> list[tuple[Box, float]]:
    """Rectangles around the anchor, pushed back into the bounds, with how little a reader would like each."""
    found = []
    for distance in DISTANCES:
        for rank, angle in enumerate(DIRECTIONS):
            x = anchor[0] + math.cos(angle) * (distance + size[0] / 2 * abs(math.cos(angle)))
            y = anchor[1] + math.sin(angle) * (distance + size[1] / 2)
            x = min(max(x, bounds.x0 + size[0] / 2), bounds.x1 - size[0] / 2)
            y = min(max(y, bounds.y0 + size[1] / 2), bounds.y1 - size[1] / 2)
            found.append((Box(x - size[0] / 2, y - size[1] / 2, x + size[0] / 2, y + size[1] / 2), 0.002 * rank))
    return found


def _cost(anchor: Point, box: Box, dislike: float, occupied: Sequence[Box], ink: NDArray[np.float64]) -> float:
    """Overlaps weigh more than any distance; a line to the anchor, lines under the words, and words under the line to
    the anchor, weigh as much as some distance."""
    distance = math.dist(anchor, box.nearest(anchor))
    forbidden = 1e5 * sum(box.overlap(other) for other in occupied) + 1e3 * (distance < NEAR)
    crossed = _inside(ink, box)
    if distance > FAR and not forbidden:
        leader = stroke(anchor, box.nearest(anchor))[3:]
        crossed += 4 * sum(_inside(leader, other) for other in occupied)
    return forbidden + distance + dislike + 0.2 * (distance > FAR) + 0.08 * crossed


def _inside(points: NDArray[np.float64], box: Box) -> int:
    x, y = points[:, 0], points[:, 1]
    return int(np.count_nonzero((x > box.x0) & (x < box.x1) & (y > box.y0) & (y < box.y1)))
