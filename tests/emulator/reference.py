"""PTX arithmetic in Python's integers and fractions: slow, simple, and independent of the emulator.

A number is a float, or a Fraction where it is the exact result of finite operands. `encode` rounds it, once.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np

Number = float | Fraction
# Bits of the fraction and of the exponent, and the low bits of a register that the format leaves out.
FORMATS = {
    "f64": (52, 11, 0),
    "f32": (23, 8, 0),
    "tf32": (10, 8, 13),
    "f16": (10, 5, 0),
    "bf16": (7, 8, 0),
    "e5m2": (2, 5, 0),
    "e4m3": (3, 4, 0),  # without infinities, and with one NaN: the pattern of ones
}


@cache
def two_to(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def decode(bits: int, format_: str) -> float:
    """The number that a pattern stands for."""
    fraction, width, ignored = FORMATS[format_]
    bits >>= ignored
    exponent, rest, bias = bits >> fraction & 2**width - 1, bits & 2**fraction - 1, 2 ** (width - 1) - 1
    if exponent == 2**width - 1 and (format_ != "e4m3" or rest == 7):
        size = math.nan if rest else math.inf
    else:
        size = math.ldexp(rest + (2**fraction if exponent else 0), max(exponent, 1) - bias - fraction)
    return -size if bits >> fraction + width else size


def encode(x: Number, format_: str, mode: str = "rn", *, flush: bool = False, finite: bool = False) -> int:
    """The pattern of x, rounded to the nearest (rn: of two the even one, rna: the one away from zero), towards zero
    (rz), down (rm) or up (rp). A Fraction is zero where operands cancel out: such a zero is negative with rm.

    flush: what would round to less than the least normal number if exponents had no limit becomes zero. finite: the
    largest number stands for infinity.
    """
    fraction, width, ignored = FORMATS[format_]
    sign, bias = 1 << fraction + width, 2 ** (width - 1) - 1
    infinity = sign - 1 if format_ == "e4m3" else 2**width - 1 << fraction
    if x != x:
        return sign - 1 << ignored
    negative = x < 0 or (x == 0 and (mode == "rm" if isinstance(x, Fraction) else math.copysign(1, x) < 0))
    away = mode in ("rn", "rna", "rm" if negative else "rp")
    if abs(x) == math.inf:
        pattern = infinity
    elif x == 0 or (flush and encode(x * 256, format_, mode) & sign - 1 < 9 << fraction):
        pattern = 0
    else:
        size = Fraction(abs(x))
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        exponent = max(exponent - (size < two_to(exponent)), 1 - bias)
        whole, rest = divmod(size / two_to(exponent - fraction), 1)
        if mode in ("rn", "rna"):
            whole += 2 * rest > 1 or (2 * rest == 1 and (mode == "rna" or whole % 2 == 1))
        elif away and rest:
            whole += 1
        pattern = min(whole + (exponent + bias - 1 << fraction), infinity if away else infinity - 1)
    pattern = min(pattern, infinity - 1) if finite else pattern
    return (pattern | sign * negative) << ignored


def flushed(x: float, format_: str) -> float:
    """A subnormal number as a zero of its sign."""
    return math.copysign(0.0, x) if abs(x) < math.ldexp(1, 2 - 2 ** (FORMATS[format_][1] - 1)) else x


def zero(a: float, b: float) -> float:
    """Zero with the sign of the product: adding it changes nothing."""
    return math.copysign(0.0, math.copysign(1, a) * math.copysign(1, b))


def fma(a: float, b: float, c: float) -> Number:
    if not all(map(math.isfinite, (a, b, c))):
        return c if math.isfinite(a) and math.isfinite(b) else a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    return c if exact == 0 and math.copysign(1, c) == math.copysign(1, zero(a, b)) else exact


def add(a: float, b: float) -> Number:
    return fma(a, 1.0, b)


def subtract(a: float, b: float) -> Number:
    return fma(a, 1.0, -b)


def mul(a: float, b: float) -> Number:
    return fma(a, b, zero(a, b))


def div(a: float, b: float) -> Number:
    if a and b and math.isfinite(a) and math.isfinite(b):
        return Fraction(a) / Fraction(b)
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


def sqrt(a: float) -> Number:
    """The root of a scaled whole number, with a sticky last bit where it is inexact."""
    if a == 0 or not 0 < a < math.inf:
        return math.nan if a < 0 else a
    scaled = int(Fraction(a) * 4**1200)
    root = math.isqrt(scaled)
    return Fraction(2 * root + (root * root != scaled), 2**1201)


def minimum(a: float, b: float, sign: int = 1) -> float:
    """IEEE minimumNumber (sign 1) or maximumNumber (-1)."""
    if math.isnan(a):
        return b
    if math.isnan(b):
        return a
    return sign * min((sign * a, sign * b), key=lambda x: (x, math.copysign(1, x)))


def maximum(a: float, b: float) -> float:
    return minimum(a, b, -1)


def whole(x: float, how: str) -> float:
    """A number without its fraction, by the rounding of cvt.how."""
    return math.copysign({"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[how](x), x)


def limits(type_: str) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    bits = int(type_[1:])
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if type_[0] == "s" else (0, 2**bits - 1)


def clamped(value: int, type_: str) -> int:
    low, high = limits(type_)
    return min(max(value, low), high)


def wrap(value: int, type_: str) -> int:
    """An integer as the type holds it."""
    bits = int(type_[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if type_[0] == "s" and value >> (bits - 1) else value


def to_integer(x: float, wide: bool, target: str, how: str) -> int:
    """cvt.rXi: saturating; NaN is 0, or the top bit alone where a 64-bit type takes part. wide: from f64."""
    low, high = limits(target)
    if math.isnan(x):
        return wrap(1 << (int(target[1:]) - 1), target) if wide or target[1:] == "64" else 0
    if math.isinf(x):
        return high if x > 0 else low
    return clamped(int(whole(x, how)), target)


def quotient(a: int, b: int) -> int:
    """Towards zero."""
    return abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)


def bit_field(a: int, position: int, length: int, type_: str) -> int:
    """bfe, as PTX's manual describes it; in the 64-bit forms a GPU takes all of a count's bits."""
    bits = int(type_[1:])
    if bits == 32:
        position, length = position & 255, length & 255
    digits = f"{a & (1 << bits) - 1:0{bits}b}"[::-1]
    field = digits[position : position + length]
    sign = digits[min(position + length, bits) - 1] if type_[0] == "s" and length else "0"
    return wrap(int((field + sign * bits)[:bits][::-1], 2), type_)


def insert(a: int, b: int, position: int, length: int, bits: int) -> int:
    """bfi; the counts as in `bit_field`."""
    if bits == 32:
        position, length = position & 255, length & 255
    new, old = (f"{x:0{bits}b}"[::-1] for x in (a, b))
    whole = old[:position] + new[:length] + old[position + length :] if position < bits else old
    return int(whole[:bits][::-1], 2)


def permute(a: int, b: int, selector: int) -> int:
    """prmt.b32 in its default mode."""
    data = (b << 32 | a).to_bytes(8, "little")
    out = []
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = data[nibble & 7]
        out.append((255 if byte & 128 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(out), "little")


def selector(mode: str, start: int) -> int:
    """The selector of prmt's default mode that picks the bytes of another mode, the lowest byte first."""
    picked = {
        "f4e": [start, start + 1, start + 2, start + 3],
        "b4e": [start, start - 1, start - 2, start - 3],
        "rc8": [start] * 4,
        "ecl": [max(start, k) for k in range(4)],
        "ecr": [min(start, k) for k in range(4)],
        "rc16": [2 * (start & 1), 2 * (start & 1) + 1] * 2,
    }[mode]
    return sum((byte & 7) << 4 * k for k, byte in enumerate(picked))


def bit_mask(position: int, length: int, clamp: bool) -> int:
    """bmsk: ones from a position on, as a string of bits."""
    if not clamp:
        position, length = position & 31, length & 31
    return int(("0" * min(position, 32) + "1" * min(length, 32))[:32][::-1] or "0", 2)


def extended(a: int, length: int, type_: str, clamp: bool) -> int:
    """szext: the low bits, extended by their sign or by zeros; all bits if there are 32 or more (clamp)."""
    if length >= 32 and clamp:
        return a
    bits = length & 31
    return wrap(wrap(a & (1 << bits) - 1, f"{type_[0]}{bits}"), type_) if bits else 0
