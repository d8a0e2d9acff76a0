"""Problems with exactly one right result, in any order of the sum.

Their inputs are integers whose every partial sum, in every order, is an exact FP32 integer. While
sum |a||b| <= 2^24 for each element of C, no correct FP32 algorithm rounds anything, whatever its
order, its splits or its use of fused multiply-adds. So the comparison needs no tolerance, and finds
dropped, stale, doubled and misplaced terms as well as operands cut to 11 or 8 bits (TF32, FP16,
BF16). Sums by atomics also become deterministic.

Families: E1 dense integers as large as K allows (the structure); E2 odd 12-bit A with B = ±1, and
E3 the reverse (the precision of each operand, which the few bits of E1 can't show). A kernel that
claims a shorter class than its matrices' formats gets E1 alone, with integers that its class holds.
Matrices of 16 bits hold integers of 11 or 8 bits, and sums are kept to as many as C holds, with
zeros in A and B where K needs that: so nothing is rounded in C either. A and B are multiplied
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
from worklog.problem.formats import ClaimedResult, Format
from worklog.runs import ErrorMap

Indices = np.ndarray[tuple[int], np.dtype[np.intp]]
Decks = tuple[Iterator[int], Iterator[int]]

FP32 = ClaimedResult()
PROJECTION_BITS = 16
SLAB = 2**16  # elements
FAMILIES = ("E1", "E2", "E3")
MIXED = "E2 and E3"
ALONE = ("E2 without zeros", "E3 without zeros")
HEADROOM = 3  # bits: what alpha and beta of up to 7 halves need
# The largest exponent of the powers of two (FP16 has 2^-24 to 2^15), and the length of a range.
FARTHEST = 40
RANGE = 9
STRUCTURES = (
    "sparse", "the identity", "nearly the identity", "diagonal", "constant rows", ("constant "
                                                                                  "columns"),
    "symmetric, with sums of 0",
)  # fmt: skip
OPERAND_BITS = {
    "tf32": 11,
    "fp16": 11,
    "bf16": 8,
}  # significands of shorter formats: integers up to 2^bits are exact
# Two levels of Winograd's form sum up to 18 products of K / 4 terms per level: 18^2 / 4 < 2^7 times
# as much as an element of C.
NORM_BITS = 7
EIGHT_BIT_SUMS = 13  # bits that tensor cores keep of sums of 8-bit products, with room
MOST_TILES = 32  # per side
SAMPLES = 64
# Bits of the fraction, the smallest normal number's exponent, and the largest number.
EIGHT_BITS = {"e4m3": (3, -6, 448.0), "e5m2": (2, -14, 57344.0)}
SHORT_SUMS = 2.0**-10  # relative error of tensor cores' sums of 8-bit floats, with room
READ_OUTSIDE = "an input was read out of bounds (NaN surrounds A and B), or"
NEVER_WRITTEN = "C was never written: it holds what was there before."
UNWRITTEN = "These elements were never written: they hold what was there before."
OLD_C_ADDED = (
    "The old C is added although beta is 0: with C = 0 before the launch, the result is right."
)
Which = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def families(claim: ClaimedResult = FP32) -> tuple[str, ...]:
    """Return the families on which a kernel must be exact."""
    return FAMILIES[:1] if claim.precision in OPERAND_BITS else FAMILIES


def family(
    name: str,
    shape: Shape,
    rng: np.random.Generator,
    claim: ClaimedResult = FP32,
    *,
    headroom: int = 0,
) -> tuple[Float32, Float32]:
    """Return A (M x K) and B (K x N) of one family.

    They are float32 integers that their formats hold, with sum |a||b| <= 2^24 for every element of
    the product, or what C's format holds. MIXED has operands of 12 bits in both, where K allows it,
    and no zeros; ALONE the same in A or in B. Operands of 16 bits are shorter.

    headroom: bits by which sums, and operands of a shorter format, are smaller still
    """
    bits_of_sums = sum_bits(claim) - headroom
    if name == "E1":
        return _dense(shape, rng, claim, bits_of_sums, headroom)
    size_a = (shape.m, shape.k)
    size_b = (shape.k, shape.n)
    bits_a = min(long_bits(claim.types.a), bits_of_sums)
    bits_b = min(long_bits(claim.types.b), bits_of_sums)
    if name == "E2":
        return _odd(rng, size_a, bits_a), _signs(rng, size_b, 1 << bits_of_sums - bits_a)
    if name == "E3":
        signs = _signs(rng, size_a, 1 << bits_of_sums - bits_b, along=1)
        return signs, _odd(rng, size_b, bits_b)
    bits_a = min(bits_a, bits_of_sums - 1)
    bits_b = min(bits_b, bits_of_sums - 1)
    most_signs = 1 << bits_of_sums - 1
    a = _signs(rng, size_a, most_signs, along=1)
    b = _signs(rng, size_b, most_signs)
    left = (1 << bits_of_sums) - min(shape.k, most_signs)
    terms = rng.permutation(shape.k)[: max(1, left >> max(bits_a, bits_b))]
    terms_a, terms_b = np.split(terms, [len(terms) // 2 if name == MIXED else len(terms)])
    is_exchanged = rng.integers(2) if name == MIXED else name == ALONE[1]
    if is_exchanged:
        terms_a, terms_b = terms_b, terms_a
    a[:, terms_a] = _odd(rng, (shape.m, len(terms_a)), bits_a)
    b[terms_b] = _odd(rng, (len(terms_b), shape.n), bits_b)
    return a, b


def _dense(
    shape: Shape, rng: np.random.Generator, claim: ClaimedResult, bits_of_sums: int, headroom: int
) -> tuple[Float32, Float32]:
    """Return A and B of family E1."""
    bits = (bits_of_sums - math.ceil(math.log2(shape.k))) // 2
    bits_a = _widest_operand(shape.k, claim, claim.types.a, headroom)
    bits_b = _widest_operand(shape.k, claim, claim.types.b, headroom)
    a = _nonzero(rng, (shape.m, shape.k), max(1, min(bits_a, bits)))
    b = _nonzero(rng, (shape.k, shape.n), max(1, min(bits_b, bits)))
    most_terms = 1 << bits_of_sums
    if shape.k > most_terms:
        a[:, rng.permutation(shape.k)[most_terms:]] = 0
    return a, b


def sum_bits(claim: ClaimedResult) -> int:
    """Return the bits of the largest sums that are exact in the sums' format and in C."""
    bits = claim.types.c.significand
    if claim.precision == "fp32-norm":
        return bits - NORM_BITS
    if claim.types.has_eight_bits and claim.precision in OPERAND_BITS:
        return min(bits, EIGHT_BIT_SUMS)
    return bits


