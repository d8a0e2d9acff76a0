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
            yield (
                text,
                held,
                (held,) * 4,
                lambda a, b, c, d, sign=sign, word=word, more=more: (
                    ((b << bits | a) + sign * (d << bits | c) >> word * bits) + more
                ),
            )


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
    swap = "{ .reg .b32 lo, hi; mov.b64 {lo, hi}, $0; mov.b64 $d, {hi, lo}; }"
    yield swap, "u64", ("u64",), lambda a: a << 32 | a >> 32
    halves = "{ .reg .b16 lo, hi; mov.b32 {lo, hi}, $0; mov.b32 $d, {hi, lo}; }"
    yield halves, "u32", ("u32",), lambda a: a << 16 | a >> 16
    for a, b in product(("u32", "s32"), repeat=2):
        whole = "s32" if "s32" in (a, b) else "u32"
        yield f"dp4a.{a}.{b} $d, $0, $1, $2;", whole, (a, b, whole), bytes_product(f"{a[0]}8", f"{b[0]}8")


def looked_up(table: int) -> Callable[[int, int, int], int]:
    return lambda *words: sum(
        (table >> sum((word >> i & 1) << place for word, place in zip(words, (2, 1, 0), strict=True)) & 1) << i
        for i in range(32)
    )


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
