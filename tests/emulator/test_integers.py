"""Each integer and bit instruction, run by the emulator from PTX text, against tests/emulator/reference.py."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.emulator import reference as ref
from tests.emulator.evaluate import COMPARISONS, INTEGER_TYPES, SETTINGS, assert_same_floats, evaluate, integers, rows

COUNTS = st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1))
BINARY: list[tuple[str, Callable[[int, int, str], int]]] = [
    ("add", lambda a, b, t: a + b),
    ("sub", lambda a, b, t: a - b),
    ("mul.lo", lambda a, b, t: a * b),
    ("mul.hi", lambda a, b, t: a * b >> int(t[1:])),
    ("min", lambda a, b, t: min(a, b)),
    ("max", lambda a, b, t: max(a, b)),
    ("div", lambda a, b, t: ref.quotient(a, b) if b else -1),
    ("rem", lambda a, b, t: a - b * ref.quotient(a, b) if b else -1),
]


@pytest.mark.parametrize("type_", INTEGER_TYPES)
@pytest.mark.parametrize(("name", "function"), BINARY, ids=[name for name, _ in BINARY])
def test_integer_arithmetic(name: str, function: Callable[[int, int, str], int], type_: str) -> None:
    @SETTINGS
    @given(rows(integers(type_), integers(type_)))
    def check(values: list[tuple[int, int]]) -> None:
        got = evaluate(f"{name}.{type_} $d, $0, $1;", type_, (type_, type_), values)
        assert got.tolist() == [ref.wrap(function(a, b, type_), type_) for a, b in values]

    check()


@pytest.mark.parametrize("type_", ["u16", "s16", "u32", "s32"])
def test_wide_products(type_: str) -> None:
    wide = f"{type_[0]}{int(type_[1:]) * 2}"

    @SETTINGS
    @given(rows(integers(type_), integers(type_), integers(wide)))
    def check(values: list[tuple[int, int, int]]) -> None:
        got = evaluate(f"mul.wide.{type_} $d, $0, $1;", wide, (type_, type_, wide), values)
        assert got.tolist() == [a * b for a, b, _ in values]
        got = evaluate(f"mad.wide.{type_} $d, $0, $1, $2;", wide, (type_, type_, wide), values)
        assert got.tolist() == [ref.wrap(a * b + c, wide) for a, b, c in values]

    check()


@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
def test_multiply_add_on_integers(type_: str) -> None:
    @SETTINGS
    @given(rows(*[integers(type_)] * 3))
    def check(values: list[tuple[int, int, int]]) -> None:
        for form, shift in (("lo", 0), ("hi", int(type_[1:]))):
            got = evaluate(f"mad.{form}.{type_} $d, $0, $1, $2;", type_, [type_] * 3, values)
            assert got.tolist() == [ref.wrap((a * b >> shift) + c, type_) for a, b, c in values]

    check()


@pytest.mark.parametrize("type_", ["s16", "s32", "s64"])
def test_negation_and_absolute_value(type_: str) -> None:
    @SETTINGS
    @given(rows(integers(type_)))
    def check(values: list[tuple[int]]) -> None:
        assert evaluate(f"neg.{type_} $d, $0;", type_, [type_], values).tolist() == [
            ref.wrap(-a, type_) for (a,) in values
        ]
        assert evaluate(f"abs.{type_} $d, $0;", type_, [type_], values).tolist() == [
            ref.wrap(abs(a), type_) for (a,) in values
        ]

    check()


@pytest.mark.parametrize("type_", ["b16", "b32", "b64"])
def test_logic(type_: str) -> None:
    unsigned = type_.replace("b", "u")

    @SETTINGS
    @given(rows(integers(unsigned), integers(unsigned)))
    def check(values: list[tuple[int, int]]) -> None:
        for name, function in (("and", int.__and__), ("or", int.__or__), ("xor", int.__xor__)):
            got = evaluate(f"{name}.{type_} $d, $0, $1;", unsigned, (unsigned, unsigned), values)
            assert got.tolist() == [function(a, b) for a, b in values]
        got = evaluate(f"not.{type_} $d, $0;", unsigned, (unsigned, unsigned), values)
        assert got.tolist() == [ref.wrap(~a, unsigned) for a, _ in values]

    check()


@pytest.mark.parametrize("type_", ["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"])
def test_shifts(type_: str) -> None:
    held = type_.replace("b", "u")
    bits = int(type_[1:])

    @SETTINGS
    @given(rows(integers(held), st.one_of(st.integers(0, 70), integers("u32"))), st.integers(0, bits - 1))
    def check(values: list[tuple[int, int]], fixed: int) -> None:
        right = [a >> min(n, bits) for a, n in values]
        assert evaluate(f"shr.{type_} $d, $0, $1;", held, (held, "u32"), values).tolist() == right
        assert evaluate(f"shr.{type_} $d, $0, {fixed};", held, (held, "u32"), values).tolist() == [
            a >> fixed for a, _ in values
        ]
        if type_[0] == "b":
            left = [ref.wrap(a << min(n, bits), held) for a, n in values]
            assert evaluate(f"shl.{type_} $d, $0, $1;", held, (held, "u32"), values).tolist() == left

    check()


@SETTINGS
@given(rows(integers("u32"), integers("u32"), st.one_of(st.integers(0, 40), integers("u32"))))
def test_funnel_shifts(values: list[tuple[int, int, int]]) -> None:
    for clamp in ("wrap", "clamp"):
        counts = [min(n, 32) if clamp == "clamp" else n & 31 for _, _, n in values]
        both = [high << 32 | low for low, high, _ in values]
        left = evaluate(f"shf.l.{clamp}.b32 $d, $0, $1, $2;", "u32", ["u32"] * 3, values)
        assert left.tolist() == [(x << n) >> 32 & 0xFFFFFFFF for x, n in zip(both, counts, strict=True)]
        right = evaluate(f"shf.r.{clamp}.b32 $d, $0, $1, $2;", "u32", ["u32"] * 3, values)
        assert right.tolist() == [x >> n & 0xFFFFFFFF for x, n in zip(both, counts, strict=True)]


@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
def test_bit_field_extract(type_: str) -> None:
    @SETTINGS
    @given(rows(integers(type_), COUNTS, COUNTS))
    def check(values: list[tuple[int, int, int]]) -> None:
        got = evaluate(f"bfe.{type_} $d, $0, $1, $2;", type_, (type_, "u32", "u32"), values)
        assert got.tolist() == [ref.bit_field(a, p, n, type_) for a, p, n in values]

    check()


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_field_insert(bits: int) -> None:
    type_ = f"u{bits}"

    @SETTINGS
    @given(rows(integers(type_), integers(type_), COUNTS, COUNTS))
    def check(values: list[tuple[int, int, int, int]]) -> None:
        got = evaluate(f"bfi.b{bits} $d, $0, $1, $2, $3;", type_, (type_, type_, "u32", "u32"), values)
        assert got.tolist() == [ref.insert(a, b, p, n, bits) for a, b, p, n in values]

    check()


@pytest.mark.parametrize("bits", [32, 64])
def test_counting_and_reversing_bits(bits: int) -> None:
    type_ = f"u{bits}"

    @SETTINGS
    @given(rows(integers(type_)))
    def check(values: list[tuple[int]]) -> None:
        flat = [a for (a,) in values]
        assert evaluate(f"popc.b{bits} $d, $0;", "u32", [type_], values).tolist() == [a.bit_count() for a in flat]
        assert evaluate(f"clz.b{bits} $d, $0;", "u32", [type_], values).tolist() == [
            bits - a.bit_length() for a in flat
        ]
        wanted = [int(f"{a:0{bits}b}"[::-1], 2) for a in flat]
        assert evaluate(f"brev.b{bits} $d, $0;", type_, [type_], values).tolist() == wanted

    check()


@SETTINGS
@given(rows(*[integers("u32")] * 3), st.integers(0, 255))
def test_three_input_logic_and_byte_permutation(values: list[tuple[int, int, int]], table: int) -> None:
    got = evaluate(f"lop3.b32 $d, $0, $1, $2, {table};", "u32", ["u32"] * 3, values)
    wanted = []
    for a, b, c in values:
        word = 0
        for i in range(32):
            word |= (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i
        wanted.append(word)
    assert got.tolist() == wanted
    got = evaluate("prmt.b32 $d, $0, $1, $2;", "u32", ["u32"] * 3, values)
    assert got.tolist() == [ref.permute(a, b, c) for a, b, c in values]


@pytest.mark.parametrize("type_", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_integer_comparisons(type_: str) -> None:
    @SETTINGS
    @given(rows(integers(type_), integers(type_), st.integers(0, 1)))
    def check(values: list[tuple[int, int, int]]) -> None:
        for name, function in COMPARISONS.items():
            got = evaluate(f"setp.{name}.{type_} $d, $0, $1;", "pred", (type_, type_, "pred"), values)
            assert got.tolist() == [function(a, b) for a, b, _ in values]
        for name, combine in (("and", int.__and__), ("or", int.__or__), ("xor", int.__xor__)):
            got = evaluate(f"setp.lt.{name}.{type_} $d, $0, $1, $2;", "pred", (type_, type_, "pred"), values)
            assert got.tolist() == [combine(int(a < b), p) for a, b, p in values]
        got = evaluate(f"selp.{type_} $d, $0, $1, $2;", type_, (type_, type_, "pred"), values)
        assert got.tolist() == [a if p else b for a, b, p in values]

    check()


@pytest.mark.parametrize("source", ["u16", "s16", "u32", "s32", "u64", "s64"])
def test_integer_conversions(source: str) -> None:
    @SETTINGS
    @given(rows(integers(source)))
    def check(values: list[tuple[int]]) -> None:
        flat = [a for (a,) in values]
        for target in INTEGER_TYPES:
            got = evaluate(f"cvt.{target}.{source} $d, $0;", target, [source], values)
            assert got.tolist() == [ref.wrap(a, target) for a in flat], target
            low, high = (
                (-(2 ** (int(target[1:]) - 1)), 2 ** (int(target[1:]) - 1) - 1)
                if target[0] == "s"
                else (0, 2 ** int(target[1:]) - 1)
            )
            got = evaluate(f"cvt.sat.{target}.{source} $d, $0;", target, [source], values)
            assert got.tolist() == [min(max(a, low), high) for a in flat], target
        for target in ("f32", "f64"):
            got = evaluate(f"cvt.rn.{target}.{source} $d, $0;", target, [source], values)
            assert_same_floats(got, [ref.rounded(Fraction(a), target) for a in flat], target, values)

    check()


@SETTINGS
@given(rows(integers("u64"), integers("u32")))
def test_packing_and_unpacking(values: list[tuple[int, int]]) -> None:
    swap = "{ .reg .b32 lo, hi; mov.b64 {lo, hi}, $0; mov.b64 $d, {hi, lo}; }"
    got = evaluate(swap, "u64", ("u64", "u32"), values)
    assert got.tolist() == [(a << 32 | a >> 32) & (2**64 - 1) for a, _ in values]
    halves = "{ .reg .b16 lo, hi; mov.b32 {lo, hi}, $1; mov.b32 $d, {hi, lo}; }"
    got = evaluate(halves, "u32", ("u64", "u32"), values)
    assert got.tolist() == [(b << 16 | b >> 16) & 0xFFFFFFFF for _, b in values]


@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
def test_carries_between_instructions(type_: str) -> None:
    """Numbers of two and three words, added and subtracted word by word."""
    bits, held = int(type_[1:]), type_.replace("s", "u")

    @SETTINGS
    @given(rows(*[integers(held)] * 4))
    def check(values: list[tuple[int, int, int, int]]) -> None:
        mask = (1 << bits) - 1
        for plus, sign in (("add", 1), ("sub", -1)):
            low = f"{plus}.cc.{type_} $d, $0, $2;"
            middle = f"{low} {plus}c.cc.{type_} $d, $1, $3;"
            totals = [(b << bits | a) + sign * (d << bits | c) for a, b, c, d in values]
            for text, shift in ((low, 0), (f"{low} {plus}c.{type_} $d, $1, $3;", bits)):
                assert evaluate(text, held, [held] * 4, values).tolist() == [total >> shift & mask for total in totals]
            top = evaluate(f"{middle} {plus}c.{type_} $d, 5, 0;", held, [held] * 4, values)
            assert top.tolist() == [(total >> 2 * bits) + 5 & mask for total in totals]

    check()


@pytest.mark.parametrize("type_", ["u32", "s32", "u64", "s64"])
def test_finding_the_top_bit(type_: str) -> None:
    bits = int(type_[1:])

    @SETTINGS
    @given(rows(integers(type_)))
    def check(values: list[tuple[int]]) -> None:
        places = [(~a if a < 0 else a).bit_length() - 1 for (a,) in values]
        found = evaluate(f"bfind.{type_} $d, $0;", "u32", [type_], values)
        assert found.tolist() == [place if place >= 0 else 2**32 - 1 for place in places]
        shifts = evaluate(f"bfind.shiftamt.{type_} $d, $0;", "u32", [type_], values)
        assert shifts.tolist() == [bits - 1 - place if place >= 0 else 2**32 - 1 for place in places]

    check()


@pytest.mark.parametrize("a_type", ["u32", "s32"])
@pytest.mark.parametrize("b_type", ["u32", "s32"])
def test_products_of_four_bytes(a_type: str, b_type: str) -> None:
    whole = "s32" if "s32" in (a_type, b_type) else "u32"

    def parts(word: int, type_: str) -> list[int]:
        return [ref.wrap(word >> 8 * k, f"{type_[0]}8") for k in range(4)]

    @SETTINGS
    @given(rows(integers(a_type), integers(b_type), integers(whole)))
    def check(values: list[tuple[int, int, int]]) -> None:
        got = evaluate(f"dp4a.{a_type}.{b_type} $d, $0, $1, $2;", whole, (a_type, b_type, whole), values)
        sums = [c + sum(map(int.__mul__, parts(a, a_type), parts(b, b_type))) for a, b, c in values]
        assert got.tolist() == [ref.wrap(total, whole) for total in sums]

    check()


@pytest.mark.parametrize("type_", INTEGER_TYPES)
def test_distances_and_selection_by_sign(type_: str) -> None:
    @SETTINGS
    @given(rows(integers(type_), integers(type_), integers(type_), integers("s32")))
    def check(values: list[tuple[int, int, int, int]]) -> None:
        types = (type_, type_, type_, "s32")
        got = evaluate(f"sad.{type_} $d, $0, $1, $2;", type_, types, values)
        assert got.tolist() == [ref.wrap(c + abs(a - b), type_) for a, b, c, _ in values]
        got = evaluate(f"slct.{type_}.s32 $d, $0, $1, $3;", type_, types, values)
        assert got.tolist() == [a if sign >= 0 else b for a, b, _, sign in values]

    check()
