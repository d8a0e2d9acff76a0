"""The arithmetic of PTX on NumPy arrays, one element a CUDA thread, bit for bit as the GPU does it.

Where NumPy's own operator already is the instruction (wrap-around addition, IEEE multiplication), generated code
uses the operator. What is here differs: multiply-add with one rounding, shifts that clamp, conversions that
saturate, bit fields. Integers arrive as arrays of the instruction's type, results leave in it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_HALF_ULP = np.iinfo(
    np.int64
).min  # what the 29 bits below a float32's last one look like, shifted up, when they are 100…0
_TINY_F64, _HUGE_F64 = 2.0**-900, 2.0**900


def fma_f32(a: Array, b: Array, c: Array) -> Array:
    """a * b + c with one rounding; float64 arrays that hold float32 values in, float32 out.

    The product is exact in float64, so only the sum is rounded on the way. Rounding it a second time to float32 can
    differ from rounding once only where the float64 sum lies exactly between two float32 values, or is subnormal as
    a float32: both are rare, are seen here, and take the exact road. The caller's errstate must raise on underflow,
    or tiny results double-round.
    """
    total = a * b + c
    try:
        result = total.astype(np.float32)
    except FloatingPointError:
        return _fma_f32_exact(a, b, c)
    if (total.view(np.int64) << 35).min() == _HALF_ULP:
        return _fma_f32_exact(a, b, c)
    return result


def _fma_f32_exact(a: Array, b: Array, c: Array) -> Array:
    """The same by round-to-odd: the float64 sum keeps a sticky last bit, so the second rounding cannot see a false
    tie.
    """
    with np.errstate(all="ignore"):
        return round_to_odd(a * b, c).astype(np.float32)


def round_to_odd(x: Array, y: Array) -> Array:
    """x + y in float64, truncated, with the last bit set wherever something was cut off (Boldo and Melquiond's RO)."""
    x, y = np.broadcast_arrays(x, y)
    total = x + y
    back = total - x
    error = (x - (total - back)) + (y - back)
    inexact = np.isfinite(total) & (error != 0) & ((total.view(np.int64) & 1) == 0)
    toward = np.where(error > 0, np.inf, -np.inf)
    out: Array = np.where(inexact, np.nextafter(total, toward), total)
    return out


def fma_f64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c with one rounding, float64 in and out.

    Error-free transformations, and rational numbers for elements where these leave their range.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    with np.errstate(all="ignore"):
        high = a * b
        low = _product_error(a, b, high)
        t_high, t_low = _two_sum(c, low)
        v_high, v_low = _two_sum(high, t_high)
        out: Array = v_high + round_to_odd(t_low, v_low)
        sizes = np.abs(np.stack(np.broadcast_arrays(a, b, c, high)))
        safe = ((sizes == 0) | ((sizes > _TINY_F64) & (sizes < _HUGE_F64))).all(axis=0) & (high != 0)
        plain = high + c
        special = ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(c))
    out = np.where(special, plain, out)
    for i in np.flatnonzero(~safe & ~special):
        out[i] = fma_fraction(float(a[i]), float(b[i]), float(c[i]))
    return out


def fma_fraction(a: float, b: float, c: float) -> float:
    """One finite float64 multiply-add through rational numbers: slow, and right at every size."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        product_sign = math.copysign(1.0, a) * math.copysign(1.0, b)
        return -0.0 if a * b == 0 and product_sign < 0 and math.copysign(1.0, c) < 0 else 0.0
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
    out: Array = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return out


def float_mul(a: Array, b: Array) -> Array:
    """a * b. Subnormal results are none of fma_f32's business, whose alarm is on while generated code runs."""
    with np.errstate(under="ignore"):
        out: Array = a * b
        return out


def float_div(a: Array, b: Array) -> Array:
    """a / b, likewise."""
    with np.errstate(under="ignore"):
        out: Array = a / b
        return out


