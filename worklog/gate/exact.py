"""Questions with exactly one right answer: integer inputs whose every partial sum, in every order, is an exact FP32
integer.

While sum |a||b| <= 2^24 for each element of C, no correct FP32 algorithm rounds anything, whatever its order, its
splits or its use of fused multiply-adds. So the comparison needs no tolerance, at the real benchmark shape too, and
it refuses dropped, stale, doubled and misplaced terms as well as operands cut to 11 or 8 bits (TF32, FP16, BF16).
Atomics become deterministic, too, so that two launches must agree bit by bit.

Families: E1 dense integers as large as K allows (the structure); E2 odd 12-bit A with B = ±1, and E3 the reverse (the
precision of each operand, which E1's few bits cannot show). A subject that claims a shorter format gets E1 alone,
with integers that its format holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from worklog.gemm import Float32, Float64, Shape
from worklog.ladder import Domain

Indices = np.ndarray[tuple[int], np.dtype[np.intp]]

EXACT_LIMIT = 2**24
PROJECTION_BITS = 16
FAMILIES = ("E1", "E2", "E3")
OPERAND_BITS = {
    "tf32": 11,
    "fp16": 11,
    "bf16": 8,
}  # significands of the shorter formats; integers up to 2^bits are exact


def families(claimed: str = "fp32") -> tuple[str, ...]:
    """The families that a kernel of this class must answer exactly."""
    return FAMILIES[:1] if claimed in OPERAND_BITS else FAMILIES


def family(name: str, shape: Shape, rng: np.random.Generator, claimed: str = "fp32") -> tuple[Float32, Float32]:
    """A (M x K) and B (K x N) of one family, float32 integers with sum |a||b| <= 2^24 for every element of the
    product.
    """
    if name == "E1":
        bits = min(OPERAND_BITS.get(claimed, 11), (24 - math.ceil(math.log2(shape.k))) // 2)
        return _nonzero(rng, (shape.m, shape.k), 2**bits - 1), _nonzero(rng, (shape.k, shape.n), 2**bits - 1)
    if name == "E2":
        return _odd_12_bit(rng, (shape.m, shape.k)), _signs(rng, (shape.k, shape.n), along=0)
    return _signs(rng, (shape.m, shape.k), along=1), _odd_12_bit(rng, (shape.k, shape.n))


def _nonzero(rng: np.random.Generator, size: tuple[int, int], largest: int) -> Float32:
    """Uniform over -largest ... -1, 1 ... largest: a zero would hide a stale partner."""
    values = rng.integers(1, 2 * largest + 1, size, dtype=np.int16)
    return np.where(values > largest, largest - values, values).astype(np.float32)


def _odd_12_bit(rng: np.random.Generator, size: tuple[int, int]) -> Float32:
    """Odd integers below 2^12 in size: their last bit is lost by any format with an 11-bit significand."""
    return (rng.integers(-2048, 2048, size, dtype=np.int16) * 2 + 1).astype(np.float32)


def _signs(rng: np.random.Generator, size: tuple[int, int], along: int) -> Float32:
    """±1, thinned to at most 4096 nonzeros along K so that 4096 terms of 12 bits stay within 2^24."""
    values = (rng.integers(0, 2, size, dtype=np.int8) * 2 - 1).astype(np.float32)
    terms = size[along]
    if terms > EXACT_LIMIT // 4096:
        kept = rng.permutation(terms)[: EXACT_LIMIT // 4096]
        mask = np.zeros(terms, dtype=bool)
        mask[kept] = True
        values *= mask[:, None] if along == 0 else mask[None, :]
    return values


# Around warps and tiles, down to a single element; M, N and K all different.
ANY_SIZES = (
    (1, 7, 2),
    (7, 1, 33),
    (16, 31, 1),
    (31, 65, 17),
    (33, 16, 129),
    (64, 127, 9),
    (65, 33, 64),
    (127, 129, 8),
    (129, 64, 31),
    (130, 190, 70),
)
FINE = 16  # a step up to this is small against a tile: sizes are rounded up to it, not counted in it


def ragged_shapes(domain: Domain) -> list[Shape]:
    """Small shapes inside the domain, none with M = N: what squares and powers of two hide shows here.

    For a kernel that takes anything, or any multiple of a few: sizes around warps and tiles. For one that takes whole
    tiles: one to five tiles a side in different mixes, wide and tall, the fewest K steps included.
    """
    if domain.m > FINE and domain.n > FINE:
        wide, tall = max(2, domain.m // domain.n + 1), max(2, domain.n // domain.m + 1)
        mixes = ((1, wide, 3), (tall, 1, 1), (3, 2, 5), (2, 3, 2))
        shapes = [Shape(m * domain.m, n * domain.n, k * domain.k) for m, n, k in mixes]
    else:
        steps = (domain.m, domain.n, domain.k)
        shapes = [
            Shape(*(_multiple(step, size, index) for step, size in zip(steps, sizes, strict=True)))
            for index, sizes in enumerate(ANY_SIZES)
        ]
    return [shape for shape in dict.fromkeys(shapes) if shape.m != shape.n]


def _multiple(step: int, size: int, index: int) -> int:
    """A multiple of step: the first from size on, or for a coarse step one of the first three."""
    return -(-size // step) * step if step <= FINE else step * (1 + index % 3)


@dataclass(frozen=True)
class Projection:
    """A product reduced to two vectors on each side: C is right if C X == A (B X), and Y C == (Y A) B.

    X (N x 2) and Y (2 x M) hold random integers below 2^16; all sums stay below 2^53, so FP64 is exact and no product
    C need be computed (Freivalds, 1977). A wrong row survives one column of X with a chance of about 2^-16, two with
    2^-32. Y is asked only where a row is wrong, to find the columns. An element that is no integer could hide in the
    rounding of a long sum, so each is looked at.
    """

    right: Float64
    right_expected: Float64
    left: Float64
    left_expected: Float64

    @classmethod
    def of(cls, a: Float32, b: Float32, rng: np.random.Generator) -> Projection:
        """Draw X and Y; compute A (B X) and (Y A) B, in FP64."""
        right, left = _weights(rng, b.shape[1]), _weights(rng, a.shape[0])
        from_left = multiply(b.T, multiply(a.T, left))
        return cls(right, multiply(a, multiply(b, right)), left, from_left)

    def wrong_rows(self, c: Float32) -> Indices:
        """Indices of the rows of C that cannot be right."""
        with np.errstate(invalid="ignore", over="ignore"):  # a wrong C may hold anything: it only has to differ
            wrong = (multiply(c, self.right) != self.right_expected).any(axis=1)
        return np.flatnonzero(wrong | (c != np.rint(c)).any(axis=1))

    def wrong_columns(self, c: Float32) -> Indices:
        """Indices of the columns of C that cannot be right."""
        with np.errstate(invalid="ignore", over="ignore"):
            wrong = (multiply(c.T, self.left) != self.left_expected).any(axis=1)
        return np.flatnonzero(wrong | (c != np.rint(c)).any(axis=0))


def _weights(rng: np.random.Generator, size: int) -> Float64:
    """Integers below 2^16, or for more than 8192 of them below so much less that their sums stay exact."""
    bits = PROJECTION_BITS - max(0, math.ceil(math.log2(size)) - 13)
    return rng.integers(1, 2 ** max(1, bits), (size, 2)).astype(np.float64)


def multiply(matrix: Float32, vectors: Float64) -> Float64:
    """matrix (R x S, float32) times vectors (S x V, float64) in FP64, a slab of rows at a time so that memory stays
    small.
    """
    result = np.empty((matrix.shape[0], vectors.shape[1]))
    step = max(1, 2**22 // max(1, matrix.shape[1]))
    for start in range(0, matrix.shape[0], step):
        result[start : start + step] = matrix[start : start + step].astype(np.float64) @ vectors
    return result
