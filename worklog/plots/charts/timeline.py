"""The order of work of a block's warps, as they executed it: copy a tile, multiply it, wait."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.marks import Rows, annotate
from worklog.plots.page import Chart, Texts, page
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

if TYPE_CHECKING:
    from worklog.viewer.accesses import AccessTrace


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
# inches: a row, a part, a wait beyond it, the key below, both sides of a number in its part
PITCH = 0.34
HIGH = 0.22
OVER = 0.03
KEY = 0.36
BESIDE = 0.03


class Part(NamedTuple):
    """A part of a warp's work."""

    work: str  # one of LOOKS
    tile: int | None  # along K
    width: float  # the root of the number of its accesses


@dataclass(frozen=True)
class Box:
    """A part's place on the axes, in inches."""

    left: float
    middle: float
    width: float
    work: str
    tile: int | None = None


Placed = tuple[str, float, Part]  # a row's name, the part's left edge, and the part


def parts(traced: AccessTrace, warp: int) -> list[Part]:
    """Return a warp's work in order.

    Reads of a tile after those of the next tile are left out: they find what was there before, and
    their values aren't used.
    """
    joined = list[Part]()
    multiplied = list[int | None]()
    for (work, tile), group in groupby(_steps(traced, warp)):
        width = 0.8 if work == WAIT else math.sqrt(len([*group]))
        if work != MULTIPLY or tile not in multiplied[:-1]:
            joined.append(Part(work, tile, width))
        if work == MULTIPLY and tile not in multiplied:
            multiplied.append(tile)
    return joined


def _steps(traced: AccessTrace, warp: int) -> Iterator[tuple[str, int | None]]:
    """Yield the work of each step of a warp, and its tile along K if there is one."""
    for step, byte, first_held in traced.steps(warp):
        work = _work(traced, step)
        if work is None:
            continue
        element = None
        if work in (FETCH, COPY):
            element = byte // FLOAT_BYTES
            if traced.document["arrays"][step["array"]] == "B":
                element += traced.document["of_a"]
        elif work in (STORE, MULTIPLY):
            offsets = [offset for offset in step.get("hold", ()) if offset is not None]
            if offsets:
                element = first_held + min(offsets)
        yield work, None if element is None else _tile_of(traced, element)


def _work(traced: AccessTrace, step: dict[str, Any]) -> str | None:
    """Return the work of a step; None for the other end of a copy."""
    if "wait" in step:
        return WAIT
    array = traced.document["arrays"][step["array"]]
    if array in ("A", "B"):
        return COPY if "cop" in step["text"] else FETCH
    if array == "C":
        return WRITE
    if array == "workspace":
        return WRITE_PART
    if step["counts"][2:] == [0, 0] and "lines" not in step:
        return None
    return STORE if step.get("writes") else MULTIPLY


