"""A rung's first block: which thread owns which element of C, and what a warp accesses first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.marks import areas, fill
from worklog.plots.page import Chart, Texts, page
from worklog.plots.style import ACCENT, ALERT, FAINT, INK, MARGIN_IN, MUTED, SMALL_PT, WIDTH_IN
from worklog.problem import FLOAT_BYTES

if TYPE_CHECKING:
    from worklog.viewer.accesses import AccessTrace

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


@style.chart
def ownership(traced: AccessTrace) -> Chart:
    """Draw a rung's first block: its tile of C, and warp 0's first accesses.

    The tile shows the elements of the first thread that stores there and of its warp. Right of it
    are warp 0's first access to each matrix and each shared array. Raises NothingToDraw if no
    thread stores.
    """
    kernel = traced.kernel
    owners, requests = first_block(traced)
    if (owners < 0).all():
        raise NothingToDraw(
            f"{kernel.name}: no thread of its first block stores to C: "
            "bulk copies or other blocks write it"
        )
    thread = int(owners[owners >= 0].min())
    drawn = _in_drawn_order(requests)
    finding = _finding(kernel.name, drawn)
    texts = Texts(
        "ownership",
        finding,
        subtitle=_subtitle(thread, drawn),
        footer=[traced.label],
        alt=[finding, *map(_request_text, drawn)],
    )
    inch = max(owners.shape) / TILE  # in elements
    strips_height = sum(_strip(request).height for request in drawn)
    strips_height += len(drawn) * (style.line_height(SMALL_PT) + AFTER)
    chart = page(texts, ABOVE + max(len(owners) / inch + BELOW, strips_height))
    _draw_left(chart, owners, thread, kernel.thread_count)
    _draw_right(chart, drawn)
    return chart


def _draw_left(chart: Chart, owners: NDArray[np.int64], thread: int, thread_count: int) -> None:
    """Draw the block's tile of C with the texts below it. thread_count: of the block."""
    rows, columns = owners.shape
    scale = TILE / max(rows, columns)
    bottom = chart.body_top - ABOVE - scale * rows
    axes = chart.axes_at(MARGIN_IN, bottom, scale * columns, scale * rows)
    _draw_tile(axes, owners, thread)
    elements = int((owners == thread).sum())
    below = [
        f"{rows} × {columns} of C, {thread_count} threads",
        f"{_counted(elements, 'element')} per thread, {elements * WARP} per warp",
    ]
    chart.write((MARGIN_IN, bottom - 0.05), below, color=MUTED)


def _draw_right(chart: Chart, drawn: Iterable[Request]) -> None:
    """Draw the requests below each other, each with its text."""
    left = MARGIN_IN + TILE + GAP
    width = WIDTH_IN - left
    top = chart.body_top - ABOVE
    for request in drawn:
        strip = _strip(request)
        text_colour = ALERT if request.conflicts else INK
        bottom = chart.write((left, top), [_request_text(request)], color=text_colour)
        bottom -= strip.height
        axes = chart.axes_at(left, bottom, width, strip.height)
        axes.set(xlim=(0, width), ylim=(strip.height, 0))
        axes.set_axis_off()
        _draw_strip(axes, strip, ALERT if request.conflicts else ACCENT)
        top = bottom - AFTER


def first_block(
    traced: AccessTrace,
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


def _finding(kernel: str, drawn: Iterable[Request]) -> str:
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


def _subtitle(thread: int, drawn: Collection[Request]) -> str:
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
    fill(axes, areas(owners // WARP == thread // WARP), ACCENT, WARP_SHADE)
    fill(axes, areas(owners == thread), ACCENT)


def _draw_strip(axes: Axes, strip: Strip, colour: str) -> None:
    """Draw the floats of a request: pale, or in this colour if the warp uses them."""
    for kind, shade in ((1, FAINT), (2, colour)):
        cells = [
            Rectangle((strip.lefts[column], ROW * row), strip.width, 0.75 * ROW)
            for row, column in np.argwhere(strip.floats == kind).tolist()
        ]
        fill(axes, cells, shade)


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
