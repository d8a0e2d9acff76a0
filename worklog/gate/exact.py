"""Problems with exactly one right result: integer inputs whose every partial sum, in every order, is an exact FP32
integer.

While sum |a||b| <= 2^24 for each element of C, no correct FP32 algorithm rounds anything, whatever
its order, its splits or its use of fused multiply-adds. So the comparison needs no tolerance, and
finds dropped, stale, doubled and misplaced terms as well as operands cut to 11 or 8 bits (TF32,
FP16, BF16). Sums by atomics become deterministic too.

Families: E1 dense integers as large as K allows (the structure); E2 odd 12-bit A with B = ±1, and
E3 the reverse (the precision of each operand, which the few bits of E1 cannot show). A kernel that
claims a shorter format gets E1 alone, with integers that its format holds. A and B are multiplied
by powers of two, which rounds nothing: FP16 parts can have FP32's error on numbers around 1 and
fail on 1e9 or 1e-9. The factor is one for a whole matrix, because Strassen's error is bounded by
norms. And one operand of E1 is made special, because a shortcut for special data can be wrong.

What is wrong has a map, with the usual mistake that makes exactly these elements wrong. An element
that still holds what was there before was never written; NaN came from outside the inputs; a
difference that equals one product a·b in every wrong element is that term, missing or doubled; rows
or columns at the end are a bound that is off; one tile is one block or warp.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from worklog.errors import apart
from worklog.problem import Float32, Float64, Shape
from worklog.runs import ErrorMap

Indices = np.ndarray[tuple[int], np.dtype[np.intp]]
Decks = tuple[Iterator[int], Iterator[int]]

EXACT_LIMIT = 2**24
PROJECTION_BITS = 16
SLAB = 2**16  # elements
FAMILIES = ("E1", "E2", "E3")
MIXED = "E2 and E3"
ALONE = ("E2 without zeros", "E3 without zeros")
LONGER = 2**11  # some element of an operand that loses bits in a shorter format
HEADROOM = 3  # bits: what alpha and beta of up to 7 halves need
# exponents of the powers of two, FP16 has 2^-24 to 2^15; and how many of them are one range
FARTHEST = 40
RANGE = 9
STRUCTURES = (
    "sparse", "the identity", "nearly the identity", "diagonal", "constant rows", "constant columns",
    "symmetric, with sums of 0",
)  # fmt: skip
OPERAND_BITS = {
    "tf32": 11,
    "fp16": 11,
    "bf16": 8,
}  # significands of shorter formats: integers up to 2^bits are exact
MOST_TILES = 32  # per side
SAMPLES = 64
READ_OUTSIDE = "an input was read out of bounds (NaN surrounds A and B), or"
NEVER_WRITTEN = "C was never written: it holds what was there before."
UNWRITTEN = "These elements were never written: they hold what was there before."
OLD_C_ADDED = (
    "The old C is added although beta is 0: with C = 0 before the launch, the result is right."
)
Which = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def families(claimed: str = "fp32") -> tuple[str, ...]:
    """The families on which a kernel of this class must be exact."""
    return FAMILIES[:1] if claimed in OPERAND_BITS else FAMILIES


def family(
    name: str, shape: Shape, rng: np.random.Generator, claimed: str = "fp32", headroom: int = 0
) -> tuple[Float32, Float32]:
    """A (M x K) and B (K x N) of one family, float32 integers with sum |a||b| <= 2^24 for every element of the
    product. headroom: bits by which sums, and operands of a shorter format, are smaller still.
    MIXED has operands of 12 bits in both, where K allows it, and no zeros; ALONE the same in A or
    in B.
    """
    size_a = (shape.m, shape.k)
    size_b = (shape.k, shape.n)
    if name == "E1":
        # Strassen's algorithm multiplies sums of two elements: with 11 bits it would leave the limit at K = 3 and 4.
        widest = (
            OPERAND_BITS[claimed] - headroom
            if claimed in OPERAND_BITS
            else 11
            if shape.k < 3
            else 10
        )
        bits = max(1, min(widest, (24 - headroom - math.ceil(math.log2(shape.k))) // 2))
        return _nonzero(rng, size_a, bits), _nonzero(rng, size_b, bits)
    if name in (MIXED, *ALONE):
        a = _signs(rng, size_a, shape.k, along=1)
        b = _signs(rng, size_b, shape.k)
        long = rng.permutation(shape.k)[: max(1, ((EXACT_LIMIT >> headroom) - shape.k) >> 12)]
        of_a, of_b = np.split(long, [len(long) // 2 if name == MIXED else len(long)])
        if rng.integers(2) if name == MIXED else name == ALONE[1]:
            of_a, of_b = of_b, of_a
        a[:, of_a] = _odd_12_bit(rng, (shape.m, len(of_a)))
        b[of_b] = _odd_12_bit(rng, (len(of_b), shape.n))
        return a, b
    terms = EXACT_LIMIT >> headroom + 12
    if name == "E2":
        return _odd_12_bit(rng, size_a), _signs(rng, size_b, terms)
    return _signs(rng, size_a, terms, along=1), _odd_12_bit(rng, size_b)


def _nonzero(rng: np.random.Generator, size: tuple[int, int], bits: int) -> Float32:
    """Integers of either sign below 2^bits without 0, which would hide a stale factor: 1 replaces it."""
    drawn = rng.integers(0, 2 << bits, size, dtype=np.int16)
    sized: Float32 = (np.maximum(drawn >> 1, 1) * (1 - 2 * (drawn & 1))).astype(np.float32)
    return sized


def _odd_12_bit(rng: np.random.Generator, size: tuple[int, int]) -> Float32:
    """Odd integers below 2^12 in size: their last bit is lost by any format with an 11-bit significand."""
    return (rng.integers(-2048, 2048, size, dtype=np.int16) * 2 + 1).astype(np.float32)


def _signs(rng: np.random.Generator, size: tuple[int, int], most: int, along: int = 0) -> Float32:
    """±1 in at most `most` places of K, the dimension `along`, so that sums with terms of 12 bits stay exact."""
    values = (rng.integers(0, 2, size, dtype=np.int8) * 2 - 1).astype(np.float32)
    if size[along] > most:
        np.moveaxis(values, along, 0)[rng.permutation(size[along])[most:]] = 0
    return values


def exponents(rng: np.random.Generator) -> Iterator[int]:
    """Exponents from -FARTHEST to FARTHEST without end: one at random of each range of RANGE, in random order, then
    again. So no magnitude is left out.
    """
    while True:
        for start in rng.permutation(np.arange(-FARTHEST, FARTHEST + 1, RANGE)):
            yield int(start + rng.integers(RANGE))


def stretch(a: Float32, b: Float32, decks: Decks, claimed: str = "fp32") -> tuple[float, float]:
    """Multiply A and B, in place, by a power of two each. decks: of exponents, A's and B's. Returns the two factors."""
    if claimed == "fp16":
        return 1.0, 1.0
    of_a, of_b = (2.0 ** next(deck) for deck in decks)
    for matrix, factor in ((a, of_a), (b, of_b)):
        if factor != 1:
            matrix *= np.float32(factor)
    return of_a, of_b


def structured(kind: str, matrix: Float32, rng: np.random.Generator) -> None:
    """Give a matrix of integers one of STRUCTURES, in place; no element becomes larger than the largest."""
    rows, columns = matrix.shape
    if kind == "sparse":
        matrix *= rng.random(matrix.shape) < 0.5
        for line in (
            matrix[rows // 2],
            matrix[:, columns // 2],
            matrix[: rows // 2, : columns // 4],
        ):
            line[...] = 0
    elif kind.startswith("constant"):
        lines = matrix if kind == "constant rows" else matrix.T
        last = lines[1::2, -1].copy()
        lines[...] = lines[:, :1].copy()
        lines[1::2, -1] = last
    elif kind.startswith("symmetric"):
        square = matrix[: min(rows, columns), : min(rows, columns)]
        square[...] = np.triu(square) + np.triu(square, 1).T
        # A corner whose tiles have sums of 0, weighted by places too: the signs of Thue and Morse.
        corner = square[len(square) // 2 :, len(square) // 2 :]
        signs = [(-1) ** place.bit_count() for place in range(len(corner))]
        corner[...] = np.outer(signs, signs) * np.abs(square).max()
    else:
        before = matrix.copy()
        last = min(matrix.shape) - 1
        matrix[...] = np.eye(rows, columns)
        if kind == "nearly the identity":
            few = rng.random(matrix.shape) < 1 / 16
            few[: rows // 2] = False
            few[:, : columns // 2] = False
            few[-1, columns // 2] = True
            few &= matrix == 0
            matrix[few] = before[few]
        elif kind == "diagonal":
            matrix[last, last] = -np.abs(before).max()


@dataclass(frozen=True)
class ExactProblem:
    """One launch C = alpha A B + beta C with one right result. stretched: the powers of two in A and in B. before: what
    C holds before the launch, a matrix or one value for every element, or None for a sentinel.
    """

    family: str
    a: Float32
    b: Float32
    stretched: tuple[float, float] = (1.0, 1.0)
    alpha: float = 1.0
    beta: float = 0.0
    before: Float32 | float | None = None

    @property
    def shape(self) -> Shape:  # noqa: D102
        return Shape(self.a.shape[0], self.b.shape[1], self.a.shape[1])

    @property
    def usual(self) -> bool:
        """Whether alpha is 1 and beta 0."""
        return (self.alpha, self.beta) == (1, 0)

    def result(
        self, product: Float64 | Float32, alpha: float | None = None, beta: float | None = None
    ) -> Float32:
        """alpha A B + beta C for A B or a part of it: the right result, or the one with another alpha and beta."""
        alpha, beta = self.alpha if alpha is None else alpha, self.beta if beta is None else beta
        old = 0.0 if self.before is None or beta == 0 else self.before
        return (alpha * product + beta * old).astype(np.float32)

    def wrong_scalar(self, c: Float32, product: Float64 | Float32) -> str:
        """The mistake in alpha or beta with which A B, or a part of it, gives this C; "" if there is none."""
        kept = (
            "beta is taken as 1, or C was never written"
            if self.alpha == 0
            else "beta is taken as 1"
        )
        mistakes = {
            "alpha is ignored": (1.0, self.beta),
            "alpha has the wrong sign": (-self.alpha, self.beta),
            "alpha is applied twice": (self.alpha**2, self.beta),
            "beta has the wrong sign": (self.alpha, -self.beta),
            "beta is ignored": (self.alpha, 0.0),
            kept: (self.alpha, 1.0),
            "alpha multiplies beta C, too": (self.alpha, self.alpha * self.beta),
        }
        with np.errstate(over="ignore"):
            given = [
                words
                for words, scalars in mistakes.items()
                if np.array_equal(c, self.result(product, *scalars))
            ]
        return " or ".join(given)

    def alone(self, claimed: str, rng: np.random.Generator) -> Iterator[ExactProblem]:
        """The same launch with long operands in A alone, and in B alone: Strassen's algorithm multiplies sums of
        elements, and rounds the products of two long ones.
        """
        for name in ALONE:
            a, b = family(name, self.shape, rng, claimed, HEADROOM)
            yield replace(self, a=a, b=b)

    @property
    def around_1(self) -> ExactProblem:
        """The same without the powers of two."""
        of_a, of_b = (1 / scale for scale in self.stretched)
        before = None if self.before is None else self.before * of_a * of_b
        return replace(self, a=self.a * of_a, b=self.b * of_b, before=before, stretched=(1.0, 1.0))


class Projection:
    """An exact problem, with one value for every element of the old C, reduced to two vectors on each side: C is right
    if C X == alpha A (B X) + beta C0 X, and Y C == alpha (Y A) B + beta Y C0. So no product need be
    computed.

    X (N x 2) and Y (transposed, M x 2) hold random integers below 2^16; all sums stay below 2^53,
    so FP64 is exact (Freivalds, 1977). A wrong row passes with a probability of about 2^-32. Y
    finds the columns.
    """

    def __init__(self, problem: ExactProblem, rng: np.random.Generator) -> None:
        self.problem = problem
        self._right = _weights(rng, problem.shape.n)
        self._left = _weights(rng, problem.shape.m)

    @cached_property
    def _rows(self) -> Float64:
        """C X as it should be, in FP64."""
        return self._expected(self.problem.a, self.problem.b, self._right)

    def _expected(self, a: Float32, b: Float32, weights: Float64) -> Float64:
        old = self.problem.beta * float(self.problem.before or 0.0)
        expected: Float64 = self.problem.alpha * multiply(
            a, multiply(b, weights)
        ) + old * weights.sum(axis=0)
        return expected

    def wrong_rows(self, c: Float32) -> Indices:
        """Indices of the rows of C that cannot be right. C may hold anything, NaN and infinity too."""
        return self._wrong(c, self._right, self._rows)

    def wrong_columns(self, c: Float32) -> Indices:
        """Indices of the columns of C that cannot be right: rows of the transposed problem."""
        return self._wrong(
            c.T, self._left, self._expected(self.problem.b.T, self.problem.a.T, self._left)
        )

    def _wrong(self, c: Float32, weights: Float64, expected: Float64) -> Indices:
        unit = abs(self.problem.alpha) * self.problem.stretched[0] * self.problem.stretched[1]
        with np.errstate(over="ignore", invalid="ignore"):
            wrong = (multiply(c, weights) != expected).any(axis=1)
            # An element that isn't a multiple of the unit, a power of two, could hide in the rounding of a long sum.
            for slab in _slabs(c):
                units = c[slab] * np.float32(1 / unit)
                wrong[slab] |= (units != np.rint(units)).any(axis=1)
        return np.flatnonzero(wrong)


def _weights(rng: np.random.Generator, size: int) -> Float64:
    """Integers below 2^16, or for more than 8192 of them below so much less that their sums stay exact."""
    bits = PROJECTION_BITS - max(0, math.ceil(math.log2(size)) - 13)
    return rng.integers(1, 2 ** max(1, bits), (size, 2)).astype(np.float64)


def multiply(matrix: Float32, vectors: Float64) -> Float64:
    """matrix (R x S, float32) times vectors (S x V, float64) in FP64."""
    result = np.empty((matrix.shape[0], vectors.shape[1]))
    for slab in _slabs(matrix):
        result[slab] = matrix[slab].astype(np.float64) @ vectors
    return result


def _slabs(matrix: Float32) -> Iterator[slice]:
    """Rows of a matrix, as many at a time as fit a CPU's cache in float64: several times faster than all at once."""
    step = max(1, SLAB // max(1, matrix.shape[1]))
    return (slice(start, start + step) for start in range(0, matrix.shape[0], step))


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
    rows = np.flatnonzero(mask.any(axis=1))
    columns = np.flatnonzero(mask.any(axis=0))
    notes: list[str] = []
    guess = apart(
        "the search for its cause", lambda: _guess(c, expected, mask, sentinel, factors), "", notes
    )
    guess = " ".join(filter(None, (guess, *notes)))
    words = whereabouts(rows, c.shape[0], "row"), whereabouts(columns, c.shape[1], "column")
    # Tiles have sides of powers of two that cut C into at most MOST_TILES per side; those at the edges can be smaller.
    height, width = (1 << max(0, int(np.ceil(np.log2(size / MOST_TILES)))) for size in mask.shape)
    tops = np.arange(0, mask.shape[0], height)
    lefts = np.arange(0, mask.shape[1], width)
    counts = np.add.reduceat(np.add.reduceat(mask.astype(np.int64), tops, axis=0), lefts, axis=1)
    sizes = np.outer(
        np.minimum(height, mask.shape[0] - tops), np.minimum(width, mask.shape[1] - lefts)
    )
    shares = tuple(map(tuple, (counts / sizes).round(4).tolist()))
    return ErrorMap(
        (c.shape[0], c.shape[1]), int(mask.sum()), c.size, *words, (height, width), shares, guess
    )


def _guess(
    c: Any,
    expected: Any,
    mask: Which,
    sentinel: np.floating[Any],
    factors: tuple[Float64 | Float32, Float32] | None,
) -> str:
    """Return what the wrong elements suggest, or "". factors: as for error_map"""
    guess = _value_guess(c, expected, mask, sentinel)
    if not guess and factors is not None:
        guess = _missing_terms(c, expected, mask, *factors)
    is_one_element = factors is not None and mask.sum() == 1  # of a product, which is no row
    if guess not in ("", UNWRITTEN) or is_one_element:
        return guess
    rows = np.flatnonzero(mask.any(axis=1))
    columns = np.flatnonzero(mask.any(axis=0))
    return f"{guess} {_place_guess(rows, columns, mask.shape)}".strip()


def _value_guess(c: Any, expected: Any, mask: Which, sentinel: np.floating[Any]) -> str:
    """What the wrong values suggest, or ""."""
    got = c[mask]
    right = expected[mask]
    if (got == sentinel).all():
        return NEVER_WRITTEN if mask.all() else UNWRITTEN
    if not np.isfinite(got).all():
        return f"NaN or infinity: {READ_OUTSIDE} a value overflowed."
    if len(got) > 3 and mask.mean() > 1 / 2 and np.array_equal(np.sort(got), np.sort(right)):
        return "The right values are at other places: an index of C is wrong."
    ratio = np.unique(got[right != 0].astype(np.float64) / right[right != 0])
    if len(got) > 3 and len(ratio) and np.ptp(ratio) < 1e-6 * abs(ratio[0]):
        return f"Every wrong element is {ratio[0]:.6g} times the right one."
    return ""


def _missing_terms(c: Any, expected: Any, mask: Which, a: Float64 | Float32, b: Float32) -> str:
    """Terms whose absence, or second presence, explains every wrong element, if only one candidate does; or operands of
    fewer bits, if most elements are wrong by no more than that.
    """
    where = np.argwhere(mask)
    sample = where[:: max(1, len(where) // SAMPLES)][:SAMPLES]
    rows = sample[:, 0]
    columns = sample[:, 1]
    terms = a[rows].astype(np.float64) * b[:, columns].T.astype(np.float64)  # (samples, K)
    error = (c[rows, columns].astype(np.float64) - expected[rows, columns])[:, None]
    # A sum from some term to the end, or from the start to some term: what a loop that is too short leaves out.
    tails = np.cumsum(terms[:, ::-1], axis=1)[:, ::-1]
    heads = np.cumsum(terms, axis=1)
    candidates = (
        (-tails, "The terms from k = {k} to the end are missing"),
        (-terms, "The term k = {k} is missing"),
        (-heads, "The terms up to k = {k} are missing"),
        (terms, "The term k = {k} is added twice"),
    )
    for explained, words in candidates:
        which = np.flatnonzero((explained == error).all(axis=0))
        if len(which) == 1:
            return f"{words.format(k=which[0])} in every wrong element (K = {terms.shape[1]})."
    if replaced := _replaced_terms(terms, error):
        return replaced
    short = (np.abs(error[:, 0]) <= np.abs(terms).sum(axis=1) / 2 ** OPERAND_BITS["bf16"]).all()
    return (
        "An operand lost its low bits: TF32, FP16 or BF16?"
        if short and len(where) > mask.size / 2
        else ""
    )


def _replaced_terms(terms: Float64, error: Float64) -> str:
    """Return which last terms are missing while those before them are added twice, or "".

    terms: of some wrong elements, (samples, K)
    error: of the same elements, (samples, 1)
    """
    count = terms.shape[1]
    sums = np.concatenate([np.zeros((len(terms), 1)), np.cumsum(terms, axis=1)], axis=1)
    lengths = np.arange(1, count // 2 + 1)
    last = sums[:, [count]] - sums[:, count - lengths]
    before = sums[:, count - lengths] - sums[:, count - 2 * lengths]
    which = np.flatnonzero((before - last == error).all(axis=0))
    if len(which) != 1:
        return ""
    length = int(lengths[which[0]])
    return (
        f"The last {length} terms, from k = {count - length}, are missing in every wrong element, "
        f"and the {length} before them are added twice (K = {count}): a stale buffer?"
    )


def _place_guess(rows: Indices, columns: Indices, shape: tuple[int, ...]) -> str:
    """What the places of the wrong elements suggest, or ""."""
    m, n = shape
    for indices, total, name in ((rows, m, "row"), (columns, n, "column")):
        if len(indices) < total and indices[-1] == total - 1 and _step(indices) == 1:
            if len(indices) == 1:
                return f"Only the last {name}: a bound may be off by one."
            return f"Only {name}s from {indices[0]} to the end: the grid or a bound ends there."
    if len(rows) == m and len(columns) == n:
        return ""
    if _step(rows) == 1 and _step(columns) == 1 and len(rows) * len(columns) > 1:
        tile = f"One tile of {len(rows)} x {len(columns)} at row {rows[0]}, column {columns[0]}"
        return f"{tile}: one block or warp computed another tile, or read data too early or too late (a race)."
    for indices, name in ((rows, "row"), (columns, "column")):
        if len(indices) > 2 and (_step(indices) or 0) > 1:
            return f"Every {_ordinal(_step(indices) or 0)} {name}: one thread or one pass of each tile."
    return ""


def _step(indices: Indices) -> int | None:
    """The constant distance between neighbours, 1 for a single index, or None."""
    steps = set(np.diff(indices).tolist())
    return 1 if not steps else steps.pop() if len(steps) == 1 else None


def _ordinal(number: int) -> str:
    ending = (
        "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"


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
    return f"{len(indices)} {name}s ({listed}{f', every {_ordinal(step)}' if step else ''})"
