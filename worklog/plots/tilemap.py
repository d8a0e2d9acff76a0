"""C as a grid of tiles, the wrong ones filled by how wrong they are: where a bug is, which is mostly what it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from matplotlib.collections import PolyCollection

from worklog.plots.figure import Chart
from worklog.plots.page import page
from worklog.plots.style import (
    BODY_PT,
    FAINT,
    INK,
    LIE,
    MARGIN_IN,
    MUTED,
    SMALL_PT,
    WIDTH_IN,
    line_height,
    styled,
    wrap,
)

if TYPE_CHECKING:
    from worklog.gate.error_map import ErrorMap as Where

SIDE, GAP = 2.0, 0.3  # inches: the longer side of C, and the way to the words
LEFT, ABOVE, BELOW = 0.35, 0.28, 0.1
LEAST = 0.25  # opacity of a tile with a single wrong element, so that it shows


@styled()
def tile_map(where: Where, label: str = "") -> Chart:
    """One refusal's map of C (Verdict.where), with the guess in words. label: where it ran, for the footer."""
    m, n = where.shape
    unit = SIDE / max(m, n)
    wide, high = max(unit * n, 0.4), max(unit * m, 0.4)
    finding = where.guess.rstrip(".") or f"{where.wrong} of {where.checked} elements of C are wrong"
    subtitle = (
        f"C = A·B, {m} × {n}, on exact integers. Tiles of {where.tile[0]} × {where.tile[1]} elements, the fuller the "
        "more of them are wrong."
    )
    new = page(
        "tile_map", finding, subtitle, [label] if label else [], _alt(where, label), max(high, 1.0) + ABOVE + BELOW
    )
    bottom = new.body_top - ABOVE - high
    axes = new.axes(MARGIN_IN + LEFT, bottom, wide, high)
    axes.set(xlim=(0, n), ylim=(m, 0), xticks=[0, n], yticks=[0, m])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[["top", "right"]].set_visible(True)
    for (x, y, x1, y1), share in _cells(where):
        corners = [[(x, y), (x1, y), (x1, y1), (x, y1)]]
        axes.add_collection(PolyCollection(corners, facecolor="none", edgecolor=FAINT, linewidth=0.4))
        if share:
            alpha = LEAST + (1 - LEAST) * share
            axes.add_collection(PolyCollection(corners, facecolor=LIE, alpha=alpha, linewidth=0))
    left = MARGIN_IN + LEFT + wide + GAP
    told = [(f"{where.wrong} of {where.checked} elements wrong", INK), (where.rows, MUTED), (where.columns, MUTED)]
    top = new.body_top - ABOVE
    for words, colour in told:
        for line in wrap(words, BODY_PT, WIDTH_IN - MARGIN_IN - left):
            new.text(left, top, line, BODY_PT, va="top", color=colour)
            top -= line_height(BODY_PT)
    new.text(left, top - 0.05, "rows down, columns across", SMALL_PT, va="top", color=MUTED)
    return new.figure


def _cells(where: Where) -> Iterator[tuple[tuple[int, int, int, int], float]]:
    """Each tile's corners in elements, and the share of it that is wrong."""
    (m, n), (height, width) = where.shape, where.tile
    for row, shares in enumerate(where.tiles):
        for column, share in enumerate(shares):
            x, y = column * width, row * height
            yield (x, y, min(n, x + width), min(m, y + height)), share


def _alt(where: Where, label: str) -> str:
    source = f" Source: {label}." if label else ""
    return f"Map of C in tiles of {where.tile[0]} by {where.tile[1]}. {where}.{source}".replace("..", ".")
