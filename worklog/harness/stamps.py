"""SM clocks from the stamps around a sample; without CuPy, so that it is tested without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

STALE_NS = 1_000_000  # a stamp so much older than another SM's is of an earlier sample


def clocks_between(starts: np.ndarray[Any, Any], stops: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """From stamps, (pairs, SMs, 2) of nanoseconds and cycles, to (pairs,) of MHz from start to stop: the median over
    the SMs that have both stamps, NaN where none has. All SMs stamp at once.
    """
    steps = (stops - starts).astype(np.int64)  # exact: as floats, nanoseconds since 1970 would step by 256
    usable = (steps > 0).all(axis=2) & (starts[..., 0] > 0)
    for stamps in (starts[..., 0], stops[..., 0]):
        usable &= stamps + STALE_NS > stamps.max(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = 1e3 * steps[..., 1] / steps[..., 0]
    medians = [np.median(pair[good]) if good.any() else np.nan for pair, good in zip(rates, usable, strict=True)]
    return np.array(medians, dtype=np.float64)
