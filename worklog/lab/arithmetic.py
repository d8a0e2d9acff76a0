"""FP32 and shorter formats in NumPy, with the same bits on every CPU: for the notebooks on errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def summed(a: Array, b: Array, dtype: Any = np.float32) -> Array:
    """a (M, K) times b (K, N), one product after the other along K, as the naive kernel adds them. NumPy's `@` calls a
    library, whose order of additions depends on the CPU.
    """
    c = np.zeros((len(a), b.shape[1]), dtype)
    for column, row in zip(a.T.astype(dtype), b.astype(dtype), strict=True):
        c += np.multiply.outer(column, row)
    return c


def rounded(x: Array, bits: int) -> Array:
    """x in FP32, rounded to a significand of that many bits: 11 for TF32 and FP16, 8 for BF16."""
    fraction, exponent = np.frexp(x)
    short: Array = np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits)
    return short.astype(np.float32)
