"""Which thread owns which element of C, and what one access of a warp takes: sectors of global memory, banks of shared.

Drawn from the addresses of a rung's compiled code (worklog.analysis.counts), so it shows what the kernel does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from worklog.plots import figure
from worklog.plots.figure import ACCENT, ALERT, FAINT, INK, MARGIN_IN, MUTED, SMALL_PT, WIDTH_IN, Chart
from worklog.plots.page import Page, page

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
    """One rung: its block's tile of C with the elements of thread 0 and of its warp, and beside it the warp's first
    access to each matrix and each shared array.
    """
    bm, bn = pattern.owners.shape
    shown = list(_shown(pattern))
    cells = [_cells(request) for request in shown]
    depths = [1 + round(max(y for _, y, _, _ in used) / ROW) for used, _ in cells]
    strips = sum(figure.line_height(SMALL_PT) + ROW * depth + AFTER for depth in depths)
    scale = TILE / max(bm, bn)
    banks = ", the 32 banks of shared memory" if any(request.in_shared for request in shown) else ""
    subtitle = (
        "Left, one block's tile of C: in full colour thread 0's elements, pale its warp's. Right, the warp's first "
        f"access of each kind, as compiled: sectors of 8 floats{banks}; what is used is filled."
    )
    finding, words = _finding(pattern), [_words(request) for request in shown]
    height = max(scale * bm + BELOW, strips) + ABOVE
    new = page("ownership", finding, subtitle, [pattern.label], [finding, *words], height)
    _draw_tile(new, pattern, scale)
    left, top = MARGIN_IN + TILE + GAP, new.body_top - ABOVE
    for request, (used, unused), line, depth in zip(shown, cells, words, depths, strict=True):
        wide, high = WIDTH_IN - left, ROW * depth
        top = new.lines(left, top, [line], color=ALERT if request.conflicts else INK) - high
        axes = new.axes(left, top, wide, high)
        axes.set(xlim=(0, wide), ylim=(high, 0))
        axes.set_axis_off()
        axes.add_collection(_filled(unused, FAINT))
        axes.add_collection(_filled(used, ALERT if request.conflicts else ACCENT))
        top -= AFTER
    return new.figure


def _shown(pattern: AccessPattern) -> Iterator[Request]:
    """Loads of A and B, writes with bank conflicts, reads of shared arrays, and the write of C."""
    shared = list(dict.fromkeys(r.memory for r in pattern.requests if r.in_shared))
    loads = [pattern.first("A"), pattern.first("B")]
    stores = [r for name in shared if (r := pattern.first(name, store=True)) is not None and r.conflicts]
    reads = [pattern.first(name) for name in sorted(shared)]
    yield from (r for r in (*loads, *stores, *reads, pattern.first("C", store=True)) if r is not None)


def _draw_tile(new: Page, pattern: AccessPattern, scale: float) -> None:
    bm, bn = pattern.owners.shape
    bottom = new.body_top - ABOVE - scale * bm
    axes = new.axes(MARGIN_IN, bottom, scale * bn, scale * bm)
    axes.set(xlim=(0, bn), ylim=(bm, 0), xticks=[], yticks=[])
    axes.spines[["top", "right"]].set_visible(True)
    for level, alpha in ((pattern.owners < WARP, WARP_SHADE), (pattern.owners == 0, 1.0)):
        axes.add_collection(_filled(_runs(level), ACCENT, alpha=alpha))
    own = int((pattern.owners == 0).sum())
    first = f"{bm} × {bn} of C, {pattern.rung.thread_count} threads"
    second = f"{own} element{'s' if own > 1 else ''} per thread, {own * WARP} per warp"
    new.lines(MARGIN_IN, bottom - 0.05, [first, second], color=MUTED)


def _runs(level: NDArray[np.bool_]) -> Iterator[Cell]:
    """The true elements as rectangles, rows with the same pattern put together."""
    starts = [0, *(np.flatnonzero((level[1:] != level[:-1]).any(axis=1)) + 1), len(level)]
    for top, bottom in pairwise(starts):
        edges = np.flatnonzero(np.diff(np.r_[False, level[top], False].astype(np.int8)))
        for left, right in zip(edges[::2], edges[1::2], strict=True):
            yield float(left), float(top), float(right - left), float(bottom - top)


def _cells(request: Request) -> tuple[list[Cell], list[Cell]]:
    """The floats that the warp uses, and those that it does not use, as cells in inches from the strip's corner.

    Global memory: sectors of 8 floats, 8 sectors per row. Shared memory: one column per bank, its different words below
    each other.
    """
    words = np.unique(request.floats).tolist()
    if request.in_shared:
        banks = [word % BANKS for word in words]
        used = {(bank, banks[:place].count(bank)) for place, bank in enumerate(banks)}  # column, row
        every = list(product(range(BANKS), range(1 + max(row for _, row in used))))
        cells = {at: (at[0] * BANK, at[1] * ROW, 0.9 * BANK, 0.75 * ROW) for at in every}
    else:
        sectors = sorted({word // PER_SECTOR for word in words})
        every = list(product(range(len(sectors)), range(PER_SECTOR)))  # sector, float
        used = {at for at in every if PER_SECTOR * sectors[at[0]] + at[1] in words}
        wide = PER_SECTOR * CELL + SPACE
        places = {(n, part): (n % PER_SECTOR * wide + part * CELL, n // PER_SECTOR * ROW) for n, part in every}
        cells = {at: (x, y, 0.88 * CELL, 0.75 * ROW) for at, (x, y) in places.items()}
    return [cells[at] for at in every if at in used], [cells[at] for at in every if at not in used]


def _filled(cells: Iterable[Cell], colour: str, alpha: float = 1.0) -> PatchCollection:
    return PatchCollection([Rectangle((x, y), wide, high) for x, y, wide, high in cells], facecolor=colour, alpha=alpha)


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


def _finding(pattern: AccessPattern) -> str:
    name, a, b = pattern.rung.name, pattern.first("A"), pattern.first("B")
    reads = [r for r in _shown(pattern) if r.in_shared and not r.is_store]
    if reads:
        passes = ", ".join(f"{r.memory} in {r.wavefronts}" for r in reads)
        return f"{name}: a warp reads {passes} wavefront{'s' * (reads[-1].wavefronts > 1)}"
    assert a is not None and b is not None
    return f"{name}: a warp's loads take {a.sectors} sector{'s' * (a.sectors > 1)} of A and {b.sectors} of B"