def long_bits(format_: Format) -> int:
    """Return the bits of a long operand: all of its format's, or 12 of 32 bits'."""
    return min(12, format_.significand)


def _widest_operand(k: int, claim: ClaimedResult, format_: Format, headroom: int) -> int:
    """Return the most bits of an operand of family E1.

    Strassen's algorithm multiplies sums of two elements: with 11 bits it would leave the limit at
    K = 3 and 4.
    """
    if claim.precision in OPERAND_BITS:
        return min(OPERAND_BITS[claim.precision], format_.significand) - headroom
    return min(11 if k < 3 else 10, format_.significand)


def _nonzero(rng: np.random.Generator, size: tuple[int, int], bits: int) -> Float32:
    """Return integers of either sign below 2^bits, without 0.

    0 would hide a stale factor: 1 replaces it.
    """
    drawn = rng.integers(0, 2 << bits, size, dtype=np.int16)
    sized: Float32 = (np.maximum(drawn >> 1, 1) * (1 - 2 * (drawn & 1))).astype(np.float32)
    return sized


def _odd(rng: np.random.Generator, size: tuple[int, int], bits: int) -> Float32:
    """Return odd integers below 2^bits in size.

    Any format with a shorter significand loses their last bit.
    """
    limit = 1 << bits - 1
    return (rng.integers(-limit, limit, size, dtype=np.int16) * 2 + 1).astype(np.float32)


def _signs(
    rng: np.random.Generator, size: tuple[int, int], most_terms: int, along: int = 0
) -> Float32:
    """Return ±1 in some places of K, and 0 elsewhere.

    So sums with terms of 12 bits stay exact.

    most_terms: the number of places, at most
    along: the dimension of K
    """
    values = (rng.integers(0, 2, size, dtype=np.int8) * 2 - 1).astype(np.float32)
    if size[along] > most_terms:
        np.moveaxis(values, along, 0)[rng.permutation(size[along])[most_terms:]] = 0
    return values


def exponents(rng: np.random.Generator) -> Iterator[int]:
    """Yield exponents from -FARTHEST to FARTHEST without end.

    Each round has a random exponent of each range of RANGE, in random order. So no magnitude is
    left out.
    """
    while True:
        for start in rng.permutation(np.arange(-FARTHEST, FARTHEST + 1, RANGE)):
            yield int(start + rng.integers(RANGE))


