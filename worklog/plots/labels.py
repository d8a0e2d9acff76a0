"""Where to put the words beside points so that no two overlap: one after the other, in a few rounds, always the same.

All lengths are inches on the page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
from matplotlib.transforms import Bbox
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
