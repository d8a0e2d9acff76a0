"""Which thread owns which element of C, and what one access of a warp takes: sectors of global memory, banks of shared.

Both come from the addresses of a rung's compiled code (worklog.analysis.counts): it is what the kernel does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from worklog.errors import NothingToDraw
from worklog.plots import figure
from worklog.plots.figure import ACCENT, ALERT, FAINT, INK, MARGIN_IN, MUTED, SMALL_PT, WIDTH_IN, Chart
from worklog.plots.page import page

if TYPE_CHECKING:
    from worklog.analysis.counts import AccessPattern, Request

WARP, BANKS, PER_SECTOR = 32, 32, 8
TILE, GAP = 2.05, 0.3  # inches: the larger side of C's picture, and the way to the right half
CELL, SPACE, ROW = 0.056, 0.03, 0.09  # inches: a float, between sectors, a row of either kind
BANK = (PER_SECTOR * (PER_SECTOR * CELL + SPACE) - SPACE) / BANKS  # inches: as wide as 8 sectors together
AFTER, ABOVE, BELOW = 0.1, 0.12, 0.34  # inches: below each strip, above everything, for the words under C
WARP_SHADE = 0.3
Cell = tuple[float, float, float, float]  # x, y, width, height


@figure.styled()
def ownership(pattern: AccessPattern) -> Chart:
    """One rung: its block's tile of C with the elements of the first thread that stores there and of its warp, and
    beside it warp 0's first access to each matrix and each shared array. Raises NothingToDraw where no thread stores.
    """
    stores = pattern.owners[pattern.owners >= 0]
    if not len(stores):
        raise NothingToDraw(
            f"{pattern.rung.name}: no thread of its first block stores to C: bulk copies or other blocks write it"
        )
    bm, bn, first = *pattern.owners.shape, int(stores.min())
    scale = TILE / max(bm, bn)
    shown = list(_shown(pattern))
    strips = [_strip(request) for request in shown]
    heights = [ROW * len(floats) for floats, _, _ in strips]
    banks = ", the 32 banks of shared memory" if any(request.in_shared for request in shown) else ""
    warp = "warp 0" if first else "the warp"
    subtitle = f"Left, one block's tile of C: in full colour thread {first}'s elements, pale its warp's."
    if shown:
        subtitle += (
            f" Right, {warp}'s first access of each kind, as compiled: sectors of 8 floats{banks}; what is used is "
        )
        subtitle += "filled."
    finding, words = _finding(pattern, shown), [_words(request) for request in shown]
    height = ABOVE + max(scale * bm + BELOW, sum(heights) + len(shown) * (figure.line_height(SMALL_PT) + AFTER))
    new = page("ownership", finding, subtitle, [pattern.label], [finding, *words], height)
    bottom = new.body_top - ABOVE - scale * bm
    tile = new.axes(MARGIN_IN, bottom, scale * bn, scale * bm)
    tile.set(xlim=(0, bn), ylim=(bm, 0), xticks=[], yticks=[])
    tile.spines[["top", "right"]].set_visible(True)
    of_warp, of_thread = pattern.owners // WARP == first // WARP, pattern.owners == first
    for owned, alpha in ((of_warp, WARP_SHADE), (of_thread, 1.0)):
        _fill(tile, _runs(owned), ACCENT, alpha)
    own = int(of_thread.sum())
    under = [f"{bm} × {bn} of C, {pattern.rung.thread_count} threads"]
    under += [f"{own} element{'s' if own > 1 else ''} per thread, {own * WARP} per warp"]
    new.lines(MARGIN_IN, bottom - 0.05, under, color=MUTED)
    left, top = MARGIN_IN + TILE + GAP, new.body_top - ABOVE
    for request, (floats, lefts, wide), line, high in zip(shown, strips, words, heights, strict=True):
        top = new.lines(left, top, [line], color=ALERT if request.conflicts else INK) - high
        axes = new.axes(left, top, WIDTH_IN - left, high)
        axes.set(xlim=(0, WIDTH_IN - left), ylim=(high, 0))
        axes.set_axis_off()
        for kind, colour in ((1, FAINT), (2, ALERT if request.conflicts else ACCENT)):
            places = np.argwhere(floats == kind).tolist()
            _fill(axes, [(lefts[column], ROW * row, wide, 0.75 * ROW) for row, column in places], colour)
        top -= AFTER
    return new.figure


def _shown(pattern: AccessPattern) -> Iterator[Request]:
    """Loads of A and B, writes with bank conflicts, reads of shared arrays, and the write of C."""
    shared = list(dict.fromkeys(r.memory for r in pattern.requests if r.in_shared))
    loads = [pattern.first("A"), pattern.first("B")]
    stores = [r for name in shared if (r := pattern.first(name, store=True)) is not None and r.conflicts]
    reads = [pattern.first(name) for name in sorted(shared)]
    yield from (r for r in (*loads, *stores, *reads, pattern.first("C", store=True)) if r is not None)


def _runs(owned: NDArray[np.bool_]) -> Iterator[Cell]:
    """The true elements as rectangles, rows with the same pattern put together."""
    starts = [0, *(np.flatnonzero((owned[1:] != owned[:-1]).any(axis=1)) + 1), len(owned)]
    for top, bottom in pairwise(starts):
        edges = np.flatnonzero(np.diff(np.r_[False, owned[top], False].astype(np.int8)))
        for left, right in zip(edges[::2], edges[1::2], strict=True):
            yield float(left), float(top), float(right - left), float(bottom - top)


def _strip(request: Request) -> tuple[NDArray[np.signedinteger], NDArray[np.float64], float]:
    """The floats of an access in rows: 2 where the warp uses one, 1 where it doesn't, 0 for no float; where each column
    starts and how wide it is, inches. Global memory: the sectors that it touches, 8 in a row. Shared memory: a column
    per bank, its different words below each other.
    """
    words = np.unique(request.floats)
    if request.in_shared:
        depths = np.bincount(words % BANKS, minlength=BANKS)
        return np.int64(1) + (np.arange(depths.max())[:, None] < depths), BANK * np.arange(float(BANKS)), 0.9 * BANK
    sectors, sector = np.unique(words // PER_SECTOR, return_inverse=True)
    floats = np.zeros(PER_SECTOR * 8 * -(-len(sectors) // 8), np.int64)
    floats[: PER_SECTOR * len(sectors)] = 1
    floats[PER_SECTOR * sector + words % PER_SECTOR] = 2
    columns = np.arange(8.0 * PER_SECTOR)
    return floats.reshape(-1, len(columns)), CELL * columns + SPACE * (columns // PER_SECTOR), 0.88 * CELL


def _fill(axes: Axes, cells: Iterable[Cell], colour: str, alpha: float = 1.0) -> None:
    patches = [Rectangle((x, y), wide, high) for x, y, wide, high in cells]
    axes.add_collection(PatchCollection(patches, facecolor=colour, alpha=alpha))


def _words(request: Request) -> str:
    """One access in words."""
    floats = len(np.unique(request.floats))
    verb = "write of" if request.is_store else "load of"
    several = f"{floats} floats" if floats > 1 else "1 float for all"
    words = f"{verb} {request.memory}, {request.width} bytes per lane: {several}"
    if request.in_shared:
        conflicts = f", {request.conflicts} of them bank conflicts" if request.conflicts else ""
        return f"{words}, {request.wavefronts} wavefront{'s' * (request.wavefronts > 1)}{conflicts}"
    share = 100 * floats / (PER_SECTOR * request.sectors)
    return f"{words} in {request.sectors} sector{'s' * (request.sectors > 1)}, {share:.3g} % used"


def _finding(pattern: AccessPattern, shown: list[Request]) -> str:
    name = pattern.rung.name
    if reads := [r for r in shown if r.in_shared and not r.is_store]:
        passes = ", ".join(f"{r.memory} in {r.wavefronts}" for r in reads)
        return f"{name}: a warp reads {passes} wavefront{'s' * (reads[-1].wavefronts > 1)}"
    if all(r.is_store for r in shown):
        return f"{name}: warp 0 loads no element of A or B"
    first, *others = [r for r in shown if not r.is_store]
    taken = f"{first.sectors} sector{'s' * (first.sectors > 1)} of {first.memory}"
    return f"{name}: a warp's loads take " + " and ".join([taken, *(f"{r.sectors} of {r.memory}" for r in others)])
