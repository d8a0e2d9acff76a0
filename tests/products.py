"""Matrices that are hard for a product in FP32.

Each with how far C is from alpha A B + beta C, by sums in float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.problem import Shape

KINDS = (
    "signs", "positive", "equal", "offset", "scaled lines", "scaled numbers", "cancelling",
    "infinite", "NaN",
    "subnormal", "zeros", "large and small",
)  # fmt: skip
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Product:
    """a, b, c: M x K, K x N and M x N float32 matrices, before the launch."""

    kind: str
    a: Floats
    b: Floats
    c: Floats
    alpha: float
    beta: float


def drawn(seed: int, shape: Shape) -> Product:
    """Return a product by a seed, which also chooses the kind: the kinds take turns."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    a, b, c = (
        rng.uniform(-1, 1, sizes)
        for sizes in ((shape.m, shape.k), (shape.k, shape.n), (shape.m, shape.n))
    )
    if kind in ("positive", "offset"):
        a, b = (abs(x) + (1000 if kind == "offset" else 0) for x in (a, b))
    elif kind == "equal":
        a[...] = 1 / 3
        b[...] = 0.1
    elif kind == "scaled lines":
        a *= 2.0 ** rng.integers(-60, 61, (shape.m, 1))
        b *= 2.0 ** rng.integers(-60, 61, (1, shape.n))
    elif kind == "scaled numbers":
        a, b = (x * 2.0 ** rng.integers(-60, 61, x.shape) for x in (a, b))
    elif kind == "cancelling":  # to 1e-6 of the terms
        half = shape.k // 2
        a[:, half : 2 * half] = -a[:, :half] * (1 + 1e-6 * a[:, half : 2 * half])
        b[half : 2 * half] = b[:half]
    elif kind in ("infinite", "NaN"):
        for x in (a, b):
            x.flat[rng.integers(0, x.size, 2)] = np.inf if kind == "infinite" else np.nan
    elif kind == "subnormal":
        a *= 2.0 ** rng.choice([0, -20, -126, -140], a.shape)
    elif kind == "zeros":
        a[rng.random(a.shape) < 0.7] = 0
        b[rng.random(b.shape) < 0.7] = 0
    elif (
        kind == "large and small"
    ):  # of each small product, a tensor core truncates almost one unit
        a, b = (np.full(x.shape, 2.0**-7 * (1 + 39 / 1024 + 0.9375 * 2.0**-11)) for x in (a, b))
        a[:, 0] = 1
        b[0] = 1
    alpha = rng.choice([1, 1, -0.75, 3])
    beta = rng.choice([0, 0, 1, -1.5])
    return Product(kind, *(x.astype(np.float32) for x in (a, b, c)), float(alpha), float(beta))


def largest_error(product: Product, result: Any, library: Any = np) -> float:
    """Return the largest |error| / (|alpha| |A| |B| + |beta C|).

    That is less what subnormal numbers are rounded by, and infinite if an infinity or a NaN is
    missing, or stands where the product has none.

    result: M x N
    library: of result
    """
    a, b, c = (library.asarray(x.astype(np.float64)) for x in (product.a, product.b, product.c))
    if library is not np:  # CuPy's conversions take subnormal numbers for zeros
        result = library.asarray(result.get().astype(np.float64))
    with np.errstate(all="ignore"):
        exact = product.alpha * (a @ b)
        size = abs(product.alpha) * (abs(a) @ abs(b))
        if product.beta:
            exact, size = exact + product.beta * c, size + abs(product.beta * c)
        error = abs(result - exact) - (abs(product.alpha) * a.shape[1] + 2) * 2.0**-149
        share = library.where(error > 0, error / library.where(size == 0, 2.0**-200, size), 0)
        is_finite = library.isfinite(exact)
        same = (result == exact) | (library.isnan(result) & library.isnan(exact))
    return float(
        library.where(
            is_finite, library.nan_to_num(share, nan=np.inf), library.where(same, 0, np.inf)
        ).max()
    )
