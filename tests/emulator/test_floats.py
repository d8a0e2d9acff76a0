"""Each floating-point instruction, run by the emulator from PTX text, against tests/emulator/reference.py."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.emulator import reference as ref
from tests.emulator.evaluate import (
    COMPARISONS,
    INTEGER_TYPES,
    SETTINGS,
    assert_same_floats,
    evaluate,
    floats,
    ptx_of,
    rows,
)
from worklog.emulator import launch, load


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


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_directed_rounding(mode: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(rows(floats("f32"), floats("f32"), floats("f32")))
    def check(values: list[tuple[float, float, float]]) -> None:
        wanted = {
            f"add.{mode}.f32 $d, $0, $1;": [ref.fma_directed(a, 1.0, b, mode) for a, b, _ in values],
            f"sub.{mode}.f32 $d, $0, $1;": [ref.fma_directed(a, 1.0, -b, mode) for a, b, _ in values],
            f"mul.{mode}.f32 $d, $0, $1;": [ref.mul_directed(a, b, mode) for a, b, _ in values],
            f"fma.{mode}.f32 $d, $0, $1, $2;": [ref.fma_directed(a, b, c, mode) for a, b, c in values],
        }
        for text, right in wanted.items():
            assert_same_floats(evaluate(text, "f32", ["f32"] * 3, values), right, "f32", values)

    check()


@SETTINGS
@given(rows(floats("f32"), floats("f32"), floats("f32")))
def test_nan_propagating_and_three_operand_minimum_and_selection(values: list[tuple[float, float, float]]) -> None:
    for name, sign in (("min", 1), ("max", -1)):
        got = evaluate(f"{name}.NaN.f32 $d, $0, $1;", "f32", ["f32"] * 3, values)
        wanted = [math.nan if math.isnan(a) or math.isnan(b) else ref.minimum(a, b, sign) for a, b, _ in values]
        assert_same_floats(got, wanted, "f32", values)
        got = evaluate(f"{name}.f32 $d, $0, $1, $2;", "f32", ["f32"] * 3, values)
        wanted = [ref.minimum(ref.minimum(a, b, sign), c, sign) for a, b, c in values]
        assert_same_floats(got, wanted, "f32", values)
    got = evaluate("slct.f32.f32 $d, $0, $1, $2;", "f32", ["f32"] * 3, values)
    assert_same_floats(got, [a if c >= 0 else b for a, b, c in values], "f32", values)


@pytest.mark.parametrize("format_", ["f16", "bf16"])
def test_sixteen_bit_formats(format_: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(
        rows(st.one_of(floats("f32"), st.floats(-70000, 70000, width=32), st.floats(-1, 1, width=16)), floats("f32"))
    )
    def check(values: list[tuple[float, float]]) -> None:
        first, second = ([ref.to_sixteen(row[k], format_) for row in values] for k in (0, 1))
        got = evaluate(f"cvt.rn.{format_}.f32 $d, $0;", "u16", ("f32", "f32"), values)
        assert got.tolist() == first
        got = evaluate(f"cvt.rn.{format_}x2.f32 $d, $0, $1;", "u32", ("f32", "f32"), values)
        assert got.tolist() == [high << 16 | low for high, low in zip(first, second, strict=True)]
        there_and_back = f"{{ .reg .b16 h; cvt.rn.{format_}.f32 h, $0; cvt.f32.{format_} $d, h; }}"
        back = evaluate(there_and_back, "f32", ("f32", "f32"), values)
        assert_same_floats(back, [ref.from_sixteen(bits, format_) for bits in first], "f32", values)

    check()


APPROXIMATE = {
    "ex2.approx": lambda x: 2.0**x if x < 1000 else math.inf,
    "lg2.approx": lambda x: math.log2(x) if x > 0 else -math.inf if x == 0 else math.nan,
    "sin.approx": lambda x: math.sin(x) if math.isfinite(x) else math.nan,
    "cos.approx": lambda x: math.cos(x) if math.isfinite(x) else math.nan,
    "tanh.approx": math.tanh,
    "sqrt.approx": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "rsqrt.approx": lambda x: 1 / math.sqrt(x) if x > 0 else math.copysign(math.inf, x) if x == 0 else math.nan,
    "rcp.approx": lambda x: ref.div(1.0, x, "f64"),
}


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_functions_give_the_nearest_float_and_a_finding(name: str) -> None:
    @SETTINGS
    @given(rows(st.one_of(floats("f32"), st.floats(-100, 100, width=32)).filter(lambda x: not math.isnan(x))))
    def check(values: list[tuple[float]]) -> None:
        for ftz in ("", ".ftz"):
            got = evaluate(f"{name}{ftz}.f32 $d, $0;", "f32", ["f32"], values)
            for g, (x,) in zip(got.tolist(), values, strict=True):
                wanted = APPROXIMATE[name](flushed(x) if ftz else x)
                with np.errstate(over="ignore", under="ignore"):
                    near = float(np.float32(wanted))
                near = flushed(near) if ftz else near
                same = math.isnan(g) if math.isnan(near) else g == near or math.isclose(g, near, rel_tol=2.0**-23)
                assert same or (abs(near) < 2.0**-120 and abs(g - near) <= 2.0**-126), (x, g, wanted)

    check()
    out = np.zeros(3, np.float32)
    text = ptx_of(f"{name}.f32 $d, $0;", "f32", ("f32",))
    (finding,) = launch(load(text, "k"), (1,), 3, [np.ones(3, np.float32), out]).findings
    assert (finding.kind, finding.is_error, finding.count) == ("approximation", False, 3)
    assert finding.message == f"{name}.f32 gives the nearest float32 here; a GPU's last bits may differ"


@SETTINGS
@given(rows(floats("f32"), floats("f32")))
def test_approximate_division(values: list[tuple[float, float]]) -> None:
    for form in ("div.approx.f32", "div.full.f32"):
        got = evaluate(f"{form} $d, $0, $1;", "f32", ["f32"] * 2, values)
        assert_same_floats(got, [ref.div(a, b, "f32") for a, b in values], "f32", values)
