"""Shapes that are drawn: powers of two, their neighbours, and primes."""

from __future__ import annotations

from collections.abc import Collection
from math import exp, isqrt, log
from random import Random

from worklog.problem.gemm import Shape

__all__ = ["DRAWN", "MAX_DRAWN", "drawn"]

DRAWN = ("powers of two", "off by one", "primes")  # kinds of shapes
MAX_DRAWN = 8192  # before it is rounded to a power or a prime


def drawn(count: int, seed: int, excluded: Collection[Shape] = ()) -> dict[Shape, str]:
    """Draw different shapes, and return the kind of each.

    Sizes are log-uniform from 1 to MAX_DRAWN.

    The kinds, those of DRAWN, take turns. The same seed draws the same shapes.
    excluded: shapes that aren't drawn
    """
    rng = Random(seed)
    kinds = dict[Shape, str]()
    while len(kinds) < count:
        kind = DRAWN[len(kinds) % len(DRAWN)]
        shape = Shape(*(_draw_size(kind, rng) for _ in range(3)))
        if shape not in excluded:
            kinds.setdefault(shape, kind)
    return kinds


def _draw_size(kind: str, rng: Random) -> int:
    """Return a size of a kind of shapes."""
    number = exp(rng.uniform(0, log(MAX_DRAWN)))
    if kind == "primes":
        candidates = range(max(2, int(number)), 2 * MAX_DRAWN)
        return next(candidate for candidate in candidates if _is_prime(candidate))
    power: int = 2 ** round(log(number, 2))
    return power if kind == "powers of two" else max(1, power + rng.choice((-1, 1)))


def _is_prime(number: int) -> bool:
    """Return whether a number above 1 is prime."""
    return all(number % divisor for divisor in range(2, isqrt(number) + 1))
