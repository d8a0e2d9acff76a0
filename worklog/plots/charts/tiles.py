"""C as a grid: which thread owns which element, and which elements of one failed check are wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from worklog.plots import style
from worklog.plots.figure import Chart, page
from worklog.plots.style import (
    ACCENT,
    ALERT,
    BODY_PT,
    FAINT,
    INK,
    MARGIN_IN,
    MUTED,
    SMALL_PT,
    WIDTH_IN,
)
from worklog.problem import FLOAT_BYTES
from worklog.runs import NothingToDraw

if TYPE_CHECKING:
    from worklog.runs import ErrorMap
    from worklog.viewer.accesses import Access

WARP = 32
BANKS = 32
PER_SECTOR = 8
# inches: the larger side of C's picture, and the way to the right half
TILE = 2.05
GAP = 0.3
# inches: a float, between sectors, a row of either kind
CELL = 0.056
SPACE = 0.03
ROW = 0.09
BANK = (
    PER_SECTOR * (PER_SECTOR * CELL + SPACE) - SPACE
) / BANKS  # inches: as wide as 8 sectors together
# inches: below each strip, above everything, for the words under C
AFTER = 0.1
ABOVE = 0.12
BELOW = 0.34
WARP_SHADE = 0.3


class Request(NamedTuple):
    """A warp's access. floats: of the buffer or of shared memory, each once."""

    memory: str
    is_store: bool
    in_shared: bool
    width: int
    floats: NDArray[np.int64]
    sectors: int
    wavefronts: int
    conflicts: int


def first_block(of: Access) -> tuple[NDArray[np.int64], dict[tuple[str, bool], Request]]:
    """The thread that stores each element of its tile of C, or -1; and by memory and whether it stores, warp 0's first
    access.
    """
    m, n, *_ = of.document["matrices"].get("C", (0, 0))
    owners = np.full(m * n, -1)
    first = dict[tuple[str, bool], Request]()
    for warp in range(len(of.document["steps"])):
        for kind, byte, _ in of.steps(warp):
            if "lanes" not in kind:
                continue
            lanes = np.array(
                [lane for lane, offset in enumerate(kind["lanes"]) if offset is not None]
            )
            starts = byte + np.array([kind["lanes"][lane] for lane in lanes])
            floats = starts[:, None] // FLOAT_BYTES + np.arange(kind["width"] // FLOAT_BYTES)
            memory = of.document["arrays"][kind["array"]]
            is_store = "writes" in kind
            sectors, _, wavefronts, conflicts = kind["counts"]
            if memory == "C" and is_store:
                owners[floats] = WARP * warp + lanes[:, None]
            if not warp:
                about = memory, is_store, "rows" in kind, kind["width"]
                first.setdefault(
                    (memory, is_store),
                    Request(*about, np.unique(floats), sectors, wavefronts, conflicts),
                )
    return owners.reshape(m, n)[: of.kernel.template["BM"], : of.kernel.template["BN"]], first


