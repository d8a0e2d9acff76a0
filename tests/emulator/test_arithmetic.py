"""Each arithmetic instruction, run by the emulator from PTX text, against tests/emulator/reference.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulator import reference as ref
from worklog.emulator import launch, load

DTYPES = {
    "u16": "u2", "s16": "i2", "b16": "u2", "u32": "u4", "s32": "i4", "b32": "u4", "u64": "u8", "s64": "i8", "b64": "u8",
    "f32": "f4", "f64": "f8", "pred": "u4",
}  # fmt: skip
SETTINGS = settings(max_examples=25, deadline=None)


def evaluate(instruction: str, result: str, operands: Sequence[str], values: Sequence[Sequence[Any]]) -> np.ndarray:
    """The results of `instruction`: $d is the destination, $0, $1 … the operands; values: a row an element."""
    arrays = [np.array([row[k] for row in values], DTYPES[type_]) for k, type_ in enumerate(operands)]
    return evaluate_arrays(instruction, result, operands, arrays)


def evaluate_arrays(instruction: str, result: str, operands: Sequence[str], arrays: Sequence[np.ndarray]) -> np.ndarray:
    out = np.zeros(len(arrays[0]), DTYPES[result])
    launch(load(ptx_of(instruction, result, tuple(operands)), "k"), (1,), len(out), [*arrays, out], races=False)
    return out


def ptx_of(instruction: str, result: str, operands: tuple[str, ...]) -> str:
    kinds = {
        name: name.replace("s", "b").replace("u", "b") if name[0] in "su" else name for name in (*operands, result)
    }
    registers = [f".reg .{kinds[type_]} %v{k}_;" for k, type_ in enumerate(operands) if type_ != "pred"]
    registers += [f".reg .pred %v{k}_; .reg .b32 %q{k}_;" for k, type_ in enumerate(operands) if type_ == "pred"]
    registers.append(f".reg .{kinds[result]} %d_;" if result != "pred" else ".reg .pred %d_; .reg .b32 %dq_;")
    loads, text = [], instruction.replace("$d", "%d_")
    for k, type_ in enumerate(operands):
        size = np.dtype(DTYPES[type_]).itemsize
        held = f"%q{k}_" if type_ == "pred" else f"%v{k}_"
        stored = "b32" if type_ == "pred" else type_
        loads.append(
            f"ld.param.u64 %rd1, [p{k}]; mad.wide.u32 %rd2, %r1, {size}, %rd1; ld.global.{stored} {held}, [%rd2];"
        )
        if type_ == "pred":
            loads.append(f"setp.ne.u32 %v{k}_, {held}, 0;")
        text = text.replace(f"${k}", f"%v{k}_")
    if result == "pred":
        text += " selp.u32 %dq_, 1, 0, %d_;"
    stored = "b32" if result == "pred" else result
    size = np.dtype(DTYPES[result]).itemsize
    params = ", ".join(f".param .u64 p{k}" for k in range(len(operands) + 1))
    return f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k({params}) {{
.reg .b32 %r<3>; .reg .b64 %rd<5>; {" ".join(registers)}
mov.u32 %r1, %tid.x;
{" ".join(loads)}
{text}
ld.param.u64 %rd3, [p{len(operands)}];
mad.wide.u32 %rd4, %r1, {size}, %rd3;
st.global.{stored} [%rd4], {"%dq_" if result == "pred" else "%d_"};
ret;
}}
"""


