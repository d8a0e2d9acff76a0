"""PTX floating-point instructions on NumPy arrays, one element per CUDA thread, bit for bit as on the GPU, where no
NumPy operator is the instruction: multiply-add with one rounding, directed rounding, 16-bit formats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

Array = Any  # an NDArray: NumPy types the results of its operators as Any

# The 29 bits that float64 has below a float32's last bit, shifted to the top, when they are 100…0: a tie.
_HALF_ULP = np.iinfo(np.int64).min
_TINY_F64, _HUGE_F64 = 2.0**-900, 2.0**900
_CANONICAL_NAN_16 = np.uint16(0x7FFF)
_NAN_64, _QUIET_64 = np.uint64(0xFFF8 << 48), np.uint64(1 << 51)


def fma_f32(a: Array, b: Array, c: Array, ftz: bool = False) -> Array:
    """a * b + c with one rounding; float64 arrays that hold float32 values in, float32 out. ftz: as in `rounded`.

    The product is exact in float64, so only the sum is rounded. Rounding it again to float32 differs from rounding once
    only where the float64 sum lies exactly between two float32 values, or is subnormal as a float32. Both are rare,
    are detected, and take the exact path. The caller's errstate must raise on underflow to detect the second. A sum
    that ftz flushes although float32 rounds it up to the least normal number underflows, too, or is such a tie.
    """
    total = a * b + c
    try:
        result = total.astype(np.float32)
    except FloatingPointError:
        return _fma_f32_exact(a, b, c, ftz)
    if (total.view(np.int64) << 35).min() == _HALF_ULP:
        return _fma_f32_exact(a, b, c, ftz)
    return flush(result) if ftz else result


def _fma_f32_exact(a: Array, b: Array, c: Array, ftz: bool) -> Array:
    """The same by round-to-odd: the float64 sum keeps a sticky last bit, so the second rounding sees no false tie."""
    with np.errstate(all="ignore"):
        return rounded(round_to_odd(a * b, c), ftz=ftz)


def round_to_odd(x: Array, y: Array) -> Array:
    """x + y in float64, truncated, with the last bit set where the sum is inexact (Boldo and Melquiond's RO)."""
    x, y = np.broadcast_arrays(x, y)
    total, error = _two_sum(x, y)
    inexact = np.isfinite(total) & (error != 0) & ((total.view(np.int64) & 1) == 0)
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where(inexact, np.nextafter(total, toward), total)


def fma_f64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c with one rounding, float64 in and out.

    By error-free transformations, and by rational numbers for elements outside their range. Of NaN operands, b gives
    its bits before c, and c before a, as an H200's tensor cores do; an invalid operation gives 0xfff8000000000000.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    with np.errstate(all="ignore"):
        high = a * b
        low = _product_error(a, b, high)
        t_high, t_low = _two_sum(c, low)
        v_high, v_low = _two_sum(high, t_high)
        out = v_high + round_to_odd(t_low, v_low)
        sizes = np.abs(np.stack(np.broadcast_arrays(a, b, c, high)))
        safe = ((sizes == 0) | ((sizes > _TINY_F64) & (sizes < _HUGE_F64))).all(axis=0) & (high != 0)
        finite = np.isfinite(a) & np.isfinite(b)
        # A product that is exactly zero has no rounding; infinities follow the plain operations, but no product of
        # finite numbers is infinite before it is rounded.
        special = ~(finite & np.isfinite(c)) | (a == 0) | (b == 0)
        plain = np.where(finite & ~np.isfinite(c), c, high + c)
    out = np.where(special, plain, out).view(np.uint64)
    out = np.where(np.isnan(plain), _NAN_64, out)
    for operand in (a, c, b):
        out = np.where(np.isnan(operand), operand.view(np.uint64) | _QUIET_64, out)
    out = out.view(np.float64)
    for i in np.flatnonzero(~safe & ~special):
        out[i] = fma_fraction(float(a[i]), float(b[i]), float(c[i]))
    return out


def fma_fraction(a: float, b: float, c: float) -> float:
    """One finite float64 multiply-add through rational numbers: slow, correct at every magnitude."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c  # with the right sign
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


def _product_error(a: Array, b: Array, product: Array) -> Array:
    """a * b - product, exactly, by Dekker's splitting."""
    a_high, b_high = (x * 134217729.0 - (x * 134217729.0 - x) for x in (a, b))
    a_low, b_low = a - a_high, b - b_high
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def quiet(function: Callable[..., Array], *operands: Any) -> Array:
    """A NumPy function without the underflow error that fma_f32 relies on."""
    with np.errstate(all="ignore"):
        return function(*operands)


def add_directed(x: Array, y: Array, mode: str, ftz: bool = False) -> Array:
    """x + y, float64 arrays that hold float32 values or exact products of two, rounded once to float32.

    mode: "rz", "rm" or "rp"; it and ftz as in `rounded`. An exact zero from opposite signs is -0 when rounding down.
    """
    with np.errstate(all="ignore"):
        x, y = np.broadcast_arrays(x, y)
        out = rounded(round_to_odd(x, y), mode, ftz=ftz)
        if mode == "rm":
            out = np.where((x + y == 0) & (np.signbit(x) | np.signbit(y)), np.float32(-0.0), out)
        return out


def rounded(exact: Array, mode: str = "rn", dtype: type[np.floating[Any]] = np.float32, ftz: bool = False) -> Array:
    """float64, exact or rounded to odd, to float32 or float16.

    mode: "rn" to the nearest, "rz" towards zero, "rm" down, "rp" up. ftz: what is subnormal gives a zero of its sign.
    As on an H200, that is what would be below the least normal number if exponents had no limit.
    """
    with np.errstate(all="ignore"):
        out = exact.astype(dtype)
        if mode != "rn":
            back = out.astype(np.float64)
            if mode == "rz":
                beyond, toward = np.abs(back) > np.abs(exact), dtype(0)
            else:
                beyond, toward = (back > exact, dtype(-np.inf)) if mode == "rm" else (back < exact, dtype(np.inf))
            out = np.where(beyond, np.copysign(np.nextafter(out, toward), exact), out).astype(dtype)
        if ftz:
            scaled = rounded(exact * 2.0**24, mode, dtype)
            least = float(np.finfo(dtype).tiny) * 2.0**24
            out = np.where(np.abs(scaled) < least, np.copysign(dtype(0), out), out)
        return out


def to_half(x: Array, mode: str = "rn", ftz: bool = False) -> Array:
    """float32 or float64, exact or rounded to odd, to an IEEE half, as its bits in uint16.

    NaN gives the GPU's canonical NaN. mode and ftz: as in `rounded`.
    """
    return np.where(np.isnan(x), _CANONICAL_NAN_16, rounded(x, mode, np.float16, ftz).view(np.uint16))


def from_half(bits: Array, dtype: str = "f4") -> Array:
    """A half's bits to float32 or float64, which hold it exactly."""
    return quiet(np.ndarray.astype, bits.view(np.float16), dtype)


def to_bfloat(x: Array, mode: str = "rn") -> Array:
    """float32 or float64 to bfloat16, the upper half of a float32; arguments as for `to_half`.

    A float64 becomes a float32 by truncation with a sticky last bit, so that the second rounding sees no false tie.
    """
    single = x if x.dtype == np.float32 else rounded(x, "rz")
    bits = np.ascontiguousarray(single).view(np.uint32) | (single != x)
    away = np.uint32(0xFFFF) * (np.signbit(x) == (mode == "rm"))
    added = {"rn": np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)), "rz": np.uint32(0)}.get(mode, away)
    return np.where(np.isnan(x), _CANONICAL_NAN_16, ((bits + added) >> np.uint32(16)).astype(np.uint16))


