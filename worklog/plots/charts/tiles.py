"""C as a grid: which thread owns which element, and which elements of one failed check are wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from worklog.errors import NothingToDraw
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
# inches: as wide as 8 sectors together
BANK = (PER_SECTOR * (PER_SECTOR * CELL + SPACE) - SPACE) / BANKS
# inches: below each strip, above everything, for the texts under C
AFTER = 0.1
ABOVE = 0.12
BELOW = 0.34
WARP_SHADE = 0.3


class Request(NamedTuple):
    """A warp's access to a matrix or a shared array."""

    memory: str  # the name of the matrix or array
    is_store: bool
    in_shared: bool
    width: int  # bytes per lane
    floats: NDArray[np.int64]  # indices in the buffer or in shared memory, each once
    sectors: int
    wavefronts: int
    conflicts: int  # wavefronts that bank conflicts add


class Strip(NamedTuple):
    """The picture of a request: rows of floats."""

    floats: NDArray[np.signedinteger]  # 2: the warp uses it; 1: it doesn't; 0: no float
    lefts: NDArray[np.float64]  # the left edge of each column, in inches
    width: float  # of a column, in inches

    @property
    def height(self) -> float:
        """The height of all rows, in inches."""
        return ROW * len(self.floats)


def first_block(
    traced: Access,
) -> tuple[NDArray[np.int64], dict[tuple[str, bool], Request]]:
    """Return the owners of the block's tile of C, and warp 0's first accesses.

    An owner is the thread that stores the element, or -1. The accesses are by memory and by whether
    they store.
    """
    m, n, *_ = traced.document["matrices"].get("C", (0, 0))
    owners = np.full(m * n, -1)
    first = dict[tuple[str, bool], Request]()
    for warp in range(len(traced.document["steps"])):
        for step, byte, _ in traced.steps(warp):
            if "lanes" not in step:
                continue
            lanes = np.array(
                [lane for lane, offset in enumerate(step["lanes"]) if offset is not None]
            )
            starts = byte + np.array([step["lanes"][lane] for lane in lanes])
            floats = starts[:, None] // FLOAT_BYTES + np.arange(step["width"] // FLOAT_BYTES)
            memory = traced.document["arrays"][step["array"]]
            is_store = "writes" in step
            if memory == "C" and is_store:
                owners[floats] = WARP * warp + lanes[:, None]
            if warp == 0 and (memory, is_store) not in first:
                sectors, _, wavefronts, conflicts = step["counts"]
                first[memory, is_store] = Request(
                    memory,
                    is_store,
                    "rows" in step,
                    step["width"],
                    np.unique(floats),
                    sectors,
                    wavefronts,
                    conflicts,
                )
    template = traced.kernel.template
    return owners.reshape(m, n)[: template["BM"], : template["BN"]], first


@style.chart
def ownership(traced: Access) -> Chart:
    """Draw a rung's first block: its tile of C, and warp 0's first accesses.

    The tile shows the elements of the first thread that stores there and of its warp. Right of it
    are warp 0's first access to each matrix and each shared array. Raises NothingToDraw if no
    thread stores.
    """
    kernel = traced.kernel
    owners, requests = first_block(traced)
    if (owners < 0).all():
        raise NothingToDraw(
            f"{kernel.name}: no thread of its first block stores to C: bulk copies or other blocks write it"
        )
    rows, columns = owners.shape
    thread = int(owners[owners >= 0].min())
    scale = TILE / max(rows, columns)
    drawn = _in_drawn_order(requests)
    strips = [_strip(request) for request in drawn]
    texts = [_request_text(request) for request in drawn]
    finding = _ownership_finding(kernel.name, drawn)
    strips_height = sum(strip.height for strip in strips)
    strips_height += len(drawn) * (style.line_height(SMALL_PT) + AFTER)
    height = ABOVE + max(scale * rows + BELOW, strips_height)
    subtitle = _ownership_subtitle(thread, drawn)
    chart = page("ownership", finding, subtitle, [traced.label], [finding, *texts], height)
    bottom = chart.body_top - ABOVE - scale * rows
    tile = chart.axes_at(MARGIN_IN, bottom, scale * columns, scale * rows)
    _draw_tile(tile, owners, thread)
    own_count = int((owners == thread).sum())
    below_tile = [
        f"{rows} × {columns} of C, {kernel.thread_count} threads",
        f"{_counted(own_count, 'element')} per thread, {own_count * WARP} per warp",
    ]
    chart.write(MARGIN_IN, bottom - 0.05, below_tile, color=MUTED)
    left = MARGIN_IN + TILE + GAP
    top = chart.body_top - ABOVE
    for request, strip, text in zip(drawn, strips, texts, strict=True):
        colour = ALERT if request.conflicts else INK
        top = chart.write(left, top, [text], color=colour) - strip.height
        axes = chart.axes_at(left, top, WIDTH_IN - left, strip.height)
        axes.set(xlim=(0, WIDTH_IN - left), ylim=(strip.height, 0))
        axes.set_axis_off()
        _draw_strip(axes, strip, ALERT if request.conflicts else ACCENT)
        top -= AFTER
    return chart


