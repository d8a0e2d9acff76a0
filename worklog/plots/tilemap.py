"""C as a grid of tiles, the wrong ones filled by how wrong they are: where a bug is, which often shows what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.patches import Rectangle

from worklog.plots.figure import ALERT, BODY_PT, FAINT, INK, MARGIN_IN, MUTED, WIDTH_IN, Chart, styled, wrap
from worklog.plots.page import page

if TYPE_CHECKING:
    from worklog.gate.verdict import ErrorMap

SIDE, GAP = 2.0, 0.3  # inches: the longer side of C, and the way to the words
LEFT, ABOVE, BELOW = 0.35, 0.28, 0.1
LEAST = 0.25  # opacity of a tile with a single wrong element, so that it shows


@styled()
def tile_map(where: ErrorMap, label: str = "") -> Chart:
    """The map of C of one failed check (Verdict.where), with the guess in words. label: its source, for the footer."""
    (m, n), (height, width) = where.shape, where.tile
    unit = SIDE / max(m, n)
    wide, high = max(unit * n, 0.4), max(unit * m, 0.4)
    finding = where.guess.rstrip(".") or f"{where.wrong} of {where.checked} elements of C are wrong"
    subtitle = (
        f"C = A·B, {m} × {n}, on exact integers. Tiles of {height} × {width} elements: the darker, the more of them "
        "are wrong."
    )
    alt = [f"Map of C in tiles of {height} by {width}", str(where).rstrip(".")]
    new = page("tile_map", finding, subtitle, [label] if label else [], alt, max(high, 1.0) + ABOVE + BELOW)
    axes = new.axes(MARGIN_IN + LEFT, new.body_top - ABOVE - high, wide, high)
    axes.set(xlim=(0, n), ylim=(m, 0), xticks=[0, n], yticks=[0, m])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[["top", "right"]].set_visible(True)
    for row, shares in enumerate(where.tiles):
        for column, share in enumerate(shares):
            x, y = column * width, row * height
            size = min(width, n - x), min(height, m - y)
            axes.add_patch(Rectangle((x, y), *size, fill=False, edgecolor=FAINT, linewidth=0.4))
            if share:
                axes.add_patch(Rectangle((x, y), *size, facecolor=ALERT, alpha=LEAST + (1 - LEAST) * share))
    left, top = MARGIN_IN + LEFT + wide + GAP, new.body_top - ABOVE
    wrong = f"{where.wrong} of {where.checked} elements wrong"
    for words, colour in ((wrong, INK), (where.rows, MUTED), (where.columns, MUTED)):
        top = new.lines(left, top, wrap(words, BODY_PT, WIDTH_IN - MARGIN_IN - left), BODY_PT, color=colour)
    new.lines(left, top - 0.05, ["rows down, columns across"], color=MUTED)
    return new.figure
