"""What the warps of a block do one after the other, as they executed it: copy a tile, multiply it, wait."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Any

from matplotlib.patches import Rectangle

from worklog.plots import style
from worklog.plots.figure import Chart, annotate, name_rows, page, right_of
from worklog.plots.style import (
    ACCENT,
    ALERT,
    FAINT,
    INK,
    MARGIN_IN,
    MUTED,
    PAPER,
    SMALL_PT,
    WIDTH_IN,
)
from worklog.problem import FLOAT_BYTES
from worklog.runs import NothingToDraw

if TYPE_CHECKING:
    from worklog.analysis.accesses import Access

FETCH = "fetch to registers"
COPY = "copy to shared memory"
STORE = "store from registers"
MULTIPLY = "multiply"
WAIT = "wait"
WRITE = "write C"
WRITE_PART = "write a part of C"
# Fill and letters; a wait is a line.
LOOKS = {FETCH: (PAPER, INK), COPY: (FAINT, INK), STORE: (MUTED, PAPER), MULTIPLY: (ACCENT, PAPER)}
LOOKS |= {WAIT: (ALERT, ALERT), WRITE: (INK, PAPER), WRITE_PART: (INK, PAPER)}
# inches: a row, a part, a wait beyond it, the key below
ROW = 0.34
HIGH = 0.22
OVER = 0.03
KEY = 0.36
Part = tuple[
    str, int | None, float
]  # what it does, to which tile along K, and its width, the root of its accesses


def parts(shown: Access, warp: int) -> list[Part]:
    """What a warp does. Reads of a tile after those of the next one are left out: they find what was there before, and
    their values aren't used.
    """
    of = shown.document
    depth = shown.kernel.template["BK"]
    steps = list[tuple[str, int | None]]()
    (_, k, *_), (_, n, *_) = (
        of["matrices"].get(name, (0, 1)) for name in "AB"
    )  # a block may touch neither
    for made, byte, held in shown.steps(warp):
        what = WAIT
        element = None
        if "wait" not in made:
            array = of["arrays"][made["array"]]
            if array in ("A", "B"):
                what = COPY if "cop" in made["text"] else FETCH
                element = byte // FLOAT_BYTES
                element += of["of_a"] * (array == "B")
            elif array in ("C", "workspace"):
                what = WRITE if array == "C" else WRITE_PART
            elif made["counts"][2:] == [0, 0] and "lines" not in made:
                continue  # the other end of a copy
            else:
                what = STORE if made.get("writes") else MULTIPLY
                element = min(
                    (held + offset for offset in made.get("hold", ()) if offset is not None),
                    default=None,
                )
        if element is not None:
            element = (
                element % k if element < of["of_a"] else (element - of["of_a"]) // n
            ) // depth
        steps.append((what, element))
    joined = list[Part]()
    multiplied = list[int | None]()
    for (what, tile), same in groupby(steps):
        if what != MULTIPLY or tile not in multiplied[:-1]:
            joined.append((what, tile, 0.8 if what == WAIT else math.sqrt(len([*same]))))
        if what == MULTIPLY and tile not in multiplied:
            multiplied.append(tile)
    return joined


@style.chart
def timeline(shown: Access) -> Chart:
    """A row for each group of warps that do the same: what they copy, multiply and wait for, in the order in which the
    emulator executed it, which is no time. Raises NothingToDraw for a kernel that reads no tile from shared memory.
    """
    groups = dict[str, tuple[list[int], list[Part]]]()
    name = shown.document["kernel"]
    for warp in range(len(shown.document["steps"])):
        row = parts(shown, warp)
        said = ", ".join(what if tile is None else f"{what} {tile}" for what, tile, _ in row)
        groups.setdefault(said, ([], row))[0].append(warp)
    rows = {
        f"warps {own[0]}–{own[-1]}" if own[1:] else f"warp {own[0]}": row
        for own, row in groups.values()
    }
    multiply = [who for who, row in rows.items() if any(what == MULTIPLY for what, *_ in row)]
    copy = [who for who in rows if who not in multiply]
    ahead = 0
    if not multiply:
        raise NothingToDraw(f"{name}: no warp reads a tile of A or B from shared memory")
    # Those that only copy first: a multiplication stands behind the copies of its tile.
    arrived = dict[int | None, float]()
    placed = list[tuple[str, float, Part]]()
    for who in [*copy, *multiply]:
        x = 0.0
        requested = set[int | None]()
        for what, tile, width in rows[who]:
            if what == MULTIPLY:
                x = max(x, arrived.get(tile, 0.0))
                requested.discard(tile)
                ahead = max(ahead, len(requested))
            placed.append((who, x, (what, tile, width)))
            x += width
            if what in (FETCH, COPY):
                requested.add(tile)
            if what in (COPY, STORE):
                arrived[tile] = max(x, arrived.get(tile, 0.0))
    finding = f"{name}: {' and '.join(copy)} copy, {' and '.join(multiply)} multiply"
    if not copy:
        finding = f"{name}: a warp requests {ahead or 'no'} tile{'s' * (ahead > 1)} ahead of the one that it multiplies"
    subtitle = "From left to right: an order, not a time. The numbers are tiles along K."
    alt = [
        "What the warps of a block do, in order",
        *map(": ".join, zip(rows, groups, strict=True)),
    ]
    high = ROW * len(rows)
    left = right_of(rows)
    end = max(x + width for _, x, (*_, width) in placed)
    new = page("timeline", finding, subtitle, [shown.document["about"]], alt, high + KEY + OVER)
    axes = new.axes_at(left, new.body_bottom + KEY, (wide := WIDTH_IN - left - MARGIN_IN), high)
    axes.set(xlim=(0, wide), xticks=[])
    axes.spines["bottom"].set_visible(False)
    middles = dict(zip(rows, name_rows(axes, [*rows], ROW), strict=True))
    boxes = [
        (x / end * wide, middles[who], wide / end * width, what, tile)
        for who, x, (what, tile, width) in placed
    ]
    x = 0.0
    for what in (what for what in LOOKS if any(what == box[3] for box in boxes)):
        boxes.append((x, high + 0.2, 0.12, what, None))
        annotate(
            axes, what, (x + 0.16, high + 0.2), 0, ha="left", color=MUTED, annotation_clip=False
        )
        x += 0.3 + style.text_width(what, SMALL_PT)
    for x, y, width, what, tile in boxes:
        if what == WAIT:
            where = [y - HIGH / 2 - OVER, y + HIGH / 2 + OVER]
            axes.plot([x + width / 2] * 2, where, color=ALERT, linewidth=1.4, clip_on=False)
            continue
        fill, letters = LOOKS[what]
        how: dict[str, Any] = {
            "facecolor": fill,
            "edgecolor": MUTED,
            "linewidth": 0.5,
            "clip_on": False,
        }
        axes.add_patch(Rectangle((x, y - HIGH / 2), width, HIGH, **how))
        if tile is not None and style.text_width(f"{tile}", SMALL_PT) < width:
            annotate(axes, f"{tile}", (x + width / 2, y), 0, color=letters)
    return new