def fma_fast_f32(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in float32 with two roundings: near enough to check within a tolerance, never bit for bit."""
    with np.errstate(under="ignore"):
        out: Array = a * b + c
        return out


def flush(x: Array) -> Array:
    """Subnormal float32 values to zero of the same sign: the .ftz modifier."""
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


def saturate(x: Array) -> Array:
    """To 0 … 1, NaN to 0: the .sat modifier on floats."""
    out: Array = np.fmin(np.fmax(x, x.dtype.type(0)), x.dtype.type(1)) + x.dtype.type(0)
    return out


def float_min(a: Array, b: Array) -> Array:
    """IEEE minimumNumber: a NaN loses, -0 is below +0."""
    zero = (a == 0) & (b == 0)
    return np.where(zero, np.where(np.signbit(a), a, b), np.fmin(a, b))


def float_max(a: Array, b: Array) -> Array:
    """IEEE maximumNumber: a NaN loses, +0 is above -0."""
    zero = (a == 0) & (b == 0)
    return np.where(zero, np.where(np.signbit(a), b, a), np.fmax(a, b))


def nan_min(a: Array, b: Array) -> Array:
    """The same, but a NaN wins: the .NaN modifier."""
    return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), float_min(a, b))


def nan_max(a: Array, b: Array) -> Array:
    """float_max, but a NaN wins."""
    return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), float_max(a, b))


def mul_hi(a: Array, b: Array) -> Array:
    """The upper half of the double-width product, in the operands' type (16, 32 or 64 bits)."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        out: Array = ((a.astype(wide) * b.astype(wide)) >> wide(bits)).astype(a.dtype)
        return out
    ua, ub = a.view(np.uint64), b.view(np.uint64)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = ua & low, ua >> half, ub & low, ub >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    other = a0 * b1 + (middle & low)
    high = a1 * b1 + (middle >> half) + (other >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, ub, np.uint64(0)) - np.where(b < 0, ua, np.uint64(0))
    out = high.view(a.dtype)
    return out


def mul_wide(a: Array, b: Array) -> Array:
    """The whole product in twice the width."""
    wide = np.dtype(f"{a.dtype.kind}{a.dtype.itemsize * 2}")
    out: Array = a.astype(wide) * b.astype(wide)
    return out


def div(a: Array, b: Array) -> Array:
    """Integer quotient towards zero; by zero all bits are set, as GPUs answer. The most negative by -1 wraps."""
    return _divide(a, b)[0]


def rem(a: Array, b: Array) -> Array:
    """Remainder of `div`, with the dividend's sign; by zero all bits are set, as GPUs answer."""
    return _divide(a, b)[1]


def _divide(a: Array, b: Array) -> tuple[Array, Array]:
    a, b = np.broadcast_arrays(a, b)
    zero = b == 0
    if a.dtype.kind == "u":
        safe = np.where(zero, a.dtype.type(1), b)
        quotient = a // safe
    else:
        unsigned = np.dtype(f"u{a.dtype.itemsize}")
        magnitude = np.abs(a).view(unsigned) // np.where(zero, unsigned.type(1), np.abs(b).view(unsigned))
        quotient = np.where((a < 0) != (b < 0), -magnitude.view(a.dtype), magnitude.view(a.dtype))
    remainder = a - quotient * b
    all_ones = np.array(-1).astype(a.dtype)
    return np.where(zero, all_ones, quotient), np.where(zero, all_ones, remainder)


def shl(a: Array, count: Array) -> Array:
    """Shift left; 32 (or the width) and more give 0."""
    bits = a.dtype.itemsize * 8
    shifted: Array = a << np.minimum(count, np.uint32(bits - 1)).astype(a.dtype)
    return np.where(count >= bits, a.dtype.type(0), shifted)


def shr(a: Array, count: Array) -> Array:
    """Shift right, with the sign for signed types; counts beyond the width act like the width."""
    bits = a.dtype.itemsize * 8
    shifted = a >> np.minimum(count, np.uint32(bits - 1)).astype(a.dtype)
    out: Array = shifted if a.dtype.kind == "i" else np.where(count >= bits, a.dtype.type(0), shifted)
    return out


def funnel(low: Array, high: Array, count: Array, left: bool, clamp: bool) -> Array:
    """shf.l and shf.r: shift the 64 bits high:low and keep 32 of them; the count wraps at 32 or clamps to it."""
    n = (np.minimum(count, np.uint32(32)) if clamp else count & np.uint32(31)).astype(np.uint64)
    both = (high.astype(np.uint64) << np.uint64(32)) | low
    moved = (both << n) >> np.uint64(32) if left else both >> n
    return moved.astype(np.uint32)


def bfe(a: Array, position: Array, length: Array) -> Array:
    """Bit field extract: `length` bits from `position` on; signed types extend the field's top bit."""
    position, length = _field(a, position, length)
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    mask = _mask(length, unsigned)
    field = shr(a, position).view(unsigned) & mask  # a signed field that reaches beyond the top bit: its sign
    if a.dtype.kind == "u":
        return field
    negative = shr(field, length - np.uint32(1)) != 0
    return np.where(negative, field | ~mask, field).view(a.dtype)


def bfi(a: Array, b: Array, position: Array, length: Array) -> Array:
    """Bit field insert: the low `length` bits of a, put into b at `position`."""
    position, length = _field(a, position, length)
    mask = shl(_mask(length, a.dtype), position)
    out: Array = (shl(a, position) & mask) | (b & ~mask)
    return out


def _field(a: Array, position: Array, length: Array) -> tuple[Array, Array]:
    """What counts of them: the low 8 bits, as the PTX manual says; but all 32 for the 64-bit forms, which the assembler
    makes of shifts that clamp (seen in sm_90's machine code).
    """
    low = np.uint32(0xFFFFFFFF if a.dtype.itemsize == 8 else 0xFF)
    return position & low, length & low


def _mask(length: Array, dtype: np.dtype[Any]) -> Array:
    out: Array = shl(np.ones(1, dtype), length) - dtype.type(1)
    return out


def brev(a: Array) -> Array:
    """Bits in reverse order."""
    bits = a.dtype.itemsize * 8
    lanes = np.unpackbits(
        a.astype(a.dtype.newbyteorder("<")).view(np.uint8).reshape(-1, bits // 8), axis=1, bitorder="little"
    )
    out: Array = np.packbits(lanes[:, ::-1], axis=1, bitorder="little").view(a.dtype).ravel()
    return out


def popc(a: Array) -> Array:
    """Number of set bits, as uint32."""
    out: Array = np.bitwise_count(a).astype(np.uint32)
    return out


def clz(a: Array) -> Array:
    """Number of leading zero bits, as uint32."""
    bits = a.dtype.itemsize * 8
    filled = a
    for step in (1, 2, 4, 8, 16, 32):
        if step < bits:
            filled = filled | (filled >> a.dtype.type(step))
    out: Array = np.uint32(bits) - np.bitwise_count(filled).astype(np.uint32)
    return out


def bfind(a: Array, as_shift: bool) -> Array:
    """Place of the most significant bit that is not a copy of the sign, or the shift that brings it to the top; all
    bits set where there is none.
    """
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    magnitude = np.where(a < 0, ~a, a).view(unsigned) if a.dtype.kind == "i" else a
    leading = clz(magnitude)
    place = leading if as_shift else np.uint32(a.dtype.itemsize * 8 - 1) - leading
    return np.where(magnitude == 0, np.uint32(0xFFFFFFFF), place)


def dp4a(a: Array, b: Array, c: Array) -> Array:
    """c plus the products of the four bytes of a and b, each with the sign of its word's type; in c's type."""
    out = c
    for k in range(4):
        x, y = (_byte(word, k).astype(c.dtype) for word in (a, b))
        out = out + x * y
    return out


def _byte(word: Array, k: int) -> Array:
    narrow = np.int8 if word.dtype.kind == "i" else np.uint8
    out: Array = (word >> word.dtype.type(8 * k)).astype(np.uint8).view(narrow)
    return out


def sad(a: Array, b: Array, c: Array) -> Array:
    """c plus the distance of a and b."""
    out: Array = c + np.where(a < b, b - a, a - b)
    return out


def lop3(a: Array, b: Array, c: Array, table: int) -> Array:
    """Any function of three bits, by its truth table."""
    out = np.zeros(1, a.dtype)
    for row in range(8):
        if table >> row & 1:
            out = out | ((a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c))
    return out


def prmt(a: Array, b: Array, selector: Array) -> Array:
    """Any four bytes of the eight in b:a; a selector's top bit spreads the byte's sign."""
    both = (b.astype(np.uint64) << np.uint64(32)) | a
    out = np.zeros(1, np.uint32)
    for i in range(4):
        choice = (selector >> np.uint32(4 * i)) & np.uint32(15)
        byte = ((both >> ((choice & np.uint32(7)) * np.uint32(8)).astype(np.uint64)) & np.uint64(255)).astype(np.uint32)
        byte = np.where(choice >= 8, np.where(byte >= 128, np.uint32(255), np.uint32(0)), byte)
        out = out | (byte << np.uint32(8 * i))
    return out


def to_integer(x: Array, dtype: np.dtype[Any], rounding: str) -> Array:
    """Float to integer: .rni .rzi .rmi .rpi, saturating at the type's ends.

    NaN gives 0, except where a 64-bit type is involved: there the top bit alone (PTX ISA, cvt).
    """
    wide = x.dtype.itemsize == 8 or dtype.itemsize == 8
    whole = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding](x.astype(np.float64))
    info = np.iinfo(dtype)
    inside = (whole >= float(info.min)) & (whole < float(info.max) + (1 if info.bits < 64 else 0))
    with np.errstate(invalid="ignore"):
        exact = np.where(inside, whole, 0.0).astype(dtype)
    not_a_number = np.array([1 << (info.bits - 1) if wide else 0], np.uint64).astype(dtype)
    ends = np.where(whole > 0, dtype.type(info.max), np.where(np.isnan(whole), not_a_number, dtype.type(info.min)))
    return np.where(inside, exact, ends)


def to_integral(x: Array, rounding: str) -> Array:
    """Float to a float without fraction, in the same type."""
    out: Array = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding](x)
    return out


def round_f32(x: Array) -> Array:
    """float64 to the nearest float32, subnormals included."""
    with np.errstate(all="ignore"):
        return x.astype(np.float32)


def clamp_integer(x: Array, dtype: np.dtype[Any]) -> Array:
    """Integer to a type with a smaller range, saturating."""
    source, target = np.iinfo(x.dtype), np.iinfo(dtype)
    low, high = max(source.min, target.min), min(source.max, target.max)
    return np.clip(x, x.dtype.type(low), x.dtype.type(high)).astype(dtype)