def _tile_of(traced: AccessTrace, element: int) -> int:
    """Return the tile along K of an element: of A, or of B, which is counted after A."""
    matrices = traced.document["matrices"]
    depth: int = traced.kernel.template["BK"]
    elements_of_a = traced.document["of_a"]
    # A block may touch neither.
    _, k, *_ = matrices.get("A", (0, 1))
    _, n, *_ = matrices.get("B", (0, 1))
    if element < elements_of_a:
        return int(element % k) // depth
    return int((element - elements_of_a) // n) // depth


@style.chart
def timeline(traced: AccessTrace) -> Chart:
    """Draw a row for each group of warps that do the same: copy, multiply and wait.

    The order is that in which the emulator executed the work. It isn't a time. Raises NothingToDraw
    for a kernel that reads no tile from shared memory.
    """
    work_of = _groups(traced)
    multiplying = [row for row in work_of if any(part.work == MULTIPLY for part in work_of[row])]
    copying = [row for row in work_of if row not in multiplying]
    if not multiplying:
        name = traced.document["kernel"]
        raise NothingToDraw(f"{name}: no warp reads a tile of A or B from shared memory")
    # Those that only copy first: a multiplication stands behind the copies of its tile.
    in_order = {row: work_of[row] for row in (*copying, *multiplying)}
    places, most_requested = _place_parts(in_order)
    rows = Rows([*work_of], PITCH)
    texts = Texts(
        "timeline",
        finding=_finding(traced.document["kernel"], copying, multiplying, most_requested),
        subtitle="From left to right: an order, not a time. The numbers are tiles along K.",
        footer=[traced.document["about"]],
        alt=_alt(work_of),
    )
    chart = page(texts, rows.height + KEY + OVER)
    width = WIDTH_IN - rows.left - MARGIN_IN
    axes = chart.axes_at(rows.left, chart.body_bottom + KEY, width, rows.height)
    axes.set(xlim=(0, width), xticks=[])
    axes.spines["bottom"].set_visible(False)
    rows.draw_names(axes)
    boxes = _boxes(places, rows, width)
    boxes += _draw_key(axes, boxes, rows.height + 0.2)
    for box in boxes:
        _draw_box(axes, box)
    return chart


def _groups(traced: AccessTrace) -> dict[str, list[Part]]:
    """Return the work of each group of warps that do the same, by the group's name."""
    groups = dict[str, tuple[list[int], list[Part]]]()
    for warp in range(len(traced.document["steps"])):
        row = parts(traced, warp)
        groups.setdefault(_row_text(row), ([], row))[0].append(warp)
    return {_row_name(warps): row for warps, row in groups.values()}


def _finding(
    kernel: str, copying: Sequence[str], multiplying: Sequence[str], most_requested: int
) -> str:
    """Return which warps copy, or how many tiles a warp requests ahead."""
    if copying:
        return f"{kernel}: {' and '.join(copying)} copy, {' and '.join(multiplying)} multiply"
    noun = "tiles" if most_requested > 1 else "tile"
    count = most_requested or "no"
    return f"{kernel}: a warp requests {count} {noun} ahead of the one that it multiplies"


def _alt(work_of: Mapping[str, Sequence[Part]]) -> list[str]:
    """Return the alt text: each row's work in order."""
    alt = ["What the warps of a block do, in order"]
    alt += [f"{name}: {_row_text(row)}" for name, row in work_of.items()]
    return alt


def _row_text(row: Sequence[Part]) -> str:
    """Return a row's parts as a text, for the alt text."""
    return ", ".join(part.work if part.tile is None else f"{part.work} {part.tile}" for part in row)


def _row_name(warps: Sequence[int]) -> str:
    """Return the name of a row of one or more warps."""
    if len(warps) > 1:
        return f"warps {warps[0]}–{warps[-1]}"
    return f"warp {warps[0]}"


def _place_parts(rows: Mapping[str, Sequence[Part]]) -> tuple[list[Placed], int]:
    """Place the parts of all rows.

    Returns the places, and the most tiles that a row has requested ahead of a multiplication.
    """
    most_requested = 0
    arrived = dict[int | None, float]()
    places = list[Placed]()
    for row, row_parts in rows.items():
        left = 0.0
        requested = set[int | None]()
        for part in row_parts:
            if part.work == MULTIPLY:
                left = max(left, arrived.get(part.tile, 0.0))
                requested.discard(part.tile)
                most_requested = max(most_requested, len(requested))
            places.append((row, left, part))
            left += part.width
            if part.work in (FETCH, COPY):
                requested.add(part.tile)
            if part.work in (COPY, STORE):
                arrived[part.tile] = max(left, arrived.get(part.tile, 0.0))
    return places, most_requested


def _boxes(places: Sequence[Placed], rows: Rows, width: float) -> list[Box]:
    """Return the parts' boxes on axes of this width."""
    middles = dict(zip(rows.names, rows.ys, strict=True))
    end = max(left + part.width for _, left, part in places)
    return [
        Box(left / end * width, middles[row], width / end * part.width, part.work, part.tile)
        for row, left, part in places
    ]


def _draw_key(axes: Axes, boxes: Sequence[Box], middle: float) -> list[Box]:
    """Write the names of all kinds of work in these boxes; return the key's boxes."""
    drawn_work = {box.work for box in boxes}
    key = []
    left = 0.0
    for work in LOOKS:
        if work in drawn_work:
            key.append(Box(left, middle, 0.12, work))
            annotate(
                axes,
                work,
                (left + 0.16, middle),
                gap=0,
                ha="left",
                color=MUTED,
                annotation_clip=False,
            )
            left += 0.3 + style.text_width(work, SMALL_PT)
    return key


def _draw_box(axes: Axes, box: Box) -> None:
    """Draw a box with the number of its tile, if there is room; a wait is a line."""
    centre = box.left + box.width / 2
    if box.work == WAIT:
        ends = [box.middle - HIGH / 2 - OVER, box.middle + HIGH / 2 + OVER]
        axes.plot([centre] * 2, ends, color=ALERT, linewidth=1.4, clip_on=False)
        return
    fill, letters = LOOKS[box.work]
    rectangle = Rectangle(
        (box.left, box.middle - HIGH / 2),
        box.width,
        HIGH,
        facecolor=fill,
        edgecolor=MUTED,
        linewidth=0.5,
        clip_on=False,
    )
    axes.add_patch(rectangle)
    if box.tile is None:
        return
    if style.text_width(f"{box.tile}", SMALL_PT) + BESIDE < box.width:
        annotate(axes, f"{box.tile}", (centre, box.middle), gap=0, color=letters)
