"""Words beside crowded points never meet, and the same points always get the same places."""

from __future__ import annotations

from itertools import combinations
from math import dist

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from worklog.plots.labels import Box, place, stroke

BOUNDS = Box(0, 0, 6, 4)
coordinates = st.tuples(st.floats(0.2, 5.8), st.floats(0.2, 3.8))


@settings(deadline=None, max_examples=15)
@given(st.lists(coordinates, min_size=1, max_size=15))
def test_no_two_labels_meet_and_none_leaves(points: list[tuple[float, float]]) -> None:
    boxes = place(points, [(1.0, 0.15)] * len(points), BOUNDS)
    assert all(a.overlap(b) == 0 for a, b in combinations(boxes, 2))
    inside = BOUNDS.shrunk(-1e-9)
    assert all(inside.x0 <= b.x0 and b.x1 <= inside.x1 and inside.y0 <= b.y0 and b.y1 <= inside.y1 for b in boxes)
    assert boxes == place(points, [(1.0, 0.15)] * len(points), BOUNDS)


def test_points_on_top_of_each_other_get_different_places() -> None:
    boxes = place([(3, 2)] * 8, [(0.9, 0.15)] * 8, BOUNDS)
    assert all(a.overlap(b) == 0 for a, b in combinations(boxes, 2))


def test_a_lone_label_is_right_of_its_point_and_stays_in_at_the_right_edge() -> None:
    [lone] = place([(3, 2)], [(1.0, 0.15)], BOUNDS)
    assert lone.x0 > 3
    [edge] = place([(5.8, 2)], [(1.0, 0.15)], BOUNDS)
    assert edge.x1 <= BOUNDS.x1
    assert 0.04 < dist(edge.nearest((5.8, 2)), (5.8, 2)) < 0.15


def test_labels_keep_off_lines_and_taken_places() -> None:
    [crossing] = place([(3, 2)], [(1.0, 0.15)], BOUNDS, strokes=stroke((3, 2), (6, 2)))
    assert not (crossing.x0 < 4 < crossing.x1 and crossing.y0 < 2 < crossing.y1)
    taken = Box(3.05, 1.5, 6, 2.5)
    [beside] = place([(3, 2)], [(1.0, 0.15)], BOUNDS, taken=[taken])
    assert beside.overlap(taken) == 0


def test_a_stroke_goes_from_end_to_end_in_small_steps() -> None:
    points = stroke((0, 0), (3, 4))
    assert points[0].tolist() == [0, 0]
    assert points[-1].tolist() == [3, 4]
    assert np.hypot(*np.diff(points, axis=0).T).max() < 0.031