@style.chart
def ownership(of: Access) -> Chart:
    """A rung: its first block's tile of C with the elements of the first thread that stores there and of its warp, and
    beside it warp 0's first access to each matrix and each shared array. Raises NothingToDraw where no thread stores.
    """
    owners, requests = first_block(of)
    if (owners < 0).all():
        raise NothingToDraw(
            f"{of.kernel.name}: no thread of its first block stores to C: bulk copies or other blocks write it"
        )
    bm, bn, first = *owners.shape, int(owners[owners >= 0].min())
    scale = TILE / max(bm, bn)
    # Loads of A and B, writes with bank conflicts, reads of shared arrays, and the write of C.
    arrays = dict.fromkeys(request.memory for request in requests.values() if request.in_shared)
    writes = [
        (name, True)
        for name in arrays
        if (name, True) in requests and requests[name, True].conflicts
    ]
    order = [
        ("A", False),
        ("B", False),
        *writes,
        *((name, False) for name in sorted(arrays)),
        ("C", True),
    ]
    shown = [requests[which] for which in order if which in requests]
    strips = [_strip(request) for request in shown]
    words = [_words(request) for request in shown]
    heights = [ROW * len(floats) for floats, _, _ in strips]
    subtitle = (
        f"Left, one block's tile of C: in full colour thread {first}'s elements, pale its warp's."
    )
    if shown:
        banks = (
            ", the 32 banks of shared memory" if any(request.in_shared for request in shown) else ""
        )
        subtitle += (
            f" Right, {'warp 0' if first else 'the warp'}'s first access of each kind, as compiled: sectors of 8 "
            f"floats{banks}; what is used is filled."
        )
    loads = [r for r in shown if not r.is_store]
    passes = [f"{r.memory} in {r.wavefronts}" for r in loads if r.in_shared]
    said = passes or [f"{r.memory} in {r.sectors}" for r in loads]
    finding = (
        f"{of.kernel.name}: a warp reads {', '.join(said)} {'wavefronts' if passes else 'sectors'}"
    )
    if not said:
        finding = f"{of.kernel.name}: warp 0 loads no element of A or B"
    height = ABOVE + max(
        scale * bm + BELOW, sum(heights) + len(shown) * (style.line_height(SMALL_PT) + AFTER)
    )
    new = page("ownership", finding, subtitle, [of.label], [finding, *words], height)
    bottom = new.body_top - ABOVE - scale * bm
    tile = new.axes_at(MARGIN_IN, bottom, scale * bn, scale * bm)
    tile.set(xlim=(0, bn), ylim=(bm, 0), xticks=[], yticks=[])
    tile.spines[["top", "right"]].set_visible(True)
    of_thread = owners == first
    _fill(tile, _runs(owners // WARP == first // WARP), ACCENT, WARP_SHADE)
    _fill(tile, _runs(of_thread), ACCENT)
    own = int(of_thread.sum())
    under = [f"{bm} × {bn} of C, {of.kernel.thread_count} threads"]
    under += [f"{own} element{'s' if own > 1 else ''} per thread, {own * WARP} per warp"]
    new.write(MARGIN_IN, bottom - 0.05, under, color=MUTED)
    left = MARGIN_IN + TILE + GAP
    top = new.body_top - ABOVE
    for request, (floats, lefts, wide), line, high in zip(
        shown, strips, words, heights, strict=True
    ):
        top = new.write(left, top, [line], color=ALERT if request.conflicts else INK) - high
        axes = new.axes_at(left, top, WIDTH_IN - left, high)
        axes.set(xlim=(0, WIDTH_IN - left), ylim=(high, 0))
        axes.set_axis_off()
        for kind, colour in ((1, FAINT), (2, ALERT if request.conflicts else ACCENT)):
            places = np.argwhere(floats == kind).tolist()
            _fill(
                axes,
                [Rectangle((lefts[column], ROW * row), wide, 0.75 * ROW) for row, column in places],
                colour,
            )
        top -= AFTER
    return new


def _runs(owned: NDArray[np.bool_]) -> list[Rectangle]:
    """The true elements as rectangles, rows with the same pattern put together."""
    rectangles = []
    for top, bottom in pairwise(
        [0, *(np.flatnonzero((owned[1:] != owned[:-1]).any(axis=1)) + 1), len(owned)]
    ):
        edges = np.flatnonzero(np.diff(np.r_[False, owned[top], False].astype(np.int8)))
        for left, right in zip(edges[::2], edges[1::2], strict=True):
            rectangles.append(
                Rectangle((float(left), float(top)), float(right - left), float(bottom - top))
            )
    return rectangles


def _strip(request: Request) -> tuple[NDArray[np.signedinteger], NDArray[np.float64], float]:
    """The floats of an access in rows: 2 where the warp uses one, 1 where it doesn't, 0 for no float; where each column
    starts and how wide it is, inches. Global memory: the sectors that it touches, 8 in a row. Shared memory: a column
    per bank, its different words below each other.
    """
    words = request.floats
    if request.in_shared:
        depths = np.bincount(words % BANKS, minlength=BANKS)
        return (
            np.int64(1) + (np.arange(depths.max())[:, None] < depths),
            BANK * np.arange(float(BANKS)),
            0.9 * BANK,
        )
    sectors, sector = np.unique(words // PER_SECTOR, return_inverse=True)
    floats = np.zeros(PER_SECTOR * 8 * -(-len(sectors) // 8), np.int64)
    floats[: PER_SECTOR * len(sectors)] = 1
    floats[PER_SECTOR * sector + words % PER_SECTOR] = 2
    columns = np.arange(8.0 * PER_SECTOR)
    return (
        floats.reshape(-1, len(columns)),
        CELL * columns + SPACE * (columns // PER_SECTOR),
        0.88 * CELL,
    )


def _fill(axes: Axes, cells: Iterable[Rectangle], colour: str, alpha: float = 1.0) -> None:
    axes.add_collection(PatchCollection(list(cells), facecolor=colour, alpha=alpha))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count > 1)}"


def _words(request: Request) -> str:
    floats = len(request.floats)
    several = f"{floats} floats" if floats > 1 else "1 float for all"
    words = f"{'write' if request.is_store else 'load'} of {request.memory}, {request.width} bytes per lane: {several}"
    if request.in_shared:
        conflicts = f", {request.conflicts} of them for bank conflicts" if request.conflicts else ""
        return f"{words}, {_counted(request.wavefronts, 'wavefront')}{conflicts}"
    share = 100 * floats / (PER_SECTOR * request.sectors)
    return f"{words} in {_counted(request.sectors, 'sector')}, {share:.3g} % used"


# inches: the longer side of C, and the room around it
SIDE = 2.0
LEFT = 0.35
OVER = 0.28
UNDER = 0.1
BESIDE = 0.3
LEAST = 0.25  # opacity of a tile with a single wrong element, so that it shows


@style.chart
def tile_map(
    where: ErrorMap, label: str = "", *, name: str = "tile_map", notes: Mapping[str, str] = {}
) -> Chart:
    """The map of C of one failed check (Verdict.where), with the guess in words. label: its source, for the footer.
    notes: more to say about the kernel, a sentence by its heading.
    """
    (m, n) = where.shape
    (height, width) = where.tile
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
    left = MARGIN_IN + LEFT + wide + BESIDE
    room = WIDTH_IN - MARGIN_IN - left
    lines = [
        (line, colour, bold)
        for words, colour, bold in said
        for line in style.wrap(words, BODY_PT, room)
    ]
    body = OVER + max(high, 1.0, style.line_height(BODY_PT, len(lines))) + UNDER
    new = page(name, finding, subtitle, [label] if label else [], alt, body)
    axes = new.axes_at(MARGIN_IN + LEFT, new.body_top - OVER - high, wide, high)
    axes.set(xlim=(0, n), ylim=(m, 0), xticks=[0, n], yticks=[0, m])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[["top", "right"]].set_visible(True)
    for row, shares in enumerate(where.tiles):
        for column, share in enumerate(shares):
            x = column * width
            y = row * height
            size = min(width, n - x), min(height, m - y)
            axes.add_patch(Rectangle((x, y), *size, fill=False, edgecolor=FAINT, linewidth=0.4))
            if share:
                axes.add_patch(
                    Rectangle((x, y), *size, facecolor=ALERT, alpha=LEAST + (1 - LEAST) * share)
                )
    top = new.body_top - OVER
    for line, colour, bold in lines:
        top = new.write(left, top, [line], BODY_PT, color=colour, weight=bold or "normal")
    return new