def _in_drawn_order(requests: Mapping[tuple[str, bool], Request]) -> list[Request]:
    """Return the requests that are drawn, in order.

    They are loads of A and B, writes with bank conflicts, reads of shared arrays, and the write of
    C.
    """
    arrays = dict.fromkeys(request.memory for request in requests.values() if request.in_shared)
    order = [("A", False), ("B", False)]
    for name in arrays:
        if (name, True) in requests and requests[name, True].conflicts:
            order.append((name, True))
    order += [(name, False) for name in sorted(arrays)]
    order.append(("C", True))
    return [requests[place] for place in order if place in requests]


def _ownership_finding(kernel: str, drawn: Iterable[Request]) -> str:
    """Return the wavefronts of loads from shared memory, else the sectors of loads."""
    loads = [request for request in drawn if not request.is_store]
    from_shared = [request for request in loads if request.in_shared]
    if from_shared:
        reads = ", ".join(f"{request.memory} in {request.wavefronts}" for request in from_shared)
        return f"{kernel}: a warp reads {reads} wavefronts"
    if loads:
        reads = ", ".join(f"{request.memory} in {request.sectors}" for request in loads)
        return f"{kernel}: a warp reads {reads} sectors"
    return f"{kernel}: warp 0 loads no element of A or B"


def _ownership_subtitle(thread: int, drawn: Collection[Request]) -> str:
    """Return the explanation of both halves. thread: whose elements are in full colour."""
    subtitle = (
        f"Left, one block's tile of C: in full colour thread {thread}'s elements, pale its warp's."
    )
    if not drawn:
        return subtitle
    banks = ""
    if any(request.in_shared for request in drawn):
        banks = ", the 32 banks of shared memory"
    warp = "warp 0" if thread else "the warp"
    return (
        f"{subtitle} Right, {warp}'s first access of each kind, as compiled: sectors of 8 "
        f"floats{banks}; what is used is filled."
    )


