"""Each integer and bit instruction, run by the emulator from PTX text, against tests/emulator/reference.py."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from tests.emulator import reference as ref
from tests.emulator.evaluate import Case, check, op

INTEGER_TYPES = ("u16", "s16", "u32", "s32", "u64", "s64")
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}
LOGIC: dict[str, Callable[[int, int], int]] = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}


def of_every_type(t: str) -> Iterator[Case]:
    """Cases of u16 to s64."""
    bits, two, three = int(t[1:]), f"{t} {t}", f"{t} {t} {t}"
    yield op(f"add.{t}", t, two, operator.add)
    yield op(f"sub.{t}", t, two, operator.sub)
    yield op(f"mul.lo.{t}", t, two, operator.mul)
    yield op(f"mul.hi.{t}", t, two, lambda a, b: a * b >> bits)
    yield op(f"min.{t}", t, two, min)
    yield op(f"max.{t}", t, two, max)
    yield op(f"div.{t}", t, two, lambda a, b: ref.quotient(a, b) if b else -1)
    yield op(f"rem.{t}", t, two, lambda a, b: a - b * ref.quotient(a, b) if b else -1)
    yield op(f"sad.{t}", t, three, lambda a, b, c: c + abs(a - b))
    yield op(f"slct.{t}.s32", t, f"{two} s32", lambda a, b, sign: a if sign >= 0 else b)
    yield op(f"selp.{t}", t, f"{two} pred", lambda a, b, p: a if p else b)
    yield op(f"shr.{t}", t, f"{t} count", lambda a, n: a >> min(n, bits))
    yield Case(f"shr.{t} $d, $0, {bits - 3};", t, (t,), lambda a: a >> bits - 3)
    for name, test in COMPARISONS.items():
        yield op(f"setp.{name}.{t}", "pred", two, test)
    for name, combine in LOGIC.items():
        yield op(f"setp.lt.{name}.{t}", "pred", f"{two} pred", lambda a, b, p, f=combine: f(int(a < b), p))
    for source in INTEGER_TYPES:
        yield op(f"cvt.{t}.{source}", t, source, int)
        yield op(f"cvt.sat.{t}.{source}", t, source, int)
    for target in ("f32", "f64"):
        yield op(f"cvt.rn.{target}.{t}", target, t, int)
    if t[0] == "s":
        yield op(f"neg.{t}", t, t, operator.neg)
        yield op(f"abs.{t}", t, t, abs)
    if bits < 64:
        wide = f"{t[0]}{2 * bits}"
        yield op(f"mul.wide.{t}", wide, two, operator.mul)
        yield op(f"mad.wide.{t}", wide, f"{two} {wide}", lambda a, b, c: a * b + c)
    if bits > 16:
        yield op(f"mad.lo.{t}", t, three, lambda a, b, c: a * b + c)
        yield op(f"mad.hi.{t}", t, three, lambda a, b, c: (a * b >> bits) + c)
        yield op(f"bfe.{t}", t, f"{t} count count", lambda a, p, n: ref.bit_field(a, p, n, t))
        digits = lambda a: (~a if a < 0 else a).bit_length()  # noqa: E731
        yield op(f"bfind.{t}", "u32", t, lambda a: digits(a) - 1)
        yield op(f"bfind.shiftamt.{t}", "u32", t, lambda a: bits - digits(a) if a not in (0, -1) else -1)
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
            shifted = lambda *row, f=total, word=word, more=more: (f(*row) >> word * bits) + more  # noqa: E731
            yield Case(text, held, (held,) * 4, shifted)


def of_bits(bits: int) -> Iterator[Case]:
    """Cases of b16 to b64."""
    b, t = f"b{bits}", f"u{bits}"
    for name, combine in LOGIC.items():
        yield op(f"{name}.{b}", t, f"{t} {t}", combine)
    yield op(f"not.{b}", t, t, operator.inv)
    yield op(f"cnot.{b}", t, t, operator.not_)
    yield op(f"shl.{b}", t, f"{t} count", lambda a, n: a << min(n, bits))
    yield op(f"shr.{b}", t, f"{t} count", lambda a, n: a >> min(n, bits))
    if bits > 16:
        yield op(f"popc.{b}", "u32", t, int.bit_count)
        yield op(f"clz.{b}", "u32", t, lambda a: bits - a.bit_length())
        yield op(f"brev.{b}", t, t, lambda a: int(f"{a:0{bits}b}"[::-1], 2))
        yield op(f"bfi.{b}", t, f"{t} {t} count count", lambda a, b, p, n: ref.insert(a, b, p, n, bits))
        half = f"b{bits // 2}"
        swap = f"{{ .reg .{half} lo, hi; mov.{b} {{lo, hi}}, $0; mov.{b} $d, {{hi, lo}}; }}"
        yield Case(swap, t, (t,), lambda a: a << bits // 2 | a >> bits // 2)


def of_words() -> Iterator[Case]:
    """Cases of 32 bits."""
    three, shift = "u32 u32 u32", "u32 u32 count"
    for clamp, count in (("wrap", lambda n: n & 31), ("clamp", lambda n: min(n, 32))):
        both = lambda low, high: high << 32 | low  # noqa: E731
        yield op(f"shf.l.{clamp}.b32", "u32", shift, lambda x, y, n, f=both, c=count: f(x, y) << c(n) >> 32)
        yield op(f"shf.r.{clamp}.b32", "u32", shift, lambda x, y, n, f=both, c=count: f(x, y) >> c(n))
        clamps = clamp == "clamp"
        yield op(f"bmsk.{clamp}.b32", "u32", "count count", lambda a, b, c=clamps: ref.bit_mask(a, b, c))
        for t in ("u32", "s32"):
            yield op(f"szext.{clamp}.{t}", t, f"{t} count", lambda a, n, t=t, c=clamps: ref.extended(a, n, t, c))
    for table in (0, 0x80, 0xE8, 0x96, 0x1B, 0xCA, 0xFE, 0x35):
        yield Case(f"lop3.b32 $d, $0, $1, $2, {table};", "u32", ("u32",) * 3, looked_up(table))
    for name in ("and", "or"):
        text = f"{{ .reg .pred q; lop3.{name}.b32 $d|q, $0, $1, $2, 0x40, $3; @q not.b32 $d, $d; }}"
        yield Case(text, "u32", ("u32", "u32", "u32", "pred"), turned_if(LOGIC[name], looked_up(0x40)))
    yield op("prmt.b32", "u32", three, ref.permute)
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        picked = lambda a, b, c, m=mode: ref.permute(a, b, ref.selector(m, c & 3))  # noqa: E731
        yield op(f"prmt.b32.{mode}", "u32", three, picked)
    yield op("add.sat.s32", "s32", "s32 s32", operator.add)
    yield op("sub.sat.s32", "s32", "s32 s32", operator.sub)
    yield op("mad.hi.sat.s32", "s32", "s32 s32 s32", lambda a, b, c: (a * b >> 32) + c)
    for t, (half, lowest) in product(("u32", "s32"), (("lo", 0), ("hi", 16))):
        short = lambda a, b, c=f"{t[0]}24", s=lowest: ref.wrap(a, c) * ref.wrap(b, c) >> s  # noqa: E731
        yield op(f"mul24.{half}.{t}", t, f"{t} {t}", short)
        yield op(f"mad24.{half}.{t}", t, f"{t} {t} {t}", lambda a, b, c, f=short: f(a, b) + c)
        chain = f"mad.{half}.cc.{t} $d, $0, $1, $2; madc.{half}.{t} $d, $0, $1, 0;"
        yield Case(chain, t, (t,) * 3, lambda a, b, c, s=2 * lowest: carried(a * b >> s, c))


def of_parts() -> Iterator[Case]:
    """Cases of two and four numbers in a word, and those that put them there."""
    for t, (name, combine) in product(("u16", "s16"), (("add", operator.add), ("min", min), ("max", max))):
        yield op(f"{name}.{t}x2", "u32", "u32 u32", by_halves(combine, t))
    for name, choose in (("min", min), ("max", max)):
        positive = lambda a, b, f=choose: max(f(a, b), 0)  # noqa: E731
        yield op(f"{name}.relu.s16x2", "u32", "u32 u32", by_halves(positive, "s16"))
        yield op(f"{name}.relu.s32", "s32", "s32 s32", positive)
    for t in ("s16", "u16"):
        yield op(f"cvt.pack.sat.{t}.s32", "u32", "s32 s32", packed(t))
    for t in ("s8", "u8"):
        pack = packed(t)
        yield op(
            f"cvt.pack.sat.{t}.s32.b32", "u32", "s32 s32 u32", lambda a, b, c, f=pack: f(a, b) | c << 16 & 0xFFFF0000
        )
    for target, (name, test) in product(("u32", "s32"), COMPARISONS.items()):
        yield op(f"set.{name}.{target}.s32", target, "s32 s32", lambda a, b, f=test: -int(f(a, b)))
    yield op("set.lt.f32.u64", "f32", "u64 u64", lambda a, b: float(a < b))
    yield op("set.lt.or.u32.u16", "u32", "u16 u16 pred", lambda a, b, p: -int(a < b or p))
    for a, b in product("us", repeat=2):
        total = "s32" if "s" in a + b else "u32"
        kinds = f"{a}32 {b}32 {total}"
        for half, start in (("lo", 0), ("hi", 16)):
            yield op(f"dp2a.{half}.{a}32.{b}32", total, kinds, dot(f"{a}16", (0, 16), f"{b}8", (start, start + 8)))
        yield op(f"dp4a.{a}32.{b}32", total, kinds, dot(f"{a}8", (0, 8, 16, 24), f"{b}8", (0, 8, 16, 24)))


def carried(half: int, c: int) -> int:
    """The half product plus the carry out of the half product plus c."""
    low = half & 0xFFFFFFFF
    return low + (low + (c & 0xFFFFFFFF) >> 32)


def by_halves(function: Callable[[int, int], int], t: str) -> Callable[[int, int], int]:
    return lambda a, b: sum((function(ref.wrap(a >> k, t), ref.wrap(b >> k, t)) & 0xFFFF) << k for k in (0, 16))


def packed(t: str) -> Callable[[int, int], int]:
    bits = int(t[1:])
    return lambda a, b: sum((ref.clamped(x, t) & (1 << bits) - 1) << k for x, k in ((a, bits), (b, 0)))


def looked_up(table: int) -> Callable[[int, int, int], int]:
    """Each bit of the result is the table's at the number that the operands' bits make."""
    return lambda a, b, c: sum(
        (table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(32)
    )


def turned_if(combine: Callable[[int, int], int], function: Callable[[int, int, int], int]) -> Callable[..., int]:
    """The word, or its complement if its being other than zero, combined with a predicate, says so."""

    def result(a: int, b: int, c: int, p: int) -> int:
        word = function(a, b, c)
        return ~word if combine(int(word != 0), p) else word

    return result


def dot(a_type: str, a_places: tuple[int, ...], b_type: str, b_places: tuple[int, ...]) -> Callable[..., int]:
    """The products of the numbers at these bits of a and b, added to c."""
    pairs = [*zip(a_places, b_places, strict=True)]
    return lambda a, b, c: c + sum(ref.wrap(a >> j, a_type) * ref.wrap(b >> k, b_type) for j, k in pairs)


CASES = [
    *(case for type_ in INTEGER_TYPES for case in of_every_type(type_)),
    *(case for bits in (16, 32, 64) for case in of_bits(bits)),
    *of_words(),
    *of_parts(),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_integer_instruction_is_its_reference(case: Case) -> None:
    check(case)
