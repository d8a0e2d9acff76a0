"""What the article's tolerance, max|error| / max|reference| < 0.01, lets through, in the gate's own unit."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from worklog.problem import Shape, random_inputs, sampled_reference

ARTICLE_TOLERANCE, UNIT_ROUNDOFF = 1e-2, 2.0**-24
ROWS, COLUMNS, SEED, SLIP = 32, 512, 0, 1e-3
SIGNIFICANDS = {"TF32 inputs": 11, "BF16 inputs": 8}  # bits, the hidden one included


@lru_cache
def computed_errors(k: int) -> tuple[float, dict[str, float]]:
    """The article's tolerance and the largest error of some mistakes, in u·D, for products of K terms.

    They are computed on inputs like the timed ones (U(-1, 1), the same K), to three digits, so that another machine's
    order of additions does not show.
    """
    a, b = random_inputs(Shape(ROWS, COLUMNS, k), np.random.default_rng(SEED))
    reference, norm = sampled_reference(a, b, np.arange(ROWS))
    unit, typical = UNIT_ROUNDOFF * norm, UNIT_ROUNDOFF * float(np.median(norm))

    def rounded(matrix: NDArray[np.float32], bits: int) -> NDArray[np.float64]:
        fraction, exponent = np.frexp(matrix.astype(np.float64))
        return np.asarray(np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits))

    errors = {name: rounded(a, bits) @ rounded(b, bits) - reference for name, bits in SIGNIFICANDS.items()}
    errors[f"all of C × {1 + SLIP:g}"] = SLIP * reference
    mistakes = {name: float((np.abs(error) / unit).max()) for name, error in errors.items()}
    # Half of the products of two numbers of U(-1, 1) are larger than this one.
    mistakes[f"one of {k} products missing"] = float(np.median(np.abs(np.outer(a[:, 0], b[0])))) / typical
    tolerance = ARTICLE_TOLERANCE * float(np.abs(reference).max()) / typical
    return float(f"{tolerance:.3g}"), {name: float(f"{error:.3g}") for name, error in mistakes.items()}
