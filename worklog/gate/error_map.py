"""Which elements of C are wrong, and the usual mistakes that make exactly these wrong.

An element that still holds what was there before was never written; NaN came from outside the inputs; a difference
that equals one product a·b in every wrong element is that term, missing or doubled; rows or columns at the end are a
bound that is off; one tile is one block or warp. All inputs are integers here, so "equals" means equal.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from worklog.gate.exact import Indices
from worklog.problem import Float32, Float64
from worklog.runs.verdict import ErrorMap

MOST_TILES = 32  # per side
SAMPLES = 64
NEVER_WRITTEN = "C was never written: it holds what was there before."
UNWRITTEN = "These elements were never written: they hold what was there before."
Which = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def error_map(
    c: Float32 | Float64,
    expected: Float32 | Float64,
    sentinel: np.float32 | np.float64,
    factors: tuple[Float64 | Float32, Float32] | None = None,
    wrong: Which | None = None,
) -> ErrorMap:
    """Compare C with what is expected, both (M, N). factors: alpha A and B, to search for missing terms. wrong: which
    elements are, where not all that differ.
    """
    mask = c != expected if wrong is None else wrong
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    guess = _value_guess(c, expected, mask, sentinel)
    if not guess and factors is not None:
        guess = _missing_terms(c, expected, mask, *factors)
    if guess in ("", UNWRITTEN):
        guess = f"{guess} {_place_guess(rows, columns, mask.shape)}".strip()
    words = whereabouts(rows, c.shape[0], "row"), whereabouts(columns, c.shape[1], "column")
    tile, tiles = _tiles(mask)
    return ErrorMap((c.shape[0], c.shape[1]), int(mask.sum()), c.size, *words, tile, tiles, guess)


def if_rounded(where: ErrorMap, family: str) -> ErrorMap:
    """The same with a guess, where a family that needs all bits of an operand is wrong nearly everywhere."""
    if family == "E1" or where.guess or where.wrong <= where.checked / 2:
        return where
    return replace(where, guess="An operand lost its low bits: TF32, FP16 or BF16?")


def _tiles(mask: Which) -> tuple[tuple[int, int], tuple[tuple[float, ...], ...]]:
    """Height and width of a tile, powers of two that cut C into at most MOST_TILES per side, and the share of wrong
    elements in each tile; tiles at the edges can be smaller.
    """
    height, width = (1 << max(0, int(np.ceil(np.log2(size / MOST_TILES)))) for size in mask.shape)
    (m, n), rows, columns = mask.shape, -(-mask.shape[0] // height), -(-mask.shape[1] // width)
    padded = np.full((rows * height, columns * width), np.nan, np.float32)
    padded[:m, :n] = mask
    shares: Float64 = np.nanmean(padded.reshape(rows, height, columns, width), axis=(1, 3), dtype=np.float64)
    return (height, width), tuple(tuple(round(float(share), 4) for share in row) for row in shares)


def _value_guess(c: Any, expected: Any, mask: Which, sentinel: np.floating[Any]) -> str:
    """What the wrong values suggest, or ""."""
    got, right = c[mask], expected[mask]
    if (got == sentinel).all():
        return NEVER_WRITTEN if mask.all() else UNWRITTEN
    if not np.isfinite(got).all():
        return "NaN or infinity: an input was read out of bounds (NaN surrounds A and B), or a value overflowed."
    ratio = np.unique(got[right != 0].astype(np.float64) / right[right != 0])
    if len(got) > 3 and len(ratio) and np.ptp(ratio) < 1e-6 * abs(ratio[0]):
        return f"Every wrong element is {ratio[0]:.6g} times the right one."
    return ""


def _missing_terms(c: Any, expected: Any, mask: Which, a: Float64 | Float32, b: Float32) -> str:
    """Terms whose absence, or second presence, explains every wrong element, if only one candidate does."""
    where = np.argwhere(mask)
    sample = where[:: max(1, len(where) // SAMPLES)][:SAMPLES]
    rows, columns = sample[:, 0], sample[:, 1]
    terms = a[rows].astype(np.float64) * b[:, columns].T.astype(np.float64)  # (samples, K)
    error = (c[rows, columns].astype(np.float64) - expected[rows, columns])[:, None]
    # A sum from some term to the end, or from the start to some term: what a loop that is too short leaves out.
    tails, heads = np.cumsum(terms[:, ::-1], axis=1)[:, ::-1], np.cumsum(terms, axis=1)
    candidates = (
        (-tails, "The terms from k = {k} to the end are missing"),
        (-heads, "The terms up to k = {k} are missing"),
        (-terms, "The term k = {k} is missing"),
        (terms, "The term k = {k} is added twice"),
    )
    for explained, words in candidates:
        which = np.flatnonzero((explained == error).all(axis=0))
        if len(which) == 1:
            return f"{words.format(k=which[0])} in every wrong element (K = {terms.shape[1]})."
    return ""


def _place_guess(rows: Indices, columns: Indices, shape: tuple[int, ...]) -> str:
    """What the places of the wrong elements suggest, or ""."""
    m, n = shape
    for indices, total, name in ((rows, m, "row"), (columns, n, "column")):
        if len(indices) < total and indices[-1] == total - 1 and _step(indices) == 1:
            if len(indices) == 1:
                return f"Only the last {name}: a bound is off by one."
            return f"Only {name}s from {indices[0]} to the end: the grid or a bound is rounded down."
    if len(rows) == m and len(columns) == n:
        return ""
    if _step(rows) == 1 and _step(columns) == 1 and len(rows) * len(columns) > 1:
        tile = f"One tile of {len(rows)} x {len(columns)} at row {rows[0]}, column {columns[0]}"
        return f"{tile}: one block or warp computed another tile, or read data too early or too late (a race)."
    for indices, name in ((rows, "row"), (columns, "column")):
        if len(indices) > 2 and (_step(indices) or 0) > 1:
            return f"Every {_step(indices)}th {name}: one thread or one pass of each tile."
    return ""


def _step(indices: Indices) -> int | None:
    """The constant distance between neighbours, 1 for a single index, or None."""
    steps = set(np.diff(indices).tolist())
    return 1 if not steps else steps.pop() if len(steps) == 1 else None


def whereabouts(indices: Indices, total: int, name: str) -> str:
    """A set of rows or columns in words: which, and the step between them when it is constant."""
    if len(indices) == total:
        return f"all {total} {name}s"
    if len(indices) == 1:
        return f"{name} {indices[0]}"
    step = _step(indices)
    if step == 1:
        return f"{name}s {indices[0]} to {indices[-1]}"
    listed = ", ".join(map(str, indices[:4])) + (", …" if len(indices) > 4 else "")
    return f"{len(indices)} {name}s ({listed}{f', every {step}th' if step else ''})"
