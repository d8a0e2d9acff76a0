"""Roundings other than to the nearest float32, and the 16-bit formats: what NumPy has no operator for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator.arithmetic import round_to_odd

Array = NDArray[Any]
CANONICAL_NAN_16 = np.uint16(0x7FFF)


def add_directed(x: Array, y: Array, mode: str) -> Array:
    """x + y, float64 arrays that hold float32 values or exact products of two, rounded once to float32.

    mode: "rz" towards zero, "rm" down, "rp" up. An exact zero from opposite signs is -0 when rounding down.
    """
    with np.errstate(all="ignore"):
        x, y = np.broadcast_arrays(x, y)
        out = _directed(round_to_odd(x, y), mode)
        if mode == "rm":
            out = np.where((x + y == 0) & (np.signbit(x) | np.signbit(y)), np.float32(-0.0), out)
        return out


def mul_directed(x: Array, y: Array, mode: str) -> Array:
    """x * y likewise: the product of two float32 values is exact in float64."""
    with np.errstate(all="ignore"):
        return _directed(x * y, mode)


def fma_directed(x: Array, y: Array, z: Array, mode: str) -> Array:
    """x * y + z likewise."""
    with np.errstate(all="ignore"):
        return add_directed(x * y, z, mode)


def _directed(exact: Array, mode: str) -> Array:
    """float64, exact or rounded to odd, to the float32 on the mode's side."""
    nearest = exact.astype(np.float32)
    back = nearest.astype(np.float64)
    if mode == "rz":
        beyond, toward = np.abs(back) > np.abs(exact), np.float32(0)
    else:
        beyond, toward = (back > exact, np.float32(-np.inf)) if mode == "rm" else (back < exact, np.float32(np.inf))
    out: Array = np.where(beyond, np.copysign(np.nextafter(nearest, toward), exact), nearest).astype(np.float32)
    return out


def to_half(x: Array) -> Array:
    """float32 to the nearest IEEE half, as its bits in uint16; NaN to the one that GPUs give."""
    with np.errstate(all="ignore"):
        return np.where(np.isnan(x), CANONICAL_NAN_16, x.astype(np.float16).view(np.uint16))


def from_half(bits: Array) -> Array:
    """A half's bits to float32, which holds it exactly."""
    with np.errstate(all="ignore"):
        return bits.view(np.float16).astype(np.float32)


def to_bfloat(x: Array) -> Array:
    """float32 to the nearest bfloat16, ties to even, as its bits in uint16."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(x), CANONICAL_NAN_16, rounded.astype(np.uint16))


def from_bfloat(bits: Array) -> Array:
    """A bfloat16's bits to float32, which holds it exactly."""
    out: Array = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return out


def pair(high: Array, low: Array) -> Array:
    """Two 16-bit halves of a 32-bit word."""
    out: Array = high.astype(np.uint32) << np.uint32(16) | low.astype(np.uint32)
    return out