def _draw_tile(axes: Axes, owners: NDArray[np.int64], thread: int) -> None:
    """Draw a thread's elements of the tile of C in full colour, and its warp's pale."""
    rows, columns = owners.shape
    axes.set(xlim=(0, columns), ylim=(rows, 0), xticks=[], yticks=[])
    axes.spines[["top", "right"]].set_visible(True)
    _fill(axes, _runs(owners // WARP == thread // WARP), ACCENT, WARP_SHADE)
    _fill(axes, _runs(owners == thread), ACCENT)


def _draw_strip(axes: Axes, strip: Strip, colour: str) -> None:
    """Draw the floats of a request: pale, or in this colour if the warp uses them."""
    for kind, fill in ((1, FAINT), (2, colour)):
        cells = [
            Rectangle((strip.lefts[column], ROW * row), strip.width, 0.75 * ROW)
            for row, column in np.argwhere(strip.floats == kind).tolist()
        ]
        _fill(axes, cells, fill)


def _runs(is_owned: NDArray[np.bool_]) -> list[Rectangle]:
    """Return the true elements as rectangles. Rows with the same pattern are put together."""
    changes = np.flatnonzero((is_owned[1:] != is_owned[:-1]).any(axis=1)) + 1
    rectangles = []
    for top, bottom in pairwise([0, *changes, len(is_owned)]):
        edges = np.flatnonzero(np.diff(np.r_[False, is_owned[top], False].astype(np.int8)))
        for left, right in zip(edges[::2], edges[1::2], strict=True):
            rectangles.append(
                Rectangle((float(left), float(top)), float(right - left), float(bottom - top))
            )
    return rectangles


def _strip(request: Request) -> Strip:
    """Return the floats of a request in rows.

    Global memory: the sectors that the request touches, 8 in a row. Shared memory: a column per
    bank, with its different words below each other.
    """
    indices = request.floats
    if request.in_shared:
        depths = np.bincount(indices % BANKS, minlength=BANKS)
        is_used = np.arange(depths.max())[:, None] < depths
        return Strip(np.int64(1) + is_used, BANK * np.arange(float(BANKS)), 0.9 * BANK)
    sectors, sector = np.unique(indices // PER_SECTOR, return_inverse=True)
    floats = np.zeros(PER_SECTOR * 8 * -(-len(sectors) // 8), np.int64)
    floats[: PER_SECTOR * len(sectors)] = 1
    floats[PER_SECTOR * sector + indices % PER_SECTOR] = 2
    columns = np.arange(8.0 * PER_SECTOR)
    lefts = CELL * columns + SPACE * (columns // PER_SECTOR)
    return Strip(floats.reshape(-1, len(columns)), lefts, 0.88 * CELL)


def _fill(axes: Axes, cells: Iterable[Rectangle], colour: str, alpha: float = 1.0) -> None:
    """Draw cells in one colour."""
    axes.add_collection(PatchCollection(list(cells), facecolor=colour, alpha=alpha))


def _counted(count: int, noun: str) -> str:
    """Return the count with the noun, in the plural above 1."""
    return f"{count} {noun}s" if count > 1 else f"{count} {noun}"


def _request_text(request: Request) -> str:
    """Describe a request: its width, its floats, and its sectors or wavefronts."""
    count = len(request.floats)
    floats = f"{count} floats" if count > 1 else "1 float for all"
    verb = "write" if request.is_store else "load"
    text = f"{verb} of {request.memory}, {request.width} bytes per lane: {floats}"
    if request.in_shared:
        conflicts = f", {request.conflicts} of them for bank conflicts" if request.conflicts else ""
        return f"{text}, {_counted(request.wavefronts, 'wavefront')}{conflicts}"
    share = 100 * count / (PER_SECTOR * request.sectors)
    return f"{text} in {_counted(request.sectors, 'sector')}, {share:.3g} % used"


# inches: the longer side of C, and the room around it
SIDE = 2.0
LEFT = 0.35
OVER = 0.28
UNDER = 0.1
RIGHT = 0.3
LEAST = 0.25  # opacity of a tile with a single wrong element, so that it shows


class Line(NamedTuple):
    """A line of text next to the map."""

    text: str
    colour: str = INK
    weight: str = "normal"


@style.chart
def tile_map(
    errors: ErrorMap, label: str = "", *, name: str = "tile_map", notes: Mapping[str, str] = {}
) -> Chart:
    """Draw the map of C of one failed check (Verdict.where), with the guess as a text.

    label: its source, for the footer
    name: the stem of the chart's file
    notes: more about the kernel, a sentence by its heading
    """
    m, n = errors.shape
    tile_rows, tile_columns = errors.tile
    width, height = (max(SIDE / max(m, n) * side, 0.4) for side in (n, m))
    wrong = f"{errors.wrong} of {errors.checked} elements"
    subtitle = (
        f"Where the kernel's C is wrong: C = A·B, {m} × {n}, on exact integers, in tiles of "
        f"{tile_rows} × {tile_columns}. The darker a tile, the more of its elements are wrong."
    )
    alt = [f"Map of C in tiles of {tile_rows} by {tile_columns}", str(errors).rstrip(".")]
    paragraphs = [
        Line(f"{wrong} wrong"),
        Line(errors.rows, MUTED),
        Line(f"{errors.columns} (rows down, columns across)", MUTED),
    ]
    for heading, note in notes.items():
        alt.append(f"{heading}: {note.rstrip('.')}")
        paragraphs += [Line(""), Line(heading, weight="bold"), Line(note)]
    left = MARGIN_IN + LEFT + width + RIGHT
    lines = list[Line]()
    for paragraph in paragraphs:
        wrapped = style.wrap(paragraph.text, BODY_PT, WIDTH_IN - MARGIN_IN - left)
        lines += [paragraph._replace(text=text) for text in wrapped]
    body = OVER + max(height, 1.0, style.line_height(BODY_PT, len(lines))) + UNDER
    chart = page(
        name,
        errors.guess.rstrip(".") or f"{wrong} of C are wrong",
        subtitle,
        [label] if label else [],
        alt,
        body,
    )
    _draw_errors(
        chart.axes_at(MARGIN_IN + LEFT, chart.body_top - OVER - height, width, height), errors
    )
    top = chart.body_top - OVER
    for line in lines:
        top = chart.write(left, top, [line.text], BODY_PT, color=line.colour, weight=line.weight)
    return chart


def _draw_errors(axes: Axes, errors: ErrorMap) -> None:
    """Draw the tiles of C: the more of its elements are wrong, the darker a tile."""
    m, n = errors.shape
    tile_rows, tile_columns = errors.tile
    axes.set(xlim=(0, n), ylim=(m, 0), xticks=[0, n], yticks=[0, m])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[["top", "right"]].set_visible(True)
    for row, shares in enumerate(errors.tiles):
        for column, share in enumerate(shares):
            corner = column * tile_columns, row * tile_rows
            size = min(tile_columns, n - corner[0]), min(tile_rows, m - corner[1])
            axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=FAINT, linewidth=0.4))
            if share:
                opacity = LEAST + (1 - LEAST) * share
                axes.add_patch(Rectangle(corner, *size, facecolor=ALERT, alpha=opacity))
