"""Words beside crowded points never meet, and the same points always get the same places."""

from __future__ import annotations

from itertools import combinations
from math import dist

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.transforms import Bbox

from worklog.plots.page import Point, Points, nearest, place, stroke

BOUNDS = Bbox.from_extents(0, 0, 6, 4)
coordinates = st.tuples(st.floats(0.2, 5.8), st.floats(0.2, 3.8))


def placed(*points: Point, taken: tuple[Bbox, ...] = (), strokes: Points = np.empty((0, 2))) -> list[Bbox]:  # noqa: B008
    return place(points, [(1.0, 0.15)] * len(points), BOUNDS, taken, strokes)


@settings(deadline=None, max_examples=8)
@given(st.lists(coordinates, min_size=1, max_size=15))
def test_no_two_labels_meet_and_none_leaves(points: list[Point]) -> None:
    boxes = placed(*points)
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    assert Bbox.union([BOUNDS.padded(1e-9), *boxes]).extents.tolist() == BOUNDS.padded(1e-9).extents.tolist()
    assert np.array_equal(boxes, placed(*points))


def test_points_on_top_of_each_other_get_different_places() -> None:
    assert not any(a.overlaps(b) for a, b in combinations(placed(*[(3, 2)] * 8), 2))


def test_a_lone_label_is_right_of_its_point_and_stays_in_at_the_right_edge() -> None:
    [lone], [edge] = placed((3, 2)), placed((5.8, 2))
    assert lone.x0 > 3 and edge.x1 <= BOUNDS.x1
    assert 0.04 < dist(nearest(edge, (5.8, 2)), (5.8, 2)) < 0.15


def test_labels_keep_off_lines_and_taken_places() -> None:
    [crossing] = placed((3, 2), strokes=stroke((3, 2), (6, 2)))
    assert not crossing.contains(4, 2)
    taken = Bbox.from_extents(3.05, 1.5, 6, 2.5)
    [beside] = placed((3, 2), taken=(taken,))
    assert not beside.overlaps(taken)
