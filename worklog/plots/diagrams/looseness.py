"""How large the errors are that the article's rule lets through, in the gate's own unit.

The rule, max|error| / max|reference| < 0.01, and the mistakes beside it are worked out here on inputs like the timed
ones (U(-1, 1), the same K): rounded operands, a wrong factor, a forgotten product. Nothing of it is measured on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from worklog.problem.gemm import Shape, random_inputs, sampled_reference

ARTICLE_TOLERANCE = 1e-2
ROWS, COLUMNS, SEED = 32, 512, 0
SIGNIFICANDS = {"TF32 inputs": 11, "BF16 inputs": 8}  # bits, the hidden one included
SLIP = 1e-3
UNIT_ROUNDOFF = float(np.finfo(np.float32).eps) / 2


@dataclass(frozen=True)
class Looseness:
    """Errors in u·D. tolerance: the article's limit. mistakes: the largest error of each, by name."""

    tolerance: float
    mistakes: dict[str, float]

    @property
    def passing(self) -> list[str]:
        """The mistakes that the article's rule takes for rounding."""
        return [name for name, error in self.mistakes.items() if error < self.tolerance]


@lru_cache
def looseness(k: int) -> Looseness:
    """The article's limit and some mistakes, for products over K terms."""
    a, b = random_inputs(Shape(ROWS, COLUMNS, k), np.random.default_rng(SEED))
    reference, gauge = sampled_reference(a, b, np.arange(ROWS))
    unit = UNIT_ROUNDOFF * gauge
    largest = float(np.abs(reference).max())

    def in_units(error: NDArray[np.float64]) -> float:
        return _three_digits(float((np.abs(error) / unit).max()))

    mistakes = {
        name: in_units(_rounded(a, bits) @ _rounded(b, bits) - reference) for name, bits in SIGNIFICANDS.items()
    }
    mistakes[f"all of C × {1 + SLIP:g}"] = in_units(SLIP * reference)
    # A typical product: half of those of two numbers of U(-1, 1) are larger.
    typical = float(np.median(np.abs(np.outer(a[:, 0], b[0]))))
    mistakes[f"one product of {k} forgotten"] = _three_digits(typical / float(np.median(unit)))
    return Looseness(_three_digits(ARTICLE_TOLERANCE * largest / float(np.median(unit))), mistakes)


def _three_digits(number: float) -> float:
    """Rounded, so that another machine's order of additions does not show in the figure."""
    return float(f"{number:.3g}")


def _rounded(matrix: NDArray[np.float32], bits: int) -> NDArray[np.float64]:
    """The matrix with significands of so many bits, rounded to nearest."""
    fraction, exponent = np.frexp(matrix.astype(np.float64))
    rounded: NDArray[np.float64] = np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits)
    return rounded