def integers(type_: str) -> st.SearchStrategy[int]:
    bits = int(type_[1:])
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if type_[0] == "s" else (0, 2**bits - 1)
    edges = [value for value in (low, low + 1, -1, 0, 1, 2, high - 1, high, high // 2) if low <= value <= high]
    return st.one_of(st.integers(low, high), st.sampled_from(edges), st.integers(max(low, -70), 70))


def floats(type_: str) -> st.SearchStrategy[float]:
    """All bit patterns, with more of those that go wrong: specials, subnormals, few digits, near equal exponents."""
    bits = int(type_[1:])
    mantissa = 23 if bits == 32 else 52
    bias = 127 if bits == 32 else 1023
    near = st.builds(
        lambda sign, e, m: ref.from_bits(sign << (bits - 1) | (bias + e) << mantissa | m, type_),
        st.integers(0, 1),
        st.integers(-4, 4),
        st.one_of(
            st.integers(0, 2**mantissa - 1), st.builds(lambda k: 1 << k, st.integers(0, mantissa - 1)), st.just(0)
        ),
    )
    anything = st.integers(0, 2**bits - 1).map(lambda b: ref.from_bits(b, type_))
    tiny = st.integers(0, 2 ** (mantissa + 3)).map(lambda b: ref.from_bits(b, type_))
    special = st.sampled_from(
        [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, 2.0**-75, 2.0**-74, -(2.0**-76)]
    )
    return st.one_of(near, anything, tiny, special)


def rows(*strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(st.tuples(*strategies), min_size=1, max_size=40)


def assert_same_floats(got: np.ndarray, wanted: Sequence[float], type_: str, values: Sequence[Any]) -> None:
    for g, w, row in zip(got.tolist(), wanted, values, strict=True):
        same = math.isnan(g) if math.isnan(w) else ref.to_bits(g, type_) == ref.to_bits(w, type_)
        assert same, f"{row}: got {g!r}, should be {w!r}"


INTEGER_TYPES = ("u16", "s16", "u32", "s32", "u64", "s64")
BINARY: list[tuple[str, Callable[[int, int, str], int]]] = [
    ("add", lambda a, b, t: a + b),
    ("sub", lambda a, b, t: a - b),
    ("mul.lo", lambda a, b, t: a * b),
    ("mul.hi", lambda a, b, t: a * b >> int(t[1:])),
    ("min", lambda a, b, t: min(a, b)),
    ("max", lambda a, b, t: max(a, b)),
    ("div", lambda a, b, t: ref.quotient(a, b) if b else -1),
    ("rem", lambda a, b, t: a - b * ref.quotient(a, b) if b else a),
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
    @given(rows(integers(type_), st.integers(0, 300), st.integers(0, 300)))
    def check(values: list[tuple[int, int, int]]) -> None:
        got = evaluate(f"bfe.{type_} $d, $0, $1, $2;", type_, (type_, "u32", "u32"), values)
        assert got.tolist() == [ref.bit_field(a, p, n, type_) for a, p, n in values]

    check()


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_field_insert(bits: int) -> None:
    type_ = f"u{bits}"

    @SETTINGS
    @given(rows(integers(type_), integers(type_), st.integers(0, 300), st.integers(0, 300)))
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


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


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


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_float_comparisons(type_: str) -> None:
    @SETTINGS
    @given(rows(floats(type_), floats(type_)))
    def check(values: list[tuple[float, float]]) -> None:
        for name, function in COMPARISONS.items():
            ordered = [function(a, b) and not (math.isnan(a) or math.isnan(b)) for a, b in values]
            got = evaluate(f"setp.{name}.{type_} $d, $0, $1;", "pred", (type_, type_), values)
            assert got.tolist() == ordered
            got = evaluate(f"setp.{name}u.{type_} $d, $0, $1;", "pred", (type_, type_), values)
            assert got.tolist() == [function(a, b) or math.isnan(a) or math.isnan(b) for a, b in values]
        got = evaluate(f"setp.nan.{type_} $d, $0, $1;", "pred", (type_, type_), values)
        assert got.tolist() == [math.isnan(a) or math.isnan(b) for a, b in values]

    check()


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_fma_rounds_once(type_: str) -> None:
    @settings(max_examples=150, deadline=None)
    @given(rows(floats(type_), floats(type_), floats(type_)))
    def check(values: list[tuple[float, float, float]]) -> None:
        got = evaluate(f"fma.rn.{type_} $d, $0, $1, $2;", type_, [type_] * 3, values)
        assert_same_floats(got, [ref.fma(a, b, c, type_) for a, b, c in values], type_, values)

    check()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(2**23, 2**24 - 1), st.integers(2**23, 2**24 - 1), st.integers(-3, 40), st.integers(-60, 60)
        ),
        min_size=1,
        max_size=60,
    )
)
def test_fma_where_the_float64_sum_looks_like_a_tie(parts: list[tuple[int, int, int, int]]) -> None:
    """A float32 c far above the product: the sum's cut-off part decides a tie that float64 does not show."""
    values = []
    for a, b, gap, digits in parts:
        product = float(a * b)
        c = float(np.float32(math.ldexp(2**23 + abs(digits), gap + 20))) * (1 if digits >= 0 else -1)
        values.append((float(a), float(b), c))
        # The product itself at half of c's last place, plus or minus a little.
        scale = math.ldexp(1.0, math.frexp(c)[1] - 24 - math.frexp(product)[1])
        values.append((float(a), float(np.float32(b * scale)), c))
        values.append((float(2**23), float(np.float32(scale * 2**24)), float(np.float32(c))))
        values.append((float(2**23 + 1), float(np.float32(scale * (2**24 - 2))), float(np.float32(c))))
    got = evaluate("fma.rn.f32 $d, $0, $1, $2;", "f32", ["f32"] * 3, values)
    assert_same_floats(got, [ref.fma(a, b, c, "f32") for a, b, c in values], "f32", values)


def test_fma_on_a_known_double_rounding_case() -> None:
    """2^24 + 2 and a product just below or above 1: rounding through float64 gives a tie and the wrong neighbour."""
    a = 1.0 + 2.0**-23
    values = [(a, 1.0 - 2.0**-23, 2.0**24 + 2), (-a, 1.0 - 2.0**-23, 2.0**24 + 2), (2.0**-40, 2.0**-40, 1.0 + 2.0**-23)]
    values += [
        (2.0**-75, 2.0**-75, 2.0**-149),
        (1.5 * 2.0**-75, 2.0**-75, 2.0**-126),
        (2.0**-50, 2.0**-51, 2.0**24 + 2),
    ]
    got = evaluate("fma.rn.f32 $d, $0, $1, $2;", "f32", ["f32"] * 3, values)
    assert_same_floats(got, [ref.fma(*row, "f32") for row in values], "f32", values)


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_float_arithmetic(type_: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(rows(floats(type_), floats(type_)))
    def check(values: list[tuple[float, float]]) -> None:
        types = (type_, type_)
        operations: dict[str, list[float]] = {
            f"add.{type_}": [ref.add(a, b, type_) for a, b in values],
            f"sub.rn.{type_}": [ref.add(a, -b, type_) for a, b in values],
            f"mul.{type_}": [ref.mul(a, b, type_) for a, b in values],
            f"div.rn.{type_}": [ref.div(a, b, type_) for a, b in values],
            f"min.{type_}": [ref.minimum(a, b, 1) for a, b in values],
            f"max.{type_}": [ref.minimum(a, b, -1) for a, b in values],
        }
        for name, wanted in operations.items():
            assert_same_floats(evaluate(f"{name} $d, $0, $1;", type_, types, values), wanted, type_, values)
        got = evaluate(f"copysign.{type_} $d, $0, $1;", type_, types, values)
        numbers = [0.0 if math.isnan(a) else math.copysign(b, a) for a, b in values]
        assert_same_floats(
            np.where(np.isnan([a for a, _ in values]), 0.0, got).astype(got.dtype), numbers, type_, values
        )
        singles: dict[str, list[float]] = {
            f"sqrt.rn.{type_}": [ref.sqrt(a, type_) for a, _ in values],
            f"rcp.rn.{type_}": [ref.div(1.0, a, type_) for a, _ in values],
            f"abs.{type_}": [abs(a) for a, _ in values],
            f"neg.{type_}": [-a for a, _ in values],
        }
        for name, wanted in singles.items():
            assert_same_floats(evaluate(f"{name} $d, $0;", type_, types, values), wanted, type_, values)

    check()


def flushed(x: float) -> float:
    return math.copysign(0.0, x) if abs(x) < 2.0**-126 else x


@SETTINGS
@given(rows(floats("f32"), floats("f32"), floats("f32")))
def test_flush_to_zero_and_saturation(values: list[tuple[float, float, float]]) -> None:
    inputs = [tuple(flushed(x) for x in row) for row in values]
    got = evaluate("fma.rn.ftz.f32 $d, $0, $1, $2;", "f32", ["f32"] * 3, values)
    assert_same_floats(got, [flushed(ref.fma(*row, "f32")) for row in inputs], "f32", values)
    got = evaluate("mul.ftz.f32 $d, $0, $1;", "f32", ["f32"] * 3, values)
    assert_same_floats(got, [flushed(ref.mul(a, b, "f32")) for a, b, _ in inputs], "f32", values)
    got = evaluate("add.sat.f32 $d, $0, $1;", "f32", ["f32"] * 3, values)
    sums = [ref.add(a, b, "f32") for a, b, _ in values]
    assert_same_floats(got, [0.0 if math.isnan(x) or x <= 0 else min(x, 1.0) for x in sums], "f32", values)


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


@pytest.mark.parametrize("source", ["f32", "f64"])
def test_float_conversions(source: str) -> None:
    @settings(max_examples=40, deadline=None)
    @given(rows(st.one_of(floats(source), st.floats(-1e10, 1e10, width=32), st.floats(-65504, 65504, width=16))))
    def check(values: list[tuple[float]]) -> None:
        flat = [a for (a,) in values]
        for target in INTEGER_TYPES:
            for rounding in ("rni", "rzi", "rmi", "rpi"):
                got = evaluate(f"cvt.{rounding}.{target}.{source} $d, $0;", target, [source], values)
                assert got.tolist() == [ref.to_integer(a, source, target, rounding) for a in flat], (target, rounding)
        if source == "f64":
            got = evaluate("cvt.rn.f32.f64 $d, $0;", "f32", ["f64"], values)
            wanted = [a if not math.isfinite(a) or a == 0 else ref.rounded(Fraction(a), "f32") for a in flat]
            assert_same_floats(got, wanted, "f32", values)
        else:
            assert_same_floats(evaluate("cvt.f64.f32 $d, $0;", "f64", ["f32"], values), flat, "f64", values)

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


@SETTINGS
@given(rows(floats("f32"), st.integers(0, 1)))
def test_a_guard_keeps_the_old_value(values: list[tuple[float, int]]) -> None:
    got = evaluate(
        "mov.f32 $d, 0f3F800000; @$1 neg.f32 $d, $0; @!$1 add.f32 $d, $d, $d;", "f32", ("f32", "pred"), values
    )
    assert_same_floats(got, [-a if p else 2.0 for a, p in values], "f32", values)


def test_the_fast_mode_rounds_twice() -> None:
    a, b, c = (np.array([x], np.float32) for x in (1.0 + 2.0**-23, 1.0 + 2.0**-23, -1.0))
    kernel = load(ptx_of("fma.rn.f32 $d, $0, $1, $2;", "f32", ("f32",) * 3), "k")
    out = np.zeros(1, np.float32)
    launch(kernel, (1,), 1, [a, b, c, out], exact=False)
    assert out[0] == np.float32(2.0**-22)
    launch(kernel, (1,), 1, [a, b, c, out], exact=True)
    assert out[0] == np.float32(2.0**-22 + 2.0**-46)
