"""Who owns which element of C, and what one access of a warp asks of memory: sectors of global memory, banks of shared.

Drawn from the addresses of a rung's compiled code (worklog.analysis.access_pattern), so the picture cannot disagree with the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.collections import PolyCollection
from numpy.typing import NDArray

from worklog.plots.figure import Chart
from worklog.plots.page import Page, page
from worklog.plots.style import (
    ACCENT,
    FAINT,
    INK,
    LIE,
    MARGIN_IN,
    MUTED,
    SMALL_PT,
    WIDTH_IN,
    line_height,
    styled,
)

if TYPE_CHECKING:
    from worklog.analysis.access_pattern import Request, Touches

WARP, BANKS, PER_SECTOR = 32, 32, 8
TILE, GAP = 2.05, 0.3  # inches: the larger side of C's picture, and the way to the right half
CELL, SPACE, ROW = 0.056, 0.03, 0.09  # inches: a float, between sectors, a row of either kind
AFTER = 0.1  # below each strip
ABOVE, BELOW = 0.12, 0.34  # words under C
Rectangle = tuple[float, float, float, float]
WARP_SHADE = 0.3


@styled()
def ownership(touched: Touches) -> Chart:
    """One rung: its block's tile of C with the elements of thread 0 and of its warp, and beside it the warp's first
    access to each matrix and each shared array.
    """
    bm, bn = touched.owners.shape
    shown = list(_shown(touched))
    strips = sum(line_height(SMALL_PT) + ROW * _rows(request) + AFTER for request in shown)
    scale = TILE / max(bm, bn)
    height = max(scale * bm + BELOW, strips) + ABOVE
    banks = ", the 32 banks of shared memory" if any(r.in_shared for r in shown) else ""
    subtitle = (
        "Left, one block's tile of C: in full colour thread 0's elements, pale its warp's. Right, the warp's first "
        f"access of each kind, as compiled: sectors of 8 floats{banks}; what is used is filled."
    )
    words = [_words(request) for request in shown]
    alt = f"{_finding(touched)}. {'. '.join(words)}. Source: {touched.label}."
    new = page("ownership", _finding(touched), subtitle, [touched.label], alt, height)
    _draw_tile(new, touched, scale)
    top = new.body_top - ABOVE
    for request, said in zip(shown, words, strict=True):
        new.text(MARGIN_IN + TILE + GAP, top, said, SMALL_PT, va="top", color=LIE if request.conflicts else INK)
        top -= line_height(SMALL_PT)
        (_draw_banks if request.in_shared else _draw_sectors)(new, request, top)
        top -= ROW * _rows(request) + AFTER
    return new.figure


def _shown(touched: Touches) -> Iterator[Request]:
    """Loads of A and B, writes with bank conflicts, reads of shared arrays, and the write of C."""
    shared = list(dict.fromkeys(r.memory for r in touched.requests if r.in_shared))
    loads = [touched.first("A"), touched.first("B")]
    stores = [r for name in shared if (r := touched.first(name, store=True)) is not None and r.conflicts]
    reads = [touched.first(name) for name in sorted(shared)]
    yield from (r for r in (*loads, *stores, *reads, touched.first("C", store=True)) if r is not None)


def _draw_tile(new: Page, touched: Touches, scale: float) -> None:
    bm, bn = touched.owners.shape
    bottom = new.body_top - ABOVE - scale * bm
    axes = new.axes(MARGIN_IN, bottom, scale * bn, scale * bm)
    axes.set(xlim=(0, bn), ylim=(bm, 0), xticks=[], yticks=[])
    axes.spines[["top", "right"]].set_visible(True)
    for level, alpha in ((touched.owners < WARP, WARP_SHADE), (touched.owners == 0, 1.0)):
        axes.add_collection(PolyCollection([_corners(box) for box in _runs(level)], facecolor=ACCENT, alpha=alpha))
    own = int((touched.owners == 0).sum())
    threads = touched.rung.block
    first = f"{bm} × {bn} of C, {threads} threads"
    second = f"{own} element{'s' if own > 1 else ''} a thread, {own * WARP} a warp"
    for number, line in enumerate((first, second)):
        y = bottom - 0.05 - number * line_height(SMALL_PT)
        new.text(MARGIN_IN, y, line, SMALL_PT, va="top", color=MUTED)


def _runs(level: NDArray[np.bool_]) -> Iterator[Rectangle]:
    """The true elements as rectangles (x, y, width, height), rows with the same pattern put together."""
    starts = [0, *(np.flatnonzero((level[1:] != level[:-1]).any(axis=1)) + 1), len(level)]
    for top, bottom in pairwise(starts):
        edges = np.flatnonzero(np.diff(np.r_[False, level[top], False].astype(np.int8)))
        for left, right in zip(edges[::2], edges[1::2], strict=True):
            yield float(left), float(top), float(right - left), float(bottom - top)


def _draw_sectors(new: Page, request: Request, top: float) -> None:
    """Eight sectors a row; a float that nobody asked for is grey."""
    used = set(np.unique(request.floats).tolist())
    order = sorted({word // PER_SECTOR for word in used})

    def place(word: int) -> Rectangle:
        row, column = divmod(order.index(word // PER_SECTOR), PER_SECTOR)
        x = column * (PER_SECTOR * CELL + SPACE) + word % PER_SECTOR * CELL
        return x, row * ROW, 0.88 * CELL, 0.75 * ROW

    words = [PER_SECTOR * sector + part for sector in order for part in range(PER_SECTOR)]
    _cells(new, request, top, place, words, used, FAINT)


def _draw_banks(new: Page, request: Request, top: float) -> None:
    """A column a bank; its different words below each other."""
    depth: dict[int, int] = {}
    at: dict[int, tuple[int, int]] = {}
    for word in np.unique(request.floats).tolist():
        bank = word % BANKS
        at[word] = bank, depth.get(bank, 0)
        depth[bank] = depth.get(bank, 0) + 1
    pitch = (PER_SECTOR * (PER_SECTOR * CELL + SPACE) - SPACE) / BANKS
    deepest = max(depth.values())
    empty = {-1 - (bank + BANKS * row): (bank, row) for bank in range(BANKS) for row in range(deepest)}
    where = {**empty, **at}

    def place(word: int) -> Rectangle:
        bank, row = where[word]
        return bank * pitch, row * ROW, 0.9 * pitch, 0.75 * ROW

    free = [word for word, place_ in empty.items() if place_ not in set(at.values())]
    _cells(new, request, top, place, [*free, *at], set(at), FAINT)


def _cells(
    new: Page,
    request: Request,
    top: float,
    place: Callable[[int], Rectangle],
    words: list[int],
    used: set[int],
    unused: str,
) -> None:
    wide = WIDTH_IN - MARGIN_IN - TILE - GAP
    high = ROW * _rows(request)
    axes = new.axes(MARGIN_IN + TILE + GAP, top - high, wide, high)
    axes.set(xlim=(0, wide), ylim=(high, 0))
    axes.set_axis_off()
    colour = LIE if request.conflicts else ACCENT
    for chosen, fill in (
        ([w for w in words if w not in used], unused),
        ([w for w in words if w in used], colour),
    ):
        axes.add_collection(PolyCollection([_corners(place(word)) for word in chosen], facecolor=fill))


def _corners(box: Rectangle) -> list[tuple[float, float]]:
    x, y, width, height = box
    return [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]


def _rows(request: Request) -> int:
    words = np.unique(request.floats)
    if request.in_shared:
        return int(np.bincount(words % BANKS).max())
    return -(-len(np.unique(words // PER_SECTOR)) // PER_SECTOR)


def _words(request: Request) -> str:
    """One access in words."""
    floats = len(np.unique(request.floats))
    verb = "write of" if request.is_store else "load of"
    each = f"{request.width} bytes a lane"
    several = f"{floats} floats" if floats > 1 else "1 float for all"
    if request.in_shared:
        passes = f"{request.wavefronts} wavefront{'s' if request.wavefronts > 1 else ''}"
        conflicts = f", {request.conflicts} of them bank conflicts" if request.conflicts else ""
        return f"{verb} {request.memory}, {each}: {several}, {passes}{conflicts}"
    share = 100 * floats / (PER_SECTOR * request.sectors)
    sectors = f"{request.sectors} sector{'s' if request.sectors > 1 else ''}"
    return f"{verb} {request.memory}, {each}: {several} in {sectors}, {share:.3g} % used"


def _finding(touched: Touches) -> str:
    name, a, b = touched.rung.name, touched.first("A"), touched.first("B")
    reads = [r for r in _shown(touched) if r.in_shared and not r.is_store]
    if reads:
        passes = ", ".join(f"{r.memory} in {r.wavefronts}" for r in reads)
        return f"{name}: a warp reads {passes} wavefront{'s' if reads[-1].wavefronts > 1 else ''}"
    assert a is not None and b is not None
    plural = "s" if a.sectors > 1 else ""
    return f"{name}: a warp's loads take {a.sectors} sector{plural} of A and {b.sectors} of B"
