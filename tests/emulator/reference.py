"""PTX instructions in Python's integers and fractions: slow, simple, and independent of the emulator."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from functools import cache

import numpy as np

# Bits of the significand, exponents of the least and the greatest power of two, struct's codes.
FORMATS = {
    "f64": (53, -1074, 1023, "<d", "<Q"),
    "f32": (24, -149, 127, "<f", "<I"),
    "f16": (11, -24, 15, "<e", "<H"),
    "bf16": (8, -133, 127, "", ""),  # the upper half of a float32
    "tf32": (11, -136, 127, "", ""),  # the upper 19 bits of one
}


@cache
def two_to(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def to_bits(value: float, type_: str) -> int:
    _, _, _, float_code, int_code = FORMATS[type_]
    return struct.unpack(int_code, struct.pack(float_code, value))[0]


def from_bits(bits: int, type_: str) -> float:
    _, _, _, float_code, int_code = FORMATS[type_]
    return struct.unpack(float_code, struct.pack(int_code, bits))[0]


def rounded(x: Fraction, type_: str, mode: str = "rn") -> float:
    """x in a format: the nearest value, ties to even (rn), or the next one towards zero (rz), below (rm) or above (rp).

    Beyond the largest value it is infinity where the mode rounds away from zero or to the nearest.
    """
    digits, lowest, highest, _, _ = FORMATS[type_]
    if x == 0:
        return 0.0
    size, away = abs(x), "rp" if x > 0 else "rm"
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if two_to(exponent) > size:
        exponent -= 1
    step = two_to(max(exponent - digits + 1, lowest))
    count, rest = divmod(size, step)
    nearer = rest * 2 > step or (rest * 2 == step and count % 2)
    if (mode == "rn" and nearer) or (mode == away and rest):
        count += 1
    largest = two_to(highest + 1) - two_to(highest + 1 - digits)
    beyond = math.inf if mode in ("rn", away) else float(largest)
    return (1 if x > 0 else -1) * (float(count * step) if count * step <= largest else beyond)


def fma(a: float, b: float, c: float, type_: str, mode: str = "rn") -> float:
    if math.isfinite(a) and math.isfinite(b) and not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c) if all(map(math.isfinite, (a, b, c))) else None
    if exact == 0 and mode == "rm" and math.copysign(1, c) != math.copysign(1, a) * math.copysign(1, b):
        return -0.0
    # Python's own float64 has the right infinities, NaN, and signs of zero.
    return rounded(exact, type_, mode) if exact else a * b + c


def zero(a: float, b: float) -> float:
    """Zero with the sign of the product: adding it changes nothing."""
    return math.copysign(0.0, math.copysign(1, a) * math.copysign(1, b))


def from_sixteen(bits: int, format_: str) -> float:
    """The number that a 16-bit pattern stands for. format_: also the type of two such numbers."""
    return from_bits(bits << 16, "f32") if format_[0] == "b" else from_bits(bits, "f16")


def to_sixteen(x: float | Fraction, format_: str, mode: str = "rn") -> int:
    """The pattern nearest to x, the even one of two; or in the mode's direction."""
    if x != x:
        return 0x7FFF
    if isinstance(x, Fraction) or math.isfinite(x):
        sign = x if x else float(x)
        x = math.copysign(rounded(Fraction(x), format_.removesuffix("x2"), mode), sign)
    return to_bits(x, "f32") >> 16 if format_[0] == "b" else to_bits(x, "f16")


def to_tf32(x: float, mode: str = "rna") -> int:
    """The pattern of the TF32 number nearest to x, away from zero of two; or in the mode's direction."""
    if x != x:
        return to_bits(x, "f32") & 0xFFFFE000 if mode == "rna" else 0x7FFFE000
    if math.isinf(x):
        return to_bits(x, "f32")
    value = rounded(Fraction(x), "tf32", "rz" if mode == "rna" else mode)
    above = rounded(Fraction(x), "tf32", "rp" if x > 0 else "rm")
    if mode == "rna" and (
        math.isinf(above) or abs(Fraction(above) - Fraction(x)) <= abs(Fraction(x) - Fraction(value))
    ):
        largest = Fraction(2) ** 128 - Fraction(2) ** 116
        value = above if math.isfinite(above) or abs(x) >= largest else value
    return to_bits(math.copysign(value, x), "f32")


def halves(word: int, format_: str) -> list[int]:
    """The patterns of one or two 16-bit numbers, the low one first."""
    return [word >> shift & 0xFFFF for shift in ((0, 16) if "x2" in format_ else (0,))]


def sixteens(word: int, format_: str) -> list[str]:
    """One or two 16-bit numbers to compare: their bits, or "nan"."""
    patterns = halves(int(word), format_)
    return ["nan" if math.isnan(from_sixteen(bits, format_)) else hex(bits) for bits in patterns]


def add(a: float, b: float, type_: str) -> float:
    return fma(a, 1.0, b, type_)


def mul(a: float, b: float, type_: str) -> float:
    return fma(a, b, zero(a, b), type_)


def div(a: float, b: float, type_: str, mode: str = "rn") -> float:
    if b == 0 or not math.isfinite(a) or not math.isfinite(b):
        with np.errstate(all="ignore"):
            return float(np.float64(a) / np.float64(b))
    sign = math.copysign(1, a) * math.copysign(1, b)
    return math.copysign(rounded(Fraction(a) / Fraction(b), type_, mode), sign)


def sqrt(a: float, type_: str, mode: str = "rn") -> float:
    """The root of a scaled whole number, with a sticky last bit where it is inexact."""
    if a == 0 or not 0 < a < math.inf:
        return math.nan if a < 0 else a
    scaled = Fraction(a) * 4**1200
    root = math.isqrt(int(scaled))
    sticky = Fraction(int(root * root != scaled), 2)
    return rounded((root + sticky) / 2**1200, type_, mode)


def minimum(a: float, b: float, sign: int) -> float:
    """IEEE minimumNumber (sign 1) or maximumNumber (-1)."""
    if math.isnan(a):
        return b
    if math.isnan(b):
        return a
    return sign * min((sign * a, sign * b), key=lambda x: (x, math.copysign(1, x)))


def wrap(value: int, type_: str) -> int:
    """An integer as the type holds it."""
    bits = int(type_[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if type_[0] == "s" and value >> (bits - 1) else value


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


def to_integer(x: float, source: str, target: str, rounding: str) -> int:
    """cvt.rXi: saturating; NaN is 0, or the top bit alone where a 64-bit type takes part."""
    bits = int(target[1:])
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if target[0] == "s" else (0, 2**bits - 1)
    if math.isnan(x):
        return wrap(1 << (bits - 1), target) if source == "f64" or bits == 64 else 0
    if math.isinf(x):
        return high if x > 0 else low
    value = Fraction(x)
    whole = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[rounding](value)
    return min(max(whole, low), high)


def flushed(x: float, type_: str = "f32", exact: float | None = None) -> float:
    """A subnormal number as a zero of its sign. exact: the result before x was rounded to the nearest: what an exponent
    without a limit would round to less than the least normal number.
    """
    least = 2.0**-126 if type_ == "f32" else 2.0**-14
    limit = least if exact is None else least * (1 - 2.0 ** -(FORMATS[type_][0] + 1))
    return math.copysign(0.0, x) if abs(x if exact is None else exact) < limit else x


def xor_signed(result: float, a: float, b: float) -> float:
    """The result with the product of the signs of a and b."""
    return -result if math.copysign(1, a) != math.copysign(1, b) else result


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