def stretch(
    a: Float32, b: Float32, decks: Decks, claim: ClaimedResult = FP32
) -> tuple[float, float]:
    """Multiply A and B, in place, by a power of two each. Return the two factors.

    Both are 1 in formats with fewer exponents than float32: float16 ends at 2^-24 and 2^16. Both
    are 1 before a gelu, which rounds small sums.

    decks: of exponents, A's and B's
    """
    if claim.precision == "fp16" or claim.types.is_narrow or claim.types.has_gelu:
        return 1.0, 1.0
    scale_a, scale_b = (2.0 ** next(deck) for deck in decks)
    for matrix, scale in ((a, scale_a), (b, scale_b)):
        if scale != 1:
            np.multiply(matrix, np.float32(scale), out=matrix)
    return scale_a, scale_b


def structured(kind: str, matrix: Float32, rng: np.random.Generator) -> None:
    """Give a matrix of integers one of STRUCTURES, in place.

    No element becomes larger than the largest.
    """
    rows, columns = matrix.shape
    if kind == "sparse":
        matrix *= rng.random(matrix.shape) < 0.5
        matrix[rows // 2] = 0
        matrix[:, columns // 2] = 0
        matrix[: rows // 2, : columns // 4] = 0
    elif kind.startswith("constant"):
        lines = matrix if kind == "constant rows" else matrix.T
        last = lines[1::2, -1].copy()
        lines[...] = lines[:, :1].copy()
        lines[1::2, -1] = last
    elif kind.startswith("symmetric"):
        square = matrix[: min(rows, columns), : min(rows, columns)]
        square[...] = np.triu(square) + np.triu(square, 1).T
        # A corner whose tiles have sums of 0, also weighted by places: the signs of Thue and Morse.
        corner = square[len(square) // 2 :, len(square) // 2 :]
        signs = [(-1) ** place.bit_count() for place in range(len(corner))]
        corner[...] = np.outer(signs, signs) * np.abs(square).max()
    else:
        drawn = matrix.copy()
        matrix[...] = np.eye(rows, columns)
        if kind == "nearly the identity":
            is_changed = rng.random(matrix.shape) < 1 / 16
            is_changed[: rows // 2] = False
            is_changed[:, : columns // 2] = False
            is_changed[-1, columns // 2] = True
            is_changed &= matrix == 0
            matrix[is_changed] = drawn[is_changed]
        elif kind == "diagonal":
            end = min(matrix.shape) - 1
            matrix[end, end] = -np.abs(drawn).max()


@dataclass(frozen=True)
class ExactProblem:
    """One launch C = alpha A B + beta C with one right result.

    stretched: the powers of two in A and in B
    initial_c: what C holds before the launch, a matrix or one value for every element; None for a
    sentinel
    """

    family: str
    a: Float32
    b: Float32
    stretched: tuple[float, float] = (1.0, 1.0)
    alpha: float = 1.0
    beta: float = 0.0
    initial_c: Float32 | float | None = None

    @property
    def shape(self) -> Shape:  # noqa: D102
        return Shape(self.a.shape[0], self.b.shape[1], self.a.shape[1])

    @property
    def usual(self) -> bool:
        """True if alpha is 1 and beta 0."""
        return (self.alpha, self.beta) == (1, 0)

    def result(
        self, product: Float64 | Float32, alpha: float | None = None, beta: float | None = None
    ) -> Float32:
        """Return alpha A B + beta C.

        product: A B, or a part of it
        alpha, beta: other scalars than this problem's
        """
        if alpha is None:
            alpha = self.alpha
        if beta is None:
            beta = self.beta
        old = 0.0 if self.initial_c is None or beta == 0 else self.initial_c
        return (alpha * product + beta * old).astype(np.float32)

    def wrong_scalar(self, c: Float32, product: Float64 | Float32) -> str:
        """Return the mistake in alpha or beta that gives this C; "" if there is none.

        product: A B, or a part of it
        """
        beta_as_1 = "beta is taken as 1"
        if self.alpha == 0:
            beta_as_1 += ", or C was never written"
        mistakes = {
            "alpha is ignored": (1.0, self.beta),
            "alpha has the wrong sign": (-self.alpha, self.beta),
            "alpha is applied twice": (self.alpha**2, self.beta),
            "beta has the wrong sign": (self.alpha, -self.beta),
            "beta is ignored": (self.alpha, 0.0),
            beta_as_1: (self.alpha, 1.0),
            "alpha multiplies beta C, too": (self.alpha, self.alpha * self.beta),
        }
        with np.errstate(over="ignore"):
            matching = [
                text
                for text, scalars in mistakes.items()
                if np.array_equal(c, self.result(product, *scalars))
            ]
        return " or ".join(matching)

    def with_long_operands(
        self, claim: ClaimedResult, rng: np.random.Generator
    ) -> Iterator[ExactProblem]:
        """Yield the same launch with long operands in A alone, and in B alone.

        Strassen's algorithm multiplies sums of elements, and rounds the products of two long ones.
        """
        for name in ALONE:
            a, b = family(name, self.shape, rng, claim, headroom=HEADROOM)
            yield replace(self, a=a, b=b)

    @property
    def around_1(self) -> ExactProblem:
        """The same problem without the powers of two."""
        factor_a, factor_b = (1 / scale for scale in self.stretched)
        initial_c = None if self.initial_c is None else self.initial_c * factor_a * factor_b
        return replace(
            self,
            a=self.a * factor_a,
            b=self.b * factor_b,
            initial_c=initial_c,
            stretched=(1.0, 1.0),
        )


class Projection:
    """An exact problem, reduced to two vectors on each side.

    The old C has one value for every element. C is right if C X == alpha A (B X) + beta C0 X, and
    Y C == alpha (Y A) B + beta Y C0. So no product need be computed.

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
        """Return A B + C, projected on weights, as it should be: with alpha and beta."""
        old = self.problem.beta * float(self.problem.initial_c or 0.0)
        expected: Float64 = self.problem.alpha * multiply(
            a, multiply(b, weights)
        ) + old * weights.sum(axis=0)
        return expected

    def wrong_rows(self, c: Float32) -> Indices:
        """Return the indices of the rows of C that can't be right.

        c: may hold anything, also NaN and infinity
        """
        return self._wrong(c, self._right, self._rows)

    def wrong_columns(self, c: Float32) -> Indices:
        """Return the indices of the columns of C that can't be right.

        They are rows of the transposed problem.
        """
        return self._wrong(
            c.T, self._left, self._expected(self.problem.b.T, self.problem.a.T, self._left)
        )

    def _wrong(self, c: Float32, weights: Float64, expected: Float64) -> Indices:
        """Return the indices of the rows that can't be right.

        Their projection on weights isn't as expected, or an element isn't a multiple of the unit.
        """
        unit = abs(self.problem.alpha) * self.problem.stretched[0] * self.problem.stretched[1]
        with np.errstate(over="ignore", invalid="ignore"):
            wrong = (multiply(c, weights) != expected).any(axis=1)
            # An element that isn't a multiple of the unit, a power of two, could hide in the
            # rounding of a long sum.
            for slab in _slabs(c):
                units = c[slab] * np.float32(1 / unit)
                wrong[slab] |= (units != np.rint(units)).any(axis=1)
        return np.flatnonzero(wrong)


def _weights(rng: np.random.Generator, size: int) -> Float64:
    """Return integers below 2^16, two for each element of a row.

    For more than 8192 elements they are so much smaller that their sums stay exact.
    """
    bits = PROJECTION_BITS - max(0, math.ceil(math.log2(size)) - 13)
    return rng.integers(1, 2 ** max(1, bits), (size, 2)).astype(np.float64)


def multiply(matrix: Float32, vectors: Float64) -> Float64:
    """Return a matrix times vectors in FP64.

    matrix: (R, S) float32
    vectors: (S, V) float64
    """
    result = np.empty((matrix.shape[0], vectors.shape[1]))
    for slab in _slabs(matrix):
        result[slab] = matrix[slab].astype(np.float64) @ vectors
    return result


def _slabs(matrix: Float32) -> Iterator[slice]:
    """Return slices of a matrix's rows, as many rows as fit a CPU's cache in float64.

    That is several times faster than all rows at once.
    """
    step = max(1, SLAB // max(1, matrix.shape[1]))
    return (slice(start, start + step) for start in range(0, matrix.shape[0], step))


def error_map(
    c: Float32 | Float64,
    expected: Float32 | Float64,
    sentinel: np.float32 | np.float64,
    factors: tuple[Float64 | Float32, Float32] | None = None,
    *,
    wrong: Which | None = None,
) -> ErrorMap:
    """Return a map of where C differs from what is expected, and a guess of the cause.

    c, expected: (M, N)
    factors: alpha A and B, to search for missing terms
    wrong: the wrong elements; None for all that differ
    """
    mask = c != expected if wrong is None else wrong
    rows = np.flatnonzero(mask.any(axis=1))
    columns = np.flatnonzero(mask.any(axis=0))
    notes: list[str] = []
    guess = apart(
        "the search for its cause",
        lambda: _guess(c, expected, mask, sentinel=sentinel, factors=factors),
        "",
        notes,
    )
    tile, shares = _shares_of_tiles(mask)
    return ErrorMap(
        (c.shape[0], c.shape[1]),
        int(mask.sum()),
        c.size,
        whereabouts(rows, c.shape[0], "row"),
        whereabouts(columns, c.shape[1], "column"),
        tile,
        shares,
        " ".join(filter(None, (guess, *notes))),
    )


def _shares_of_tiles(mask: Which) -> tuple[tuple[int, int], tuple[tuple[float, ...], ...]]:
    """Return the size of a tile, and the share of wrong elements in each tile.

    Tiles have sides of powers of two that cut C into at most MOST_TILES per side. Those at the
    edges can be smaller.
    """
    height, width = (1 << max(0, int(np.ceil(np.log2(size / MOST_TILES)))) for size in mask.shape)
    tops = np.arange(0, mask.shape[0], height)
    lefts = np.arange(0, mask.shape[1], width)
    counts = np.add.reduceat(np.add.reduceat(mask.astype(np.int64), tops, axis=0), lefts, axis=1)
    heights = np.minimum(height, mask.shape[0] - tops)
    widths = np.minimum(width, mask.shape[1] - lefts)
    shares = counts / np.outer(heights, widths)
    return (height, width), tuple(map(tuple, shares.round(4).tolist()))


def _guess(
    c: Any,
    expected: Any,
    mask: Which,
    *,
    sentinel: np.floating[Any],
    factors: tuple[Float64 | Float32, Float32] | None,
) -> str:
    """Return what the wrong elements suggest, or "".

    factors: as for error_map
    """
    guess = _value_guess(c, expected, mask, sentinel)
    if not guess and factors is not None:
        a, b = factors
        guess = _missing_terms(c, expected, mask, a=a, b=b)
    # A single element of a product is neither a row nor a column.
    is_one_element = factors is not None and mask.sum() == 1
    if guess not in ("", UNWRITTEN) or is_one_element:
        return guess
    rows = np.flatnonzero(mask.any(axis=1))
    columns = np.flatnonzero(mask.any(axis=0))
    return f"{guess} {_place_guess(rows, columns, mask.shape)}".strip()


def _value_guess(c: Any, expected: Any, mask: Which, sentinel: np.floating[Any]) -> str:
    """Return what the wrong values suggest, or ""."""
    wrong = c[mask]
    right = expected[mask]
    if (wrong == sentinel).all():
        return NEVER_WRITTEN if mask.all() else UNWRITTEN
    if not np.isfinite(wrong).all():
        return f"NaN or infinity: {READ_OUTSIDE} a value overflowed."
    if len(wrong) > 3 and mask.mean() > 1 / 2 and np.array_equal(np.sort(wrong), np.sort(right)):
        return "The right values are at other places: an index of C is wrong."
    ratio = np.unique(wrong[right != 0].astype(np.float64) / right[right != 0])
    if len(wrong) > 3 and len(ratio) and np.ptp(ratio) < 1e-6 * abs(ratio[0]):
        return f"Every wrong element is {ratio[0]:.6g} times the right one."
    return ""


def _missing_terms(c: Any, expected: Any, mask: Which, *, a: Float64 | Float32, b: Float32) -> str:
    """Return what the differences suggest, or "".

    They suggest terms whose absence, or second presence, explains every wrong element, if only one
    candidate does. Or they suggest operands of fewer bits, if most elements are wrong by no more
    than that.
    """
    places = np.argwhere(mask)
    sample = places[:: max(1, len(places) // SAMPLES)][:SAMPLES]
    rows = sample[:, 0]
    columns = sample[:, 1]
    terms = a[rows].astype(np.float64) * b[:, columns].T.astype(np.float64)  # (samples, K)
    error = (c[rows, columns].astype(np.float64) - expected[rows, columns])[:, None]
    # Sums from some term to the end, and from the start to some term: a loop that is too short
    # leaves them out.
    tails = np.cumsum(terms[:, ::-1], axis=1)[:, ::-1]
    heads = np.cumsum(terms, axis=1)
    candidates = (
        (-tails, "The terms from k = {k} to the end are missing"),
        (-terms, "The term k = {k} is missing"),
        (-heads, "The terms up to k = {k} are missing"),
        (terms, "The term k = {k} is added twice"),
    )
    for differences, text in candidates:
        explaining = np.flatnonzero((differences == error).all(axis=0))
        if len(explaining) == 1:
            return f"{text.format(k=explaining[0])} in every wrong element (K = {terms.shape[1]})."
    if replaced := _replaced_terms(terms, error):
        return replaced
    for type_ in EIGHT_BITS:
        if _is_product_of_eights(
            c[rows, columns], expected[rows, columns], a[rows], b.T[columns], type_
        ):
            return f"A and B are rounded to FP8 ({type_})."
    rounding = np.abs(terms).sum(axis=1) / 2 ** OPERAND_BITS["bf16"]
    if (np.abs(error[:, 0]) <= rounding).all() and len(places) > mask.size / 2:
        return "An operand lost its low bits: TF32, FP16 or BF16?"
    return ""


def _is_product_of_eights(c: Any, expected: Any, a: Any, b: Any, type_: str) -> bool:
    """Return whether wrong elements are right for operands that are rounded to 8-bit floats.

    a, b: the factors of each element, (samples, K)
    """
    terms = _rounded_to_eight(a, type_) * _rounded_to_eight(b, type_)
    product = terms.sum(axis=1)
    tolerance = SHORT_SUMS * np.abs(terms).sum(axis=1)
    is_equal = np.abs(c - product) <= tolerance
    is_other = np.abs(expected - product) > tolerance
    return bool(is_equal.all() and is_other.mean() > 1 / 2)


def _rounded_to_eight(values: Any, type_: str) -> Float64:
    """Return numbers as 8-bit floats have them, at most the largest one in size."""
    fraction, lowest, largest = EIGHT_BITS[type_]
    exponents = np.maximum(np.frexp(values.astype(np.float64))[1] - 1, lowest)
    unit = np.ldexp(1.0, exponents - fraction)
    rounded: Float64 = np.clip(np.rint(values / unit) * unit, -largest, largest)
    return rounded


def _replaced_terms(terms: Float64, error: Float64) -> str:
    """Return which last terms are missing while those before them are added twice, or "".

    terms: of some wrong elements, (samples, K)
    error: of the same elements, (samples, 1)
    """
    count = terms.shape[1]
    sums = np.concatenate([np.zeros((len(terms), 1)), np.cumsum(terms, axis=1)], axis=1)
    lengths = np.arange(1, count // 2 + 1)
    last = sums[:, [count]] - sums[:, count - lengths]
    former = sums[:, count - lengths] - sums[:, count - 2 * lengths]
    explaining = np.flatnonzero((former - last == error).all(axis=0))
    if len(explaining) != 1:
        return ""
    length = int(lengths[explaining[0]])
    return (
        f"The last {length} terms, from k = {count - length}, are missing in every wrong element, "
        f"and the {length} before them are added twice (K = {count}): a stale buffer?"
    )


def _place_guess(rows: Indices, columns: Indices, shape: tuple[int, ...]) -> str:
    """Return what the places of the wrong elements suggest, or ""."""
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
        return (
            f"{tile}: one block or warp computed another tile, or read data too early or too "
            "late (a race)."
        )
    for indices, name in ((rows, "row"), (columns, "column")):
        if len(indices) > 2 and (_step(indices) or 0) > 1:
            return (
                f"Every {_ordinal(_step(indices) or 0)} {name}: one thread or one pass of each "
                "tile."
            )
    return ""


def _step(indices: Indices) -> int | None:
    """Return the constant distance between neighbours, 1 for a single index, or None."""
    steps = set(np.diff(indices).tolist())
    if not steps:
        return 1
    return steps.pop() if len(steps) == 1 else None


def _ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, …"""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def whereabouts(indices: Indices, total: int, name: str) -> str:
    """Return a set of rows or columns in words.

    With the step between them if it is constant.
    """
    if len(indices) == total:
        return f"all {total} {name}s"
    if len(indices) == 1:
        return f"{name} {indices[0]}"
    step = _step(indices)
    if step == 1:
        return f"{name}s {indices[0]} to {indices[-1]}"
    listed = ", ".join(map(str, indices[:4])) + (", …" if len(indices) > 4 else "")
    return f"{len(indices)} {name}s ({listed}{f', every {_ordinal(step)}' if step else ''})"
