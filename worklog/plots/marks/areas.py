"""Areas of cells in rows and columns, in one colour."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle
from numpy.typing import NDArray


def areas(is_inside: NDArray[np.bool_]) -> list[Rectangle]:
    """Return the true cells as rectangles. Rows with the same pattern are put together."""
    changes = np.flatnonzero((is_inside[1:] != is_inside[:-1]).any(axis=1)) + 1
    rectangles = []
    for top, bottom in pairwise([0, *changes, len(is_inside)]):
        edges = np.flatnonzero(np.diff(np.r_[False, is_inside[top], False].astype(np.int8)))
        for left, right in zip(edges[::2], edges[1::2], strict=True):
            rectangles.append(
                Rectangle((float(left), float(top)), float(right - left), float(bottom - top))
            )
    return rectangles


def fill(axes: Axes, cells: Iterable[Rectangle], colour: str, opacity: float = 1.0) -> None:
    """Draw rectangles in one colour."""
    axes.add_collection(PatchCollection(list(cells), facecolor=colour, alpha=opacity))
