"""Each integer and bit instruction, run by the emulator from PTX text, against tests/emulator/reference.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product

import pytest

from tests.emulator import reference as ref
from tests.emulator.evaluate import COMPARISONS, INTEGER_TYPES, Case, check

LOGIC: dict[str, Callable[[int, int], int]] = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}


def of_every_type(t: str) -> Iterator[Case]:
    """Cases of u16 to s64."""
    bits, two = int(t[1:]), (t, t)
    high = 2 ** (bits - (t[0] == "s")) - 1
    low = high - 2**bits + 1
    yield f"add.{t} $d, $0, $1;", t, two, lambda a, b: a + b
    yield f"sub.{t} $d, $0, $1;", t, two, lambda a, b: a - b
    yield f"mul.lo.{t} $d, $0, $1;", t, two, lambda a, b: a * b
    yield f"mul.hi.{t} $d, $0, $1;", t, two, lambda a, b: a * b >> bits
    yield f"min.{t} $d, $0, $1;", t, two, min
    yield f"max.{t} $d, $0, $1;", t, two, max
    yield f"div.{t} $d, $0, $1;", t, two, lambda a, b: ref.quotient(a, b) if b else -1
    yield f"rem.{t} $d, $0, $1;", t, two, lambda a, b: a - b * ref.quotient(a, b) if b else -1
    yield f"sad.{t} $d, $0, $1, $2;", t, (t, t, t), lambda a, b, c: c + abs(a - b)
    yield f"slct.{t}.s32 $d, $0, $1, $2;", t, (t, t, "s32"), lambda a, b, sign: a if sign >= 0 else b
    yield f"selp.{t} $d, $0, $1, $2;", t, (t, t, "pred"), lambda a, b, p: a if p else b
    yield f"shr.{t} $d, $0, $1;", t, (t, "count"), lambda a, n: a >> min(n, bits)
    yield f"shr.{t} $d, $0, {bits - 3};", t, (t,), lambda a: a >> bits - 3
    for name, function in COMPARISONS.items():
        yield f"setp.{name}.{t} $d, $0, $1;", "pred", two, function
    for name, combine in LOGIC.items():
        yield f"setp.lt.{name}.{t} $d, $0, $1, $2;", "pred", (t, t, "pred"), lambda a, b, p, f=combine: f(int(a < b), p)
    for source in INTEGER_TYPES:
        yield f"cvt.{t}.{source} $d, $0;", t, (source,), int
        yield f"cvt.sat.{t}.{source} $d, $0;", t, (source,), lambda a: min(max(a, low), high)
    for target in ("f32", "f64"):
        yield f"cvt.rn.{target}.{t} $d, $0;", target, (t,), lambda a, to=target: ref.rounded(Fraction(a), to)
    if t[0] == "s":
        yield f"neg.{t} $d, $0;", t, (t,), int.__neg__
        yield f"abs.{t} $d, $0;", t, (t,), abs
    if bits < 64:
        wide = f"{t[0]}{2 * bits}"
        yield f"mul.wide.{t} $d, $0, $1;", wide, two, int.__mul__
        yield f"mad.wide.{t} $d, $0, $1, $2;", wide, (t, t, wide), lambda a, b, c: a * b + c
    if bits > 16:
        yield f"mad.lo.{t} $d, $0, $1, $2;", t, (t, t, t), lambda a, b, c: a * b + c
        yield f"mad.hi.{t} $d, $0, $1, $2;", t, (t, t, t), lambda a, b, c: (a * b >> bits) + c
        yield f"bfe.{t} $d, $0, $1, $2;", t, (t, "count", "count"), lambda a, p, n: ref.bit_field(a, p, n, t)
        yield f"bfind.{t} $d, $0;", "u32", (t,), lambda a: (~a if a < 0 else a).bit_length() - 1
        shift = f"bfind.shiftamt.{t} $d, $0;"
        yield shift, "u32", (t,), lambda a: bits - (~a if a < 0 else a).bit_length() if a not in (0, -1) else -1
        yield from carries(t, bits)


def carries(t: str, bits: int) -> Iterator[Case]:
    """Numbers of two and three words, added and subtracted word by word: the text gives the word, plus `more`."""
    held = t.replace("s", "u")
    for plus, sign in (("add", 1), ("sub", -1)):
        low = f"{plus}.cc.{t} $d, $0, $2;"
        for text, word, more in (
            (low, 0, 0),
            (f"{low} {plus}c.{t} $d, $1, $3;", 1, 0),
            (f"{low} {plus}c.cc.{t} $d, $1, $3; {plus}c.{t} $d, 5, 0;", 2, 5),
        ):
            total = lambda a, b, c, d, sign=sign: (b << bits | a) + sign * (d << bits | c)  # noqa: E731
            yield text, held, (held,) * 4, lambda *row, f=total, word=word, more=more: (f(*row) >> word * bits) + more


def of_bits(bits: int) -> Iterator[Case]:
    """Cases of b16 to b64."""
    b, t = f"b{bits}", f"u{bits}"
    for name, function in LOGIC.items():
        yield f"{name}.{b} $d, $0, $1;", t, (t, t), function
    yield f"not.{b} $d, $0;", t, (t,), lambda a: ~a
    yield f"shl.{b} $d, $0, $1;", t, (t, "count"), lambda a, n: a << min(n, bits)
    yield f"shr.{b} $d, $0, $1;", t, (t, "count"), lambda a, n: a >> min(n, bits)
    if bits > 16:
        yield f"popc.{b} $d, $0;", "u32", (t,), int.bit_count
        yield f"clz.{b} $d, $0;", "u32", (t,), lambda a: bits - a.bit_length()
        yield f"brev.{b} $d, $0;", t, (t,), lambda a: int(f"{a:0{bits}b}"[::-1], 2)
        fields = (t, t, "count", "count")
        yield f"bfi.{b} $d, $0, $1, $2, $3;", t, fields, lambda a, b, p, n: ref.insert(a, b, p, n, bits)


def of_words() -> Iterator[Case]:
    """Cases of 32 and 64 bits only."""
    three, shift = ("u32",) * 3, ("u32", "u32", "count")
    for clamp, count in (("wrap", lambda n: n & 31), ("clamp", lambda n: min(n, 32))):
        left, right = (f"shf.{side}.{clamp}.b32 $d, $0, $1, $2;" for side in "lr")
        yield left, "u32", shift, lambda low, high, n, count=count: (high << 32 | low) << count(n) >> 32
        yield right, "u32", shift, lambda low, high, n, count=count: (high << 32 | low) >> count(n)
    for table in (0, 0x80, 0xE8, 0x96, 0x1B, 0xCA, 0xFE, 0x35):
        yield f"lop3.b32 $d, $0, $1, $2, {table};", "u32", three, looked_up(table)
    yield "prmt.b32 $d, $0, $1, $2;", "u32", three, ref.permute
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        text = f"prmt.b32.{mode} $d, $0, $1, $2;"
        yield text, "u32", three, lambda a, b, c, m=mode: ref.permute(a, b, ref.selector(m, c & 3))
    for clamp in (True, False):
        suffix = "clamp" if clamp else "wrap"
        two = ("count", "count")
        yield f"bmsk.{suffix}.b32 $d, $0, $1;", "u32", two, lambda a, b, c=clamp: ref.bit_mask(a, b, c)
        for t in ("u32", "s32"):
            text = f"szext.{suffix}.{t} $d, $0, $1;"
            yield text, t, (t, "count"), lambda a, n, t=t, c=clamp: ref.extended(a, n, t, c)
    for name, combine in (("and", int.__and__), ("or", int.__or__)):
        text = f"{{ .reg .pred q; lop3.{name}.b32 $d|q, $0, $1, $2, 0x40, $3; @q not.b32 $d, $d; }}"
        tested = lambda a, b, c, p, f=combine: ~(a & b & ~c) if f(int(a & b & ~c != 0), p) else a & b & ~c  # noqa: E731
        yield text, "u32", (*three, "pred"), tested
    for plus, sign in (("add", 1), ("sub", -1)):
        yield f"{plus}.sat.s32 $d, $0, $1;", "s32", ("s32", "s32"), lambda a, b, s=sign: limited(a + s * b)
    yield "mad.hi.sat.s32 $d, $0, $1, $2;", "s32", ("s32",) * 3, lambda a, b, c: limited((a * b >> 32) + c)
    for t in ("u32", "s32"):
        cut = f"{t[0]}24"
        for half, shift in (("lo", 0), ("hi", 16)):
            short = lambda a, b, c=cut, s=shift: ref.wrap(a, c) * ref.wrap(b, c) >> s  # noqa: E731
            yield f"mul24.{half}.{t} $d, $0, $1;", t, (t, t), short
            yield f"mad24.{half}.{t} $d, $0, $1, $2;", t, (t,) * 3, lambda a, b, c, f=short: f(a, b) + c
            chain = f"mad.{half}.cc.{t} $d, $0, $1, $2; madc.{half}.{t} $d, $0, $1, 0;"
            yield chain, t, (t,) * 3, carried(0 if half == "lo" else 32)
    for pair in ("u16x2", "s16x2"):
        for name, function in (("add", int.__add__), ("min", min), ("max", max)):
            yield f"{name}.{pair} $d, $0, $1;", "u32", ("u32", "u32"), by_halves(function, f"{pair[0]}16")
    for name, choose in (("min", min), ("max", max)):
        clipped = lambda a, b, f=choose: max(f(a, b), 0)  # noqa: E731
        yield f"{name}.relu.s16x2 $d, $0, $1;", "u32", ("u32", "u32"), by_halves(clipped, "s16")
        yield f"{name}.relu.s32 $d, $0, $1;", "s32", ("s32", "s32"), clipped
    for t in ("s16", "u16"):
        yield f"cvt.pack.sat.{t}.s32 $d, $0, $1;", "u32", ("s32", "s32"), packed(t)
    for t in ("s8", "u8"):
        text = f"cvt.pack.sat.{t}.s32.b32 $d, $0, $1, $2;"
        yield text, "u32", ("s32", "s32", "u32"), lambda a, b, c, t=t: packed(t)(a, b) | c << 16
    for t in ("b16", "b32", "b64"):
        yield f"cnot.{t} $d, $0;", f"u{t[1:]}", (f"u{t[1:]}",), lambda a: int(a == 0)
    for target, name in product(("u32", "s32"), COMPARISONS):
        text = f"set.{name}.{target}.s32 $d, $0, $1;"
        yield text, target, ("s32", "s32"), lambda a, b, f=COMPARISONS[name]: -int(f(a, b))
    yield "set.lt.f32.u64 $d, $0, $1;", "f32", ("u64", "u64"), lambda a, b: float(a < b)
    yield "set.lt.or.u32.u16 $d, $0, $1, $2;", "u32", ("u16", "u16", "pred"), lambda a, b, p: -int(a < b or p)
    swap = "{ .reg .b32 lo, hi; mov.b64 {lo, hi}, $0; mov.b64 $d, {hi, lo}; }"
    yield swap, "u64", ("u64",), lambda a: a << 32 | a >> 32
    halves = "{ .reg .b16 lo, hi; mov.b32 {lo, hi}, $0; mov.b32 $d, {hi, lo}; }"
    yield halves, "u32", ("u32",), lambda a: a << 16 | a >> 16
    for a, b in product(("u32", "s32"), repeat=2):
        whole = "s32" if "s32" in (a, b) else "u32"
        for half in ("lo", "hi"):
            yield f"dp2a.{half}.{a}.{b} $d, $0, $1, $2;", whole, (a, b, whole), halves_product(a, b, half == "hi")
        yield f"dp4a.{a}.{b} $d, $0, $1, $2;", whole, (a, b, whole), bytes_product(f"{a[0]}8", f"{b[0]}8")


def limited(value: int) -> int:
    return max(-(2**31), min(2**31 - 1, value))


def carried(shift: int) -> Callable[[int, int, int], int]:
    """The half product plus the carry out of the half product plus c."""

    def second(a: int, b: int, c: int) -> int:
        half = a * b >> shift & 0xFFFFFFFF
        return half + (half + (c & 0xFFFFFFFF) >> 32)

    return second


def by_halves(function: Callable[[int, int], int], t: str) -> Callable[[int, int], int]:
    return lambda a, b: sum((function(ref.wrap(a >> k, t), ref.wrap(b >> k, t)) & 0xFFFF) << k for k in (0, 16))


def packed(t: str) -> Callable[[int, int], int]:
    bits = int(t[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if t[0] == "s" else (0, (1 << bits) - 1)
    return lambda a, b: sum((max(low, min(high, x)) & (1 << bits) - 1) << k for x, k in ((a, bits), (b, 0)))


def looked_up(table: int) -> Callable[[int, int, int], int]:
    return lambda *words: sum(
        (table >> sum((word >> i & 1) << place for word, place in zip(words, (2, 1, 0), strict=True)) & 1) << i
        for i in range(32)
    )


def halves_product(a_type: str, b_type: str, high: bool) -> Callable[[int, int, int], int]:
    first, half, byte = 16 * high, f"{a_type[0]}16", f"{b_type[0]}8"
    return lambda a, b, c: c + sum(ref.wrap(a >> 2 * k, half) * ref.wrap(b >> first + k, byte) for k in (0, 8))


def bytes_product(a_type: str, b_type: str) -> Callable[[int, int, int], int]:
    return lambda a, b, c: c + sum(ref.wrap(a >> k, a_type) * ref.wrap(b >> k, b_type) for k in (0, 8, 16, 24))


CASES = [
    *(case for type_ in INTEGER_TYPES for case in of_every_type(type_)),
    *(case for bits in (16, 32, 64) for case in of_bits(bits)),
    *of_words(),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_an_integer_instruction_is_its_reference(case: Case) -> None:
    check(case)