def from_bfloat(bits: Array, dtype: str = "f4") -> Array:
    """A bfloat16's bits to float32 or float64, which hold it exactly."""
    return quiet(np.ndarray.astype, (bits.astype(np.uint32) << np.uint32(16)).view(np.float32), dtype)


def from_eight(bits: Array, digits: int) -> Array:
    """The two 8-bit floats of a word, the lower one first, to float64. digits: of the fraction: 2 for e5m2, which is an
    upper byte of a half; 3 for e4m3, which has one NaN and no infinities (Open Compute Project, "OCP 8-bit Floating
    Point Specification", table 1).
    """
    both = (bits[:, None] >> np.array((0, 8), np.uint16)) & np.uint16(0xFF)
    if digits == 2:
        return from_half(both << np.uint16(8), "f8")
    size = both & np.uint16(0x7F)
    found = np.where(size == 0x7F, np.nan, from_half(size << np.uint16(7), "f8") * 2.0**8)  # biases 15 and 7
    return np.copysign(found, np.where(both >> np.uint16(7), -1.0, 1.0))


def to_eight(pair: Array, digits: int) -> Array:
    """The inverse of `from_eight`, in uint16: the nearest, at most the largest number in size; 0x7f for NaN."""
    least, most, shift = (-14, 57344.0, 0) if digits == 2 else (-6, 448.0, -8)
    with np.errstate(all="ignore"):
        unit = np.ldexp(1.0, np.maximum(np.frexp(pair)[1] - 1, least) - digits)
        near = np.minimum(np.rint(np.abs(pair) / unit) * unit, most)
        bits = to_half(near * 2.0**shift) >> np.uint16(10 - digits) | np.signbit(pair) * np.uint16(0x80)
    bits = np.where(np.isnan(pair), np.uint16(0x7F), bits)
    return bits[:, 0] | bits[:, 1] << np.uint16(8)


