"""C as a grid of tiles: which elements of one failed check are wrong. Where a bug is often shows what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from matplotlib.patches import Rectangle

from worklog.plots import figure
from worklog.plots.figure import ALERT, BODY_PT, FAINT, INK, MARGIN_IN, MUTED, WIDTH_IN, Chart
from worklog.plots.page import page

if TYPE_CHECKING:
    from worklog.runs.verdict import ErrorMap

SIDE, LEFT, OVER, UNDER, GAP = 2.0, 0.35, 0.28, 0.1, 0.3  # inches: the longer side of C, and the room around it
LEAST = 0.25  # opacity of a tile with a single wrong element, so that it shows


@figure.styled()
def tile_map(where: ErrorMap, label: str = "", *, name: str = "tile_map", notes: Mapping[str, str] = {}) -> Chart:
    """The map of C of one failed check (Verdict.where), with the guess in words. label: its source, for the footer.
    notes: more to say about the kernel, a sentence by its heading.
    """
    (m, n), (height, width) = where.shape, where.tile
    wide, high = (max(SIDE / max(m, n) * side, 0.4) for side in (n, m))
    wrong = f"{where.wrong} of {where.checked} elements"
    finding = where.guess.rstrip(".") or f"{wrong} of C are wrong"
    subtitle = (
        f"Where the kernel's C is wrong: C = A·B, {m} × {n}, on exact integers, in tiles of {height} × {width}. The "
        "darker a tile, the more of its elements are wrong."
    )
    alt = [f"Map of C in tiles of {height} by {width}", str(where).rstrip(".")]
    said = [(f"{wrong} wrong", INK, ""), (where.rows, MUTED, "")]
    said.append((f"{where.columns} (rows down, columns across)", MUTED, ""))
    for heading, note in notes.items():
        alt.append(f"{heading}: {note.rstrip('.')}")
        said += [("", INK, ""), (heading, INK, "bold"), (note, INK, "")]
    left = MARGIN_IN + LEFT + wide + GAP
    room = WIDTH_IN - MARGIN_IN - left
    lines = [(line, colour, bold) for words, colour, bold in said for line in figure.wrap(words, BODY_PT, room)]
    body = OVER + max(high, 1.0, figure.line_height(BODY_PT, len(lines))) + UNDER
    new = page(name, finding, subtitle, [label] if label else [], alt, body)
    axes = new.axes(MARGIN_IN + LEFT, new.body_top - OVER - high, wide, high)
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
    top = new.body_top - OVER
    for line, colour, bold in lines:
        top = new.lines(left, top, [line], BODY_PT, color=colour, weight=bold or "normal")
    return new.figure
