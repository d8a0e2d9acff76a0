"""Exact problems for paths of a kernel that the listed shapes don't reach, drawn anew in each check: a fast path for
whole tiles, a pipeline with as many steps as stages, an update of its own for alpha = -1 and beta = 1, a guess from C's
old contents or from samples of A.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from worklog.gate import exact
from worklog.gate.exact import ExactProblem
from worklog.problem import Domain, Float32, Shape

TILES = 16, 24, 32, 48, 64, 96, 128  # sides of whole tiles
TILED = 3  # problems of whole tiles
STEPS, STRATUM = 10, 32  # K is drawn once from each of so many ranges of this length
PARTNER = 33  # M and N beside a long K, or one beside many tiles, are smaller
LONG_K = 512, 2048
MOST_TERMS = 2**21  # M N K of a drawn problem
ONES = (0.0, 1.0, -1.0)  # alpha and beta, all pairs
FEW_TERMS = 8
FEW_BITS = (1 + 2.0**-12, 1 - 2.0**-12, 2.0**-12, 2.0**-20)  # alpha; exact with sums of few bits
CHANGED = 3  # most elements that are changed in special data
SQUARE = 45  # side of a symmetric A, and rows of the problem of an old C
LARGE = 1500  # sides of the problems on a GPU
LARGE_DRAWN = 2


def problems(domain: Domain, claimed: str, rng: np.random.Generator, *, large: bool) -> Iterator[ExactProblem]:
    """All of them, in the domain. large: also a few of up to LARGE rows, columns and terms."""
    yield from _scalars(domain, claimed, rng)
    for shape in (*_depths(rng), *_tiles(rng)):
        yield _exact(domain.padded(shape), domain, claimed, rng)
    yield from _old_results(domain, claimed, rng)
    yield from _nearly_special(domain, claimed, rng)
    for _ in range(LARGE_DRAWN if large else 0):
        yield _exact(domain.padded(Shape(*(_size(rng, 1, LARGE) for _ in range(3)))), domain, claimed, rng)


def _size(rng: np.random.Generator, least: int, most: int) -> int:
    """Log-uniform."""
    return int(np.exp(rng.uniform(np.log(least), np.log(most + 1))))


def _depths(rng: np.random.Generator) -> list[Shape]:
    """A few rows and columns with each number of steps, and a long K."""
    terms = [STRATUM * step + int(rng.integers(1, STRATUM + 1)) for step in range(STEPS)]
    sides = ((int(m), int(n)) for m, n in rng.integers(1, PARTNER, (STEPS + 1, 2)))
    return [Shape(m, n, k) for (m, n), k in zip(sides, (*terms, _size(rng, *LONG_K)), strict=True)]


def _tiles(rng: np.random.Generator) -> list[Shape]:
    """Whole tiles along each side, each with its own size."""
    shapes = []
    for most in (128, 96, *rng.choice(TILES, TILED - 2).tolist()):  # the first are whole tiles of most sizes
        m, n, k = most, int(rng.choice(TILES)) if most < 96 else most, int(rng.choice((32, 64, 128)))
        room = max(1, MOST_TERMS // (m * n * k))
        more = [int(rng.integers(1, min(3, room) + 1)), 1, 1]
        times = rng.permutation(more).tolist()
        shapes.append(Shape(m * times[0], n * times[1], k * times[2]))
    return shapes


def _exact(shape: Shape, domain: Domain, claimed: str, rng: np.random.Generator) -> ExactProblem:
    """With scalars that the kernel takes, of which beta is not 0."""
    alpha, beta = float(rng.choice((1.0, -1.0, 2.0))) if domain.alpha else 1.0, float(rng.choice((1.0, -1.0)))
    a, b = exact.family("E1", shape, rng, claimed, exact.HEADROOM)
    if not domain.beta:
        return ExactProblem("E1", a, b, alpha=alpha)
    return ExactProblem("E1", a, b, alpha=alpha, beta=beta, before=_integers(rng, (shape.m, shape.n)))


def _integers(rng: np.random.Generator, size: tuple[int, int], most: int = 2**16) -> Float32:
    return rng.integers(-most, most, size).astype(np.float32)


def _scalars(domain: Domain, claimed: str, rng: np.random.Generator) -> Iterator[ExactProblem]:
    """All pairs of 0, 1 and -1, and alpha with few bits, or nearly 1, on a tiny shape."""
    shape = domain.padded(Shape(*rng.integers(1, 20, 3).tolist()))
    pairs = [pair for pair in product(ONES, ONES) if pair != (1.0, 0.0)]
    if claimed not in exact.OPERAND_BITS:  # which may round alpha A
        pairs += [(alpha, 1.0) for alpha in FEW_BITS]
    for alpha, beta in pairs:
        if (alpha == 1 or domain.alpha) and (beta == 0 or domain.beta):
            a, b = _integers(rng, (shape.m, shape.k), 4), _integers(rng, (shape.k, shape.n), 4)
            a[:, FEW_TERMS:] = 0
            before = _integers(rng, (shape.m, shape.n), 8) if beta else None
            yield ExactProblem("small integers", a, b, alpha=alpha, beta=beta, before=before)


def _old_results(domain: Domain, claimed: str, rng: np.random.Generator) -> Iterator[ExactProblem]:
    """With beta = 0, C holds zeros, or the right result of a problem that differs in one row of A."""
    shape = domain.padded(Shape(SQUARE, SQUARE, 16))
    a, b = exact.family("E1", shape, rng, claimed)
    yield ExactProblem("E1 over a C of zeros", a, b, before=0.0)
    other = a.copy()
    other[int(rng.integers(shape.m))] *= -1
    old = (other.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    yield ExactProblem("E1 over the result of another problem", a, b, before=old)


def _nearly_special(domain: Domain, claimed: str, rng: np.random.Generator) -> Iterator[ExactProblem]:
    """A or B has a structure, the symmetric one too, but for a few elements anywhere."""
    for kind, operand in product(exact.STRUCTURES, range(2)):
        sides = (SQUARE, SQUARE + 3) if operand == 0 else (SQUARE + 3, SQUARE)
        shape = domain.padded(Shape(*sides, SQUARE))
        both = exact.family("E1", shape, rng, claimed, exact.HEADROOM)
        matrix = both[operand]
        drawn = matrix.copy()
        exact.structured(kind, matrix, rng)
        places = rng.permutation(matrix.size)[: int(rng.integers(1, CHANGED + 1))]
        matrix.reshape(-1)[places] = -drawn.reshape(-1)[places]
        yield ExactProblem(f"E1 with {'AB'[operand]} {kind} but for {len(places)} elements", *both)