def from_integer(x: Array) -> Array:
    """An integer to float64, rounded to odd where it has more than 53 digits."""
    low = x & x.dtype.type(0x7F if x.dtype.itemsize == 1 else 0xFFF)
    return quiet(round_to_odd, (x - low).astype(np.float64), low.astype(np.float64))


def flush(x: Array, least: float = 2.0**-126) -> Array:
    """Flush values below the least normal number to zero of the same sign: the .ftz modifier."""
    return np.where(np.abs(x) < x.dtype.type(least), np.copysign(x.dtype.type(0), x), x)


def saturate(x: Array) -> Array:
    """Clamp to 0 … 1, NaN to 0: the .sat modifier on floats."""
    return np.fmin(np.fmax(x, x.dtype.type(0)), x.dtype.type(1)) + x.dtype.type(0)


def relu(x: Array) -> Array:
    """Negative values and -0 to 0; NaN stays: the .relu modifier."""
    return np.where(x <= 0, x.dtype.type(0), x)


def xor_signed(result: Array, a: Array, b: Array) -> Array:
    """The result with the product of the operands' signs: the .xorsign modifier."""
    return np.where(np.signbit(a) ^ np.signbit(b), -result, result)


def float_min(a: Array, b: Array) -> Array:
    """IEEE minimumNumber: the number if the other operand is NaN; -0 is below +0."""
    zero = (a == 0) & (b == 0)
    return np.where(zero, np.where(np.signbit(a), a, b), np.fmin(a, b))


def float_max(a: Array, b: Array) -> Array:
    """IEEE maximumNumber: the number if the other operand is NaN; +0 is above -0."""
    return -float_min(-a, -b)


def or_nan(result: Array, *operands: Array) -> Array:
    """The result, but NaN if any operand is NaN: the .NaN modifier."""
    lacking = np.logical_or.reduce([np.isnan(x) for x in np.broadcast_arrays(*operands)])
    return np.where(lacking, result.dtype.type(np.nan), result)


def nearest(function: Callable[..., Array], *operands: Array) -> Array:
    """The float32 nearest to the function's value, computed in float64: for .approx and .full instructions, whose bits
    only the hardware defines.
    """
    with np.errstate(all="ignore"):
        return function(*(operand.astype(np.float64) for operand in operands)).astype(np.float32)
