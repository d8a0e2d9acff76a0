"""The comparisons with which other harnesses accept an SGEMM's C.

Each is a pure function of C and `Expected`. worklog.peers.checks states which harness uses it, where that was read, and
with which inputs, sizes and old contents of C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from worklog.problem.gemm import Float32, Float64

EPS32 = 2.0**-23


@dataclass(frozen=True)
class Expected:
    """The right content of C. product: alpha A B + beta C in FP64, (M, N). inputs: A, B and C before the launch.
    behind: whether the memory behind C is unchanged.
    """

    product: Float64
    inputs: tuple[Float32, Float32, Float32]
    alpha: float = 1.0
    beta: float = 0.0
    behind: bool = True


Rule = Callable[[Float32, Expected], bool]


def _error(c: Float32, expected: Expected) -> Float64:
    error: Float64 = np.abs(c - expected.product)
    return error


def close(rtol: float, atol: float) -> Rule:
    """|C - reference| <= atol + rtol |reference| in every element, as torch.allclose: NaN equals nothing."""

    def rule(c: Float32, expected: Expected) -> bool:
        return bool((_error(c, expected) <= atol + rtol * np.abs(expected.product)).all())

    return rule


def equal_nan(c: Float32, expected: Expected) -> bool:
    """assert_close with atol = rtol = 1e-2, where NaN equals NaN."""
    return bool(np.allclose(c, expected.product, rtol=1e-2, atol=1e-2, equal_nan=True))


def largest_share(c: Float32, expected: Expected) -> bool:
    """max|C - reference| / max|reference| < 1e-2."""
    return bool(_error(c, expected).max() / np.abs(expected.product).max() < 1e-2)


def most_of_them(c: Float32, expected: Expected) -> bool:
    """|C - reference| <= 1e-2 + 1e-2 |reference| for 99 % of the elements; NaN, infinity and an all-zero C fail."""
    if not np.isfinite(c).all() or not c.any():
        return False
    near = _error(c, expected) <= 1e-2 + 1e-2 * np.abs(expected.product)
    return bool(near.mean() >= 0.99)


def either(c: Float32, expected: Expected) -> bool:
    """Fails where the absolute and the relative error both exceed 1e-2, and for NaN and infinity."""
    error = _error(c, expected)
    return bool(np.isfinite(c).all()) and not bool(((error > 1e-2) & (error > 1e-2 * np.abs(expected.product))).any())


def no_difference_above(c: Float32, expected: Expected) -> bool:
    """Fails where |C - reference| > 0.01, which is false for NaN."""
    with np.errstate(invalid="ignore"):
        return not bool((_error(c, expected) > 0.01).any())


def relative(c: Float32, expected: Expected) -> bool:
    """|C - reference| / |reference| <= 1e-4 in every element; NaN and infinity fail."""
    with np.errstate(divide="ignore", invalid="ignore"):
        wrong = _error(c, expected) / np.abs(expected.product) > 1e-4
    return bool(np.isfinite(c).all()) and not bool(wrong.any())


def exact_up_to_2047(c: Float32, expected: Expected) -> bool:
    """Equal, where the reference is not above 2047; memory beside the matrices is unchanged."""
    same = (c == expected.product) | (np.abs(expected.product) > 2047)
    return expected.behind and bool(same.all()) and not bool(np.isnan(c).any())


def in_eps_of_its_terms(c: Float32, expected: Expected) -> bool:
    """|C - reference| < 16 eps (|alpha| |A||B| + |beta||C|) in every element; memory beside C is unchanged."""
    a, b, old = (np.abs(matrix.astype(np.float64)) for matrix in expected.inputs)
    gauge = abs(expected.alpha) * (a @ b) + abs(expected.beta) * old
    return expected.behind and bool((_error(c, expected) <= 16 * EPS32 * gauge).all())
