"""PTX integer and bit instructions on NumPy arrays, one element per CUDA thread, where no NumPy operator is the
instruction. Arguments and results have the instruction's type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from worklog.emulator.floats import Array


def mul_hi(a: Array, b: Array) -> Array:
    """The upper half of the double-width product, in the operands' type (16, 32 or 64 bits)."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        return ((a.astype(wide) * b.astype(wide)) >> wide(bits)).astype(a.dtype)
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
    return a.astype(wide) * b.astype(wide)


def divide(a: Array, b: Array) -> tuple[Array, Array]:
    """Integer quotient towards zero and remainder, with the dividend's sign. All bits of both are set for a division by
    zero, as on GPUs; the lowest value by -1 wraps.
    """
    zero = b == 0
    divisor = np.where(zero, b.dtype.type(1), b)
    rest = np.fmod(a, divisor)
    all_ones = np.array(-1).astype(a.dtype)
    return np.where(zero, all_ones, (a - rest) // divisor), np.where(zero, all_ones, rest)


def add_carry(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
    """Unsigned a + b + carry, and the carry out."""
    total = a + b + carry
    return total, (total < a) | ((total == a) & carry)


def sub_borrow(a: Array, b: Array, borrow: Array) -> tuple[Array, Array]:
    """Unsigned a - b - borrow, and the borrow out."""
    return a - b - borrow, (a < b) | ((a == b) & borrow)


def combined(test: Array, combine: np.ufunc | None = None, other: Array = None) -> Array:
    """A test, of one number or two per lane, combined with another predicate."""
    return test if combine is None else combine(test, other if test.ndim == 1 else other[:, None])


def both(test: Array, combine: np.ufunc | None = None, other: Array = None) -> tuple[Array, Array]:
    """setp's results: the test and its complement, each combined with another predicate."""
    return (test, ~test) if combine is None else (combine(test, other), combine(~test, other))


def shl(a: Array, count: Array) -> Array:
    """Shift left; counts of the width or more give 0."""
    return a << np.minimum(count, np.uint32(64)).astype(a.dtype)


def shr(a: Array, count: Array) -> Array:
    """Shift right, with the sign for signed types; counts above the width act like the width."""
    return a >> np.minimum(count, np.uint32(64)).astype(a.dtype)


def joined(low: Array, high: Array) -> Array:
    """Two words as one of twice the width."""
    wide = np.dtype(f"u{2 * low.itemsize}").type
    return high.astype(wide) << wide(8 * low.itemsize) | low


def halves(word: Array) -> tuple[Array, Array]:
    """The low and the high half of a word."""
    narrow = np.dtype(f"u{word.itemsize // 2}")
    return word.astype(narrow), (word >> word.dtype.type(8 * narrow.itemsize)).astype(narrow)


def pairs(word: Array) -> Array:
    """The low and the high half of each word, in a dimension of length two."""
    return np.ascontiguousarray(word).view(np.uint16).reshape(-1, 2)


def paired(pair: Array) -> Array:
    """The inverse of `pairs`."""
    return np.ascontiguousarray(pair).view(np.uint32).ravel()


def tested(word: Array, combine: np.ufunc, other: Array) -> tuple[Array, Array]:
    """lop3's results with a predicate: the word, and whether any bit is set, combined with another predicate."""
    return word, combine(word != 0, other)


def limited(count: Array, clamp: bool) -> Array:
    """A number of bits of a word: at most 32, or its low five bits."""
    return np.minimum(count, np.uint32(32)) if clamp else count & np.uint32(31)


def mul24(a: Array, b: Array, shift: int) -> Array:
    """The product of the low 24 bits, from bit `shift` on, in the operands' type."""
    kind = a.dtype.kind
    low = [((x << x.dtype.type(8)) >> x.dtype.type(8)).astype(f"{kind}8") for x in (a, b)]
    return (low[0] * low[1] >> low[0].dtype.type(shift)).astype(a.dtype)


def cvt_pack(a: Array, b: Array, dtype: str) -> Array:
    """Two integers, saturated to a narrow type, side by side in a word: b is the low one."""
    bits, info = np.dtype(dtype).itemsize * 8, np.iinfo(dtype)
    high, low = (np.clip(x, info.min, info.max).view(np.uint32) & np.uint32((1 << bits) - 1) for x in (a, b))
    return high << np.uint32(bits) | low


def bfe(a: Array, position: Array, length: Array) -> Array:
    """Bit field extract: `length` bits from `position` on; signed types extend the field's top bit."""
    position, length = _field(a, position, length)
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    low = mask(length, unsigned)
    field = shr(a, position).view(unsigned) & low  # a signed field that reaches beyond the top bit: its sign
    if a.dtype.kind == "u":
        return field
    negative = shr(field, length - np.uint32(1)) != 0
    return np.where(negative, field | ~low, field).view(a.dtype)


def bfi(a: Array, b: Array, position: Array, length: Array) -> Array:
    """Bit field insert: the low `length` bits of a, put into b at `position`."""
    position, length = _field(a, position, length)
    field = shl(mask(length, a.dtype), position)
    return (shl(a, position) & field) | (b & ~field)


def _field(a: Array, position: Array, length: Array) -> tuple[Array, Array]:
    """The bits of both that count: the low 8, by the PTX manual; but all 32 in the 64-bit forms, which the assembler
    implements with clamping shifts (seen in sm_90 machine code).
    """
    low = np.uint32(0xFFFFFFFF if a.dtype.itemsize == 8 else 0xFF)
    return position & low, length & low


def mask(length: Array, dtype: np.dtype[Any]) -> Array:
    """The low `length` bits set."""
    return shl(np.ones(1, dtype), length) - dtype.type(1)


def brev(a: Array) -> Array:
    """Bits in reverse order."""
    bits = np.unpackbits(np.ascontiguousarray(a).view(np.uint8).reshape(len(a), -1), axis=1, bitorder="little")
    return np.packbits(bits[:, ::-1], axis=1, bitorder="little").view(a.dtype).ravel()


def clz(a: Array) -> Array:
    """Number of leading zero bits, as uint32."""
    bits = a.dtype.itemsize * 8
    filled = a
    for step in (1, 2, 4, 8, 16, 32):
        if step < bits:
            filled = filled | (filled >> a.dtype.type(step))
    return np.uint32(bits) - np.bitwise_count(filled).astype(np.uint32)


def bfind(a: Array, as_shift: bool) -> Array:
    """Position of the most significant bit that differs from the sign, or the left shift that moves it to the top; all
    bits set if there is none.
    """
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    magnitude = np.where(a < 0, ~a, a).view(unsigned) if a.dtype.kind == "i" else a
    leading = clz(magnitude)
    place = leading if as_shift else np.uint32(a.dtype.itemsize * 8 - 1) - leading
    return np.where(magnitude == 0, np.uint32(0xFFFFFFFF), place)


def dot(a: Array, b: Array, c: Array, bits: int, first: int = 0) -> Array:
    """c plus the products of the fields of a, each of these bits, and bytes of b, from byte `first` on; signed or not
    as their word's type; in c's type.
    """
    for k in range(32 // bits):
        x = (a >> a.dtype.type(bits * k)).astype(f"{a.dtype.kind}{bits // 8}").astype(c.dtype)
        y = (b >> b.dtype.type(8 * (first + k))).astype(f"{b.dtype.kind}1").astype(c.dtype)
        c = c + x * y
    return c


def lop3(a: Array, b: Array, c: Array, table: Array) -> Array:
    """Any function of three bits, by its truth table: one number."""
    out = np.zeros(1, a.dtype)
    for row in range(8):
        if table[0] >> row & 1:
            out = out | ((a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c))
    return out


def prmt(a: Array, b: Array, selector: Array) -> Array:
    """Any four bytes of the eight in b:a; a selector's top bit replicates the byte's sign."""
    pool = joined(a, b)
    out = np.zeros(1, np.uint32)
    for i in range(4):
        choice = (selector >> np.uint32(4 * i)) & np.uint32(15)
        byte = ((pool >> ((choice & np.uint32(7)) * np.uint32(8)).astype(np.uint64)) & np.uint64(255)).astype(np.uint32)
        byte = np.where(choice >= 8, np.where(byte >= 128, np.uint32(255), np.uint32(0)), byte)
        out = out | (byte << np.uint32(8 * i))
    return out


def to_integer(x: Array, dtype: np.dtype[Any], integral: np.ufunc) -> Array:
    """Float to integer by np.rint, np.trunc, np.floor or np.ceil, saturating at the type's limits.

    NaN gives 0, except where either type has 64 bits: there only the top bit is set (PTX ISA, cvt).
    """
    wide = x.dtype.itemsize == 8 or dtype.itemsize == 8
    whole = integral(x.astype(np.float64))
    info = np.iinfo(dtype)
    inside = (whole >= float(info.min)) & (whole < float(info.max) + (1 if info.bits < 64 else 0))
    with np.errstate(invalid="ignore"):
        exact = np.where(inside, whole, 0.0).astype(dtype)
    not_a_number = np.array([1 << (info.bits - 1) if wide else 0], np.uint64).astype(dtype)
    ends = np.where(whole > 0, dtype.type(info.max), np.where(np.isnan(whole), not_a_number, dtype.type(info.min)))
    return np.where(inside, exact, ends)


def clamp_integer(x: Array, dtype: np.dtype[Any]) -> Array:
    """Integer to a type with a smaller range, saturating."""
    source, target = np.iinfo(x.dtype), np.iinfo(dtype)
    low, high = max(source.min, target.min), min(source.max, target.max)
    return np.clip(x, x.dtype.type(low), x.dtype.type(high)).astype(dtype)


def turns(index: Array, lanes: Array) -> list[Array]:
    """The lanes in groups without a common index, those that share one in lane order."""
    lanes = lanes[np.argsort(index[lanes], kind="stable")]
    fresh = np.flatnonzero(np.diff(index[lanes], prepend=-1))
    turn = np.arange(len(lanes)) - np.repeat(fresh, np.diff(fresh, append=len(lanes)))
    order = np.argsort(turn, kind="stable")
    return np.split(lanes[order], np.flatnonzero(np.diff(turn[order])) + 1)
