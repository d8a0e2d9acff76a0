"""Each floating-point instruction, run by the emulator from PTX text, against tests/emulator/reference.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.emulator import reference as ref
from tests.emulator.evaluate import COMPARISONS, INTEGER_TYPES, Case, assert_same, check, evaluate, floats, ptx_of
from worklog.emulator import launch, load

LEAST = {"f32": 2.0**-126, "f64": 2.0**-1022}
TESTS: dict[str, Callable[[float, float], bool]] = {
    "finite": lambda a, _: math.isfinite(a),
    "infinite": lambda a, _: math.isinf(a),
    "number": lambda a, _: not math.isnan(a),
    "notanumber": lambda a, _: math.isnan(a),
    "normal": lambda a, least: math.isfinite(a) and (abs(a) >= least or a == 0),
    "subnormal": lambda a, least: 0 < abs(a) < least,
}
NUMBER = {"f32": "number", "f64": "number64"}


def saturated(x: float) -> float:
    return 0.0 if math.isnan(x) or x <= 0 else min(x, 1.0)


def narrowed(a: float, mode: str = "rn") -> float:
    return a if not math.isfinite(a) or a == 0 else math.copysign(ref.rounded(Fraction(a), "f32", mode), a)


def flushing(function: Callable[..., float], *row: float) -> float:
    """A function with .ftz."""
    operands = [ref.flushed(x) for x in row]
    return ref.flushed(function(*operands, "f32"), exact=function(*operands, "f64"))


def or_nan(a: float, b: float, sign: int) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else ref.minimum(a, b, sign)


def ordered(test: Callable[[float, float], bool], of_nan: bool) -> Callable[[float, float], bool]:
    return lambda a, b: of_nan if math.isnan(a) or math.isnan(b) else test(a, b)


def of_type(t: str) -> Iterator[Case]:
    """Cases of f32 and f64."""
    one, two, three = (t,), (t, t), (t, t, t)
    for name, test in COMPARISONS.items():
        for suffix, of_nan in (("", False), ("u", True)):
            yield f"setp.{name}{suffix}.{t} $d, $0, $1;", "pred", two, ordered(test, of_nan)
    yield f"setp.nan.{t} $d, $0, $1;", "pred", two, lambda a, b: math.isnan(a) or math.isnan(b)
    yield f"fma.rn.{t} $d, $0, $1, $2;", t, three, lambda a, b, c: ref.fma(a, b, c, t)
    yield f"add.{t} $d, $0, $1;", t, two, lambda a, b: ref.add(a, b, t)
    yield f"sub.rn.{t} $d, $0, $1;", t, two, lambda a, b: ref.add(a, -b, t)
    yield f"mul.{t} $d, $0, $1;", t, two, lambda a, b: ref.mul(a, b, t)
    yield f"div.rn.{t} $d, $0, $1;", t, two, lambda a, b: ref.div(a, b, t)
    yield f"min.{t} $d, $0, $1;", t, two, lambda a, b: ref.minimum(a, b, 1)
    yield f"max.{t} $d, $0, $1;", t, two, lambda a, b: ref.minimum(a, b, -1)
    yield f"copysign.{t} $d, $0, $1;", t, two, lambda a, b: math.copysign(b, a)
    yield f"sqrt.rn.{t} $d, $0;", t, one, lambda a: ref.sqrt(a, t)
    yield f"rcp.rn.{t} $d, $0;", t, one, lambda a: ref.div(1.0, a, t)
    yield f"abs.{t} $d, $0;", t, one, abs
    for name, test in TESTS.items():
        yield f"testp.{name}.{t} $d, $0;", "pred", one, lambda a, f=test: f(a, LEAST[t])
    yield f"set.geu.u32.{t} $d, $0, $1;", "u32", two, lambda a, b: -int(not a < b)
    yield f"set.gt.and.f32.{t} $d, $0, $1, $2;", "f32", (t, t, "pred"), lambda a, b, p: float(a > b and p)
    yield f"neg.{t} $d, $0;", t, one, float.__neg__
    for target, how in product(INTEGER_TYPES, ("rni", "rzi", "rmi", "rpi")):
        text = f"cvt.{how}.{target}.{t} $d, $0;"
        yield text, target, (NUMBER[t],), lambda a, target=target, how=how: ref.to_integer(a, t, target, how)


def of_singles() -> Iterator[Case]:
    """Cases of f32 only."""
    t, two, three = "f32", ("f32",) * 2, ("f32",) * 3
    for name, function, kinds in (
        ("fma.rn.ftz.f32 $d, $0, $1, $2;", ref.fma, three),
        ("mul.ftz.f32 $d, $0, $1;", ref.mul, two),
    ):
        yield name, t, kinds, lambda *row, f=function: flushing(f, *row)
    yield "add.sat.f32 $d, $0, $1;", t, two, lambda a, b: saturated(ref.add(a, b, t))
    for mode in ("rz", "rm", "rp"):
        yield f"add.{mode}.f32 $d, $0, $1;", t, two, lambda a, b, m=mode: ref.fma(a, 1.0, b, t, m)
        yield f"sub.{mode}.f32 $d, $0, $1;", t, two, lambda a, b, m=mode: ref.fma(a, 1.0, -b, t, m)
        yield f"mul.{mode}.f32 $d, $0, $1;", t, two, lambda a, b, m=mode: ref.fma(a, b, ref.zero(a, b), t, m)
        yield f"div.{mode}.f32 $d, $0, $1;", t, two, lambda a, b, m=mode: ref.div(a, b, t, m)
        yield f"rcp.{mode}.f32 $d, $0;", t, ("f32",), lambda a, m=mode: ref.div(1.0, a, t, m)
        yield f"sqrt.{mode}.f32 $d, $0;", t, ("f32",), lambda a, m=mode: ref.sqrt(a, t, m)
        yield f"cvt.{mode}.f32.f64 $d, $0;", t, ("number64",), lambda a, m=mode: narrowed(a, m)
        for source in ("s16", "u32", "s32", "u64", "s64"):
            text = f"cvt.{mode}.f32.{source} $d, $0;"
            yield text, t, (source,), lambda a, m=mode: ref.rounded(Fraction(a), t, m)
        yield f"fma.{mode}.f32 $d, $0, $1, $2;", t, three, lambda a, b, c, m=mode: ref.fma(a, b, c, t, m)
    for name, sign in (("min", 1), ("max", -1)):
        text = f"{name}.xorsign.abs.f32 $d, $0, $1;"
        yield text, t, two, lambda a, b, s=sign: ref.xor_signed(ref.minimum(abs(a), abs(b), s), a, b)
        yield f"{name}.NaN.f32 $d, $0, $1;", t, two, lambda a, b, s=sign: or_nan(a, b, s)
        of_three = f"{name}.f32 $d, $0, $1, $2;"
        yield of_three, t, three, lambda a, b, c, s=sign: ref.minimum(ref.minimum(a, b, s), c, s)
        of_three = f"{name}.NaN.f32 $d, $0, $1, $2;"
        yield of_three, t, three, lambda a, b, c, s=sign: or_nan(or_nan(a, b, s), c, s)
    yield "slct.f32.f32 $d, $0, $1, $2;", t, three, lambda a, b, c: a if c >= 0 else b
    for form in ("div.approx", "div.full"):
        yield f"{form}.f32 $d, $0, $1;", t, two, lambda a, b: ref.div(a, b, t)
    yield "cvt.rn.f32.f64 $d, $0;", t, ("f64",), narrowed
    yield "cvt.rn.f32.f64 $d, $0;", t, ("number64",), narrowed
    yield "cvt.f64.f32 $d, $0;", "f64", ("f32",), float
    guarded = "mov.f32 $d, 0f3F800000; @$1 neg.f32 $d, $0; @!$1 add.f32 $d, $d, $d;"
    yield guarded, t, ("f32", "pred"), lambda a, p: -a if p else 2.0
    both = "{ .reg .pred q, r; setp.lt.xor.f32 q|r, $0, $1, $2; selp.u32 $d, 1, 0, q; @r add.u32 $d, $d, 2; }"
    yield both, "u32", (*two, "pred"), lambda a, b, p: int((a < b) != p) + 2 * int((not a < b) != p)
    for mode in ("rna", "rn", "rz"):
        yield f"cvt.{mode}.tf32.f32 $d, $0;", "u32", ("f32",), lambda a, m=mode: ref.to_tf32(a, m)
    for name in ("f16", "bf16"):
        yield f"cvt.rn.{name}.f32 $d, $0;", "u16", ("half",), lambda a, n=name: ref.to_sixteen(a, n)
        pair = f"cvt.rn.{name}x2.f32 $d, $0, $1;"
        yield pair, "u32", ("half", "f32"), lambda a, b, n=name: ref.to_sixteen(a, n) << 16 | ref.to_sixteen(b, n)
        text = f"{{ .reg .b16 h; cvt.rn.{name}.f32 h, $0; cvt.f32.{name} $d, h; }}"
        yield text, t, ("half",), lambda a, n=name: ref.from_sixteen(ref.to_sixteen(a, n), n)


CASES = [*of_type("f32"), *of_type("f64"), *of_singles()]


@pytest.mark.parametrize("case", CASES, ids=[f"{text} {' '.join(kinds)}" for text, _, kinds, _ in CASES])
def test_a_float_instruction_is_its_reference(case: Case) -> None:
    check(case)


def test_fma_where_the_float64_sum_looks_like_a_tie() -> None:
    """A float32 c far above the product: the sum's cut-off part decides a tie that float64 does not show.

    For example 2^24 + 2 and a product just below or above 1: rounding through float64 gives the wrong neighbour.
    """
    rng = np.random.default_rng(1)
    a, below, c = 1.0 + 2.0**-23, 1.0 - 2.0**-23, 2.0**24 + 2
    values = [(a, below, c), (-a, below, c), (2.0**-40, 2.0**-40, a), (2.0**-50, 2.0**-51, c)]
    values += [(2.0**-75, 2.0**-75, 2.0**-149), (1.5 * 2.0**-75, 2.0**-75, 2.0**-126)]
    for a, b, gap, digits in zip(
        *rng.integers(2**23, 2**24, (2, 250)), rng.integers(-3, 41, 250), rng.integers(-60, 61, 250), strict=True
    ):
        product = float(a) * float(b)
        c = float(np.float32(math.ldexp(2**23 + abs(int(digits)), int(gap) + 20))) * (1 if digits >= 0 else -1)
        values.append((float(a), float(b), c))
        # The product itself at half of c's last place, plus or minus a little.
        scale = math.ldexp(1.0, math.frexp(c)[1] - 24 - math.frexp(product)[1])
        values.append((float(a), float(np.float32(b * scale)), c))
        values.append((float(2**23), float(np.float32(scale * 2**24)), c))
        values.append((float(2**23 + 1), float(np.float32(scale * (2**24 - 2))), c))
    got = evaluate("fma.rn.f32 $d, $0, $1, $2;", "f32", ["f32"] * 3, values)
    assert_same(got, [ref.fma(*row, "f32") for row in values], "f32", values)


APPROXIMATE: dict[str, Callable[[float], float]] = {
    "ex2.approx": lambda x: 2.0**x if x < 1000 else math.inf,
    "lg2.approx": lambda x: math.log2(x) if x > 0 else -math.inf if x == 0 else math.nan,
    "sin.approx": lambda x: math.sin(x) if math.isfinite(x) else math.nan,
    "cos.approx": lambda x: math.cos(x) if math.isfinite(x) else math.nan,
    "tanh.approx": math.tanh,
    "sqrt.approx": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "rsqrt.approx": lambda x: 1 / math.sqrt(x) if x > 0 else math.copysign(math.inf, x) if x == 0 else math.nan,
    "rcp.approx": lambda x: ref.div(1.0, x, "f64"),
}


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_functions_give_the_nearest_float_and_a_finding(name: str, ftz: str) -> None:
    rng = np.random.default_rng(2)
    some = [*floats("f32", 500, rng), *np.float32(rng.uniform(-100, 100, 500)).tolist()]
    values = [(x,) for x in some if not math.isnan(x)]
    got = evaluate(f"{name}{ftz}.f32 $d, $0;", "f32", ["f32"], values)
    for g, (x,) in zip(got.tolist(), values, strict=True):
        with np.errstate(over="ignore", under="ignore"):
            near = float(np.float32(APPROXIMATE[name](ref.flushed(x) if ftz else x)))
        near = ref.flushed(near) if ftz else near
        same = math.isnan(g) if math.isnan(near) else g == near or math.isclose(g, near, rel_tol=2.0**-23)
        assert same or (abs(near) < 2.0**-120 and abs(g - near) <= 2.0**-126), (x, g, near)
    kernel = load(ptx_of(f"{name}.f32 $d, $0;", "f32", ("f32",)), "k")
    (finding,) = launch(kernel, (1,), 3, [np.ones(3, np.float32), np.zeros(3, np.float32)]).findings
    assert (finding.kind, finding.is_error, finding.count) == ("approximation", False, 3)
    assert finding.message.startswith(f"{name}.f32 gives the nearest float32")


def near_least() -> Iterator[tuple[str, tuple[str, ...], str, list[tuple[float, ...]], list[float]]]:
    """Instructions with .ftz: the operands' types, the result's, rows of operands whose exact results are just below
    the least normal number, and the results. An H200 gives those of mul and fma to the nearest; the others follow by
    the same rule.
    """
    for type_, digits, least, tie in (
        ("f32", 24, 2.0**-126, (18631 * 2.0**-14, 1801 * 2.0**-11)),
        ("f16", 11, 2.0**-14, (65 * 2.0**-6, 63 * 2.0**-6)),
    ):
        # Times 1 - 2^-digits, 1 - 2^-2(digits - 1) and 1 - 2^-(digits + 1): the first has as many digits as the format.
        rows = [(least, 1 - 2.0**-digits), (least * (1 + 2.0 ** (1 - digits)), 1 - 2.0 ** (1 - digits))]
        rows.append((least * tie[0], tie[1]))
        rows += [(-a, b) for a, b in rows]
        away, none = [0.0, least, least], [0.0] * 3
        for mode in ("rn", "rz", "rm", "rp") if type_ == "f32" else ("rn",):
            positive, negative = (away if mode in ("rn", side) else none for side in ("rp", "rm"))
            results = [*positive, *(-x for x in negative)]
            yield f"mul.{mode}.ftz.{type_} $d, $0, $1;", (type_,) * 2, type_, rows, results
            thirds = [(*row, 0.0) for row in rows]
            yield f"fma.{mode}.ftz.{type_} $d, $0, $1, $2;", (type_,) * 3, type_, thirds, results
            if type_ == "f32":
                exact = [(a * b,) for a, b in rows]
                yield f"cvt.{mode}.ftz.f32.f64 $d, $0;", ("f64",), "f32", exact, results
                # Quotients have no digits closer to the least normal number than these.
                quotients = [(2 - 2.0**-23, 2.0**127), (1.5 - 2.0**-23, 1.5 * 2.0**126)]
                yield f"div.{mode}.ftz.f32 $d, $0, $1;", ("f32",) * 2, "f32", quotients, [0.0, 0.0]
                yield f"rcp.{mode}.ftz.f32 $d, $0;", ("f32",), "f32", [(2.0**126 * (1 + 2.0**-23),)], [0.0]


NEAR_LEAST = [*near_least()]


@pytest.mark.parametrize("case", NEAR_LEAST, ids=[case[0] for case in NEAR_LEAST])
def test_a_result_that_would_be_subnormal_if_exponents_had_no_limit_is_flushed(case: Any) -> None:
    instruction, types, result, rows, results = case
    got = evaluate(instruction, result, types, held(rows, types))
    assert_same(got, held([results], [result] * len(results))[0], result, rows)


def held(rows: Sequence[Sequence[float]], types: Sequence[str]) -> list[tuple[Any, ...]]:
    """Numbers of 16 bits as their bits."""
    return [tuple(ref.to_sixteen(x, t) if "f16" in t else x for x, t in zip(row, types, strict=True)) for row in rows]
