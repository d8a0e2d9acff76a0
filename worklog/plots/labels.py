"""Where to put the words beside points so that no two overlap: one after the other, in a few rounds, always the same.

All lengths are inches on the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

Point = tuple[float, float]
Points = NDArray[np.float64]

# A label is beside its point, this far away and this much higher or lower, or straight above or below it.
ACROSS = (0.09, 0.2, 0.34, 0.5, 0.75, 1.1)
HEIGHTS = tuple(sorted((0.07 * n for n in range(-15, 16)), key=abs))
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


def stroke(start: Point, end: Point, step: float = 0.03) -> Points:
    """A line as points close together, (n, 2), for `place` to keep words off it."""
    n = max(2, math.ceil(math.dist(start, end) / step))
    return np.column_stack([np.linspace(a, b, n) for a, b in zip(start, end, strict=True)])


def place(
    anchors: Sequence[Point],
    sizes: Sequence[Point],
    bounds: Box,
    taken: Sequence[Box] = (),
    strokes: Points | None = None,
) -> list[Box]:
    """A rectangle of each size near its anchor: inside the bounds, off the taken places and each other.

    Strokes are lines to keep off where that does not lead too far away.
    """
    lines = np.empty((0, 2)) if strokes is None else strokes
    candidates = [_candidates(anchor, size, bounds) for anchor, size in zip(anchors, sizes, strict=True)]
    from_the_top = sorted(enumerate(anchors), key=lambda one: -one[1][1])  # so that their lines do not cross
    placed: dict[int, Box] = {}
    for _ in range(ROUNDS):
        for index, anchor in from_the_top:
            others = {i: box for i, box in placed.items() if i != index}
            leaders = [stroke(anchors[i], box.nearest(anchors[i])) for i, box in others.items()]
            occupied = np.array([astuple(box) for box in (*taken, *others.values())]).reshape(-1, 4)
            costs = _costs(np.array(anchor), candidates[index], occupied, np.concatenate([lines, *leaders]))
            placed[index] = Box(*candidates[index][costs.argmin()].tolist())
    return [placed[index] for index in range(len(anchors))]


def _candidates(anchor: Point, size: Point, bounds: Box) -> Points:
    """Rectangles around the anchor, (n, 4), pushed back into the bounds: right and left of it, above and below."""
    half = np.array(size) / 2
    offsets = [(side * (gap + half[0]), up) for gap, side, up in product(ACROSS, (1, -1), HEIGHTS)]
    offsets += [(0.0, side * (gap + half[1])) for gap, side in product(ACROSS, (1, -1))]
    low, high = np.array([bounds.x0, bounds.y0]) + half, np.array([bounds.x1, bounds.y1]) - half
    centres = np.minimum(np.maximum(np.array(anchor) + np.array(offsets), low), high)
    return np.hstack([centres - half, centres + half])


def _costs(anchor: Points, boxes: Points, occupied: Points, ink: Points) -> Points:
    """Overlaps weigh more than any distance; a line to the anchor, lines under the words, and words under the line to
    the anchor, weigh as much as some distance."""
    nearest = np.clip(anchor, boxes[:, :2], boxes[:, 2:])
    distance = np.hypot(*(nearest - anchor).T)
    shared = np.minimum(boxes[:, None, 2:], occupied[:, 2:]) - np.maximum(boxes[:, None, :2], occupied[:, :2]) + GAP
    overlap = np.maximum(shared, 0).prod(axis=2).sum(axis=1)
    leader = anchor + (nearest - anchor)[:, None] * np.linspace(0.35, 1, 12)[:, None]
    far = distance > FAR
    lined = far * (0.2 + 0.32 * _inside(leader[:, :, None], occupied).sum(axis=(1, 2)))
    crossed = _inside(ink, boxes[:, None]).sum(axis=1)
    costs: Points = 1e5 * overlap + 1e3 * (distance < NEAR) + distance + lined + 0.08 * crossed
    return costs


def _inside(points: Points, boxes: Points) -> NDArray[np.bool_]:
    """Which points, (…, 2), are inside which boxes, (…, 4)."""
    inside: NDArray[np.bool_] = np.all((points > boxes[..., :2]) & (points < boxes[..., 2:]), axis=-1)
    return inside
