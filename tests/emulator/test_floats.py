"""Each floating-point instruction, run by the emulator from PTX text, against tests/emulator/reference.py."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.emulator import reference as ref
from tests.emulator.evaluate import Case, check, evaluate, floats, numerals, op, patterns
from tests.emulator.test_integers import COMPARISONS, INTEGER_TYPES

HALVES = ("f16", "f16x2", "bf16", "bf16x2")
# What is tested for these types beyond the plain instructions.
SUFFIXES = {"f16": ("", ".sat", ".ftz", ".ftz.sat"), "f16x2": ("", ".sat", ".ftz", ".ftz.sat")}
LEAST = {"f32": 2.0**-126, "f64": 2.0**-1022}
TESTS: dict[str, Callable[[float, float], bool]] = {
    "finite": lambda a, _: math.isfinite(a),
    "infinite": lambda a, _: math.isinf(a),
    "number": lambda a, _: not math.isnan(a),
    "notanumber": lambda a, _: math.isnan(a),
    "normal": lambda a, least: math.isfinite(a) and (abs(a) >= least or a == 0),
    "subnormal": lambda a, least: 0 < abs(a) < least,
}
EXTREMES = {"min": ref.minimum, "max": ref.maximum}


def same(a: Any) -> Any:
    return a


def or_nan(choose: Callable[..., float], *row: float) -> float:
    return math.nan if any(map(math.isnan, row)) else choose(*row)


def xor_signed(choose: Callable[..., float], a: float, b: float) -> float:
    """Of the sizes, with the product of the signs."""
    size = choose(abs(a), abs(b))
    return -size if math.copysign(1, a) != math.copysign(1, b) else size


def ordered() -> Iterator[tuple[str, Callable[[float, float], bool]]]:
    """Comparisons by name: those that end in u hold for NaN."""
    for name, test in COMPARISONS.items():
        yield name, lambda a, b, f=test: not or_nan(lambda *_: 0.0, a, b) and f(a, b)
        yield f"{name}u", lambda a, b, f=test: bool(or_nan(lambda *_: 0.0, a, b)) or f(a, b)


def of_every_type(t: str) -> Iterator[Case]:
    """Cases of each floating-point type, also of two numbers in a word."""
    two, three = f"{t} {t}", f"{t} {t} {t}"
    for suffix in SUFFIXES.get(t, ("",)):
        yield op(f"add{suffix}.{t}", t, two, ref.add)
        yield op(f"sub.rn{suffix}.{t}", t, two, ref.subtract)
        yield op(f"mul{suffix}.{t}", t, two, ref.mul)
        yield op(f"fma.rn{suffix}.{t}", t, three, ref.fma)
    yield op(f"neg.{t}", t, t, operator.neg)
    yield op(f"abs.{t}", t, t, abs)
    for name, choose in EXTREMES.items():
        yield op(f"{name}.{t}", t, two, choose)
        if t != "f64":
            yield op(f"{name}.NaN.{t}", t, two, lambda a, b, f=choose: or_nan(f, a, b))
            yield op(f"{name}.xorsign.abs.{t}", t, two, lambda a, b, f=choose: xor_signed(f, a, b))
    if not t.endswith("x2"):
        for name, test in ordered():
            yield op(f"setp.{name}.{t}", "pred", two, test)


def of_words(t: str) -> Iterator[Case]:
    """Cases of f32 and f64."""
    two = f"{t} {t}"
    yield op(f"setp.nan.{t}", "pred", two, lambda a, b: math.isnan(a) or math.isnan(b))
    yield op(f"div.rn.{t}", t, two, ref.div)
    yield op(f"copysign.{t}", t, two, lambda a, b: math.copysign(b, a))
    yield op(f"sqrt.rn.{t}", t, t, ref.sqrt)
    yield op(f"rcp.rn.{t}", t, t, lambda a: ref.div(1.0, a))
    for name, test in TESTS.items():
        yield op(f"testp.{name}.{t}", "pred", t, lambda a, f=test: f(a, LEAST[t]))
    yield op(f"set.geu.u32.{t}", "u32", two, lambda a, b: -int(not a < b))
    yield op(f"set.gt.and.f32.{t}", "f32", f"{t} {t} pred", lambda a, b, p: float(a > b and p))
    for target, how in product(INTEGER_TYPES, ("rni", "rzi", "rmi", "rpi")):
        text, kind = f"cvt.{how}.{target}.{t}", {"f32": "number", "f64": "number64"}[t]
        yield op(text, target, kind, lambda a, to=target, h=how: ref.to_integer(a, t == "f64", to, h))


def of_singles() -> Iterator[Case]:
    """Cases of f32 only."""
    two, three = "f32 f32", "f32 f32 f32"
    yield op("fma.rn.ftz.f32", "f32", three, ref.fma)
    yield op("mul.ftz.f32", "f32", two, ref.mul)
    yield op("add.sat.f32", "f32", two, ref.add)
    for mode in ("rz", "rm", "rp"):
        yield op(f"add.{mode}.f32", "f32", two, ref.add)
        yield op(f"sub.{mode}.f32", "f32", two, ref.subtract)
        yield op(f"mul.{mode}.f32", "f32", two, ref.mul)
        yield op(f"fma.{mode}.f32", "f32", three, ref.fma)
        yield op(f"div.{mode}.f32", "f32", two, ref.div)
        yield op(f"rcp.{mode}.f32", "f32", "f32", lambda a: ref.div(1.0, a))
        yield op(f"sqrt.{mode}.f32", "f32", "f32", ref.sqrt)
        for source in ("s16", "u32", "s32", "u64", "s64"):
            yield op(f"cvt.{mode}.f32.{source}", "f32", source, same)
        yield op(f"cvt.{mode}.f32.f64", "f32", "number64", same)
    for name, choose in EXTREMES.items():
        yield op(f"{name}.f32", "f32", three, lambda a, b, c, f=choose: f(f(a, b), c))
        yield op(f"{name}.NaN.f32", "f32", three, lambda *row, f=choose: or_nan(lambda a, b, c: f(f(a, b), c), *row))
    yield op("slct.f32.f32", "f32", three, lambda a, b, c: a if c >= 0 else b)
    for form in ("div.approx", "div.full"):
        yield op(f"{form}.f32", "f32", two, ref.div)
    for kind in ("f64", "number64"):
        yield op("cvt.rn.f32.f64", "f32", kind, same)
    yield op("cvt.f64.f32", "f64", "f32", same)
    guarded = "mov.f32 $d, 0f3F800000; @$1 neg.f32 $d, $0; @!$1 add.f32 $d, $d, $d;"
    yield Case(guarded, "f32", ("f32", "pred"), lambda a, p: -a if p else 2.0)
    both = "{ .reg .pred q, r; setp.lt.xor.f32 q|r, $0, $1, $2; selp.u32 $d, 1, 0, q; @r add.u32 $d, $d, 2; }"
    yield Case(both, "u32", ("f32", "f32", "pred"), lambda a, b, p: ((a < b) != p) + 2 * ((not a < b) != p))
    for mode in ("rn", "rz"):
        yield op(f"cvt.{mode}.tf32.f32", "tf32", "f32", same)
    # Of NaN it keeps the upper bits, which may be an infinity's: below.
    yield op("cvt.rna.tf32.f32", "tf32", "f32", lambda a: None if math.isnan(a) else a)
    for name in ("f16", "bf16"):
        text = f"{{ .reg .b16 h; cvt.rn.{name}.f32 h, $0; cvt.f32.{name} $d, h; }}"
        yield Case(text, "f32", ("half",), lambda a, n=name: ref.decode(ref.encode(a, n), n))


def of_halves(t: str) -> Iterator[Case]:
    """Cases of f16 and bf16, and of two of them in a word."""
    two = f"{t} {t}"
    yield op(f"fma.rn.relu.{t}", t, f"{two} {t}", ref.fma)
    if t in SUFFIXES:
        yield op(f"neg.ftz.{t}", t, t, operator.neg)
        yield op(f"max.ftz.{t}", t, two, ref.maximum)
    for name, test in ordered():
        yield op(f"set.{name}.{t}.{t}", t, two, lambda a, b, f=test: float(f(a, b)))
        if t.endswith("x2"):
            lanes = lambda a, b, f=test: [*map(f, a, b)]  # noqa: E731
            mask = lambda a, b, f=lanes: sum(0xFFFF << 16 * k for k, yes in enumerate(f(a, b)) if yes)  # noqa: E731
            yield op(f"set.{name}.u32.{t}", "u32", two, mask)
            text = f"{{ .reg .pred p, q; setp.{name}.{t} p|q, $0, $1; selp.u32 $d, 1, 0, p; @q add.u32 $d, $d, 2; }}"
            yield Case(text, "u32", (t, t), lambda a, b, f=lanes: sum(yes << k for k, yes in enumerate(f(a, b))))
        else:
            yield op(f"set.{name}.u32.{t}", "u32", two, lambda a, b, f=test: -int(f(a, b)))
            yield op(f"setp.{name}.or.{t}", "pred", f"{two} pred", lambda a, b, p, f=test: f(a, b) | p)


def conversions(f: str) -> Iterator[Case]:
    """From and to f16 or bf16."""
    for mode in ("rn", "rz", "rm", "rp"):
        for source, kind in (("f32", "half"), ("f32", "f32"), ("f64", "f64"), ("f64", "number64")):
            yield op(f"cvt.{mode}.{f}.{source}", f, kind, same)
        for source in INTEGER_TYPES:
            yield op(f"cvt.{mode}.{f}.{source}", f, source, same)
    yield op(f"cvt.rn.relu.{f}.f32", f, "half", same)
    for mode, suffix in product(("rn", "rz"), ("", ".relu")):
        yield op(f"cvt.{mode}{suffix}.{f}x2.f32", f"{f}x2", "half f32", lambda a, b: (b, a))
    for target in ("f64", "f32", "f16" if f == "bf16" else "bf16"):
        yield op(f"cvt.{'rn.' if 'f16' in target else ''}{target}.{f}", target, f, same)
    for how in ("rni", "rzi", "rmi", "rpi"):
        yield op(f"cvt.{how}.{f}.{f}", f, f, lambda a, h=how: ref.whole(a, h) if math.isfinite(a) else a)
        for target in INTEGER_TYPES:
            yield op(f"cvt.{how}.{target}.{f}", target, f, lambda a, to=target, h=how: ref.to_integer(a, False, to, h))


def of_single_forms() -> Iterator[Case]:
    """Conversions with .sat and .ftz, and those of numbers of 8 bits."""
    yield op("cvt.rn.sat.f16.f32", "f16", "half", same)
    yield op("cvt.rp.ftz.f16.f32", "f16", "f32", same)
    yield op("cvt.sat.f32.f16", "f32", "f16", same)
    yield op("cvt.sat.f16.f16", "f16", "f16", same)
    yield op("cvt.ftz.f32.bf16", "f32", "bf16", same)
    yield op("cvt.rp.ftz.bf16.f32", "bf16", "f32", same)
    for eight, suffix in product(("e4m3", "e5m2"), ("", ".relu")):
        both = lambda word, f=eight: tuple(ref.decode(word >> k & 0xFF, f) for k in (0, 8))  # noqa: E731
        yield op(f"cvt.rn{suffix}.f16x2.{eight}x2", "f16x2", "u16", both)
        yield op(f"cvt.rn{suffix}.satfinite.{eight}x2.f32", f"{eight}x2", "half f32", lambda a, b: (b, a))
        yield op(f"cvt.rn{suffix}.satfinite.{eight}x2.f16x2", f"{eight}x2", "f16x2", same)


CASES = [
    *(case for type_ in ("f32", "f64", *HALVES) for case in of_every_type(type_)),
    *(case for type_ in ("f32", "f64") for case in of_words(type_)),
    *of_singles(),
    *(case for type_ in HALVES for case in of_halves(type_)),
    *(case for type_ in ("f16", "bf16") for case in conversions(type_)),
    *of_single_forms(),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_float_instruction_is_its_reference(case: Case) -> None:
    check(case, rows=128 if "f16" in str(case) else 512)


def test_fma_where_the_float64_sum_looks_like_a_tie() -> None:
    """A float32 c far above the product: the sum's cut-off part decides a tie that float64 does not show.

    For example 2^24 + 2 and a product just below or above 1: rounding through float64 gives the wrong neighbour. No sum
    is subnormal: where one is, the emulator rounds all of them in another way.
    """
    rng = np.random.default_rng(1)
    a, below, c = 1.0 + 2.0**-23, 1.0 - 2.0**-23, 2.0**24 + 2
    values = [(a, below, c), (-a, below, c), (2.0**-40, 2.0**-40, a), (2.0**-50, 2.0**-51, c)]
    for a, b, gap, digits in zip(
        *rng.integers(2**23, 2**24, (2, 250)), rng.integers(-3, 41, 250), rng.integers(-60, 61, 250), strict=True
    ):
        size = float(a) * float(b)
        c = float(np.float32(math.ldexp(2**23 + abs(int(digits)), int(gap) + 20))) * (1 if digits >= 0 else -1)
        # The product itself at half of c's last place, plus or minus a little.
        scale = math.ldexp(1.0, math.frexp(c)[1] - 24 - math.frexp(size)[1])
        values += [(float(a), float(b), c), (float(a), float(b * scale), c)]
        values += [(float(2**23), scale * 2**24, c), (float(2**23 + 1), scale * (2**24 - 2), c)]
    columns = [patterns(column, "f32") for column in zip(*values, strict=True)]
    check(op("fma.rn.f32", "f32", "f32 f32 f32", ref.fma), columns)


APPROXIMATE: dict[str, Callable[[float], float]] = {
    "ex2.approx": lambda x: 2.0**x if x < 1000 else math.inf,
    "lg2.approx": lambda x: math.log2(x) if x > 0 else -math.inf if x == 0 else math.nan,
    "sin.approx": lambda x: math.sin(x) if math.isfinite(x) else math.nan,
    "cos.approx": lambda x: math.cos(x) if math.isfinite(x) else math.nan,
    "tanh.approx": math.tanh,
    "sqrt.approx": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "rsqrt.approx": lambda x: 1 / math.sqrt(x) if x > 0 else math.copysign(math.inf, x) if x == 0 else math.nan,
    "rcp.approx": lambda x: float(np.divide(1.0, x)),
}


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_functions_give_the_nearest_float_and_a_finding(name: str, ftz: str) -> None:
    rng = np.random.default_rng(2)
    some = np.float32(rng.uniform(-100, 100, 500)).view(np.uint32).astype(np.uint64)
    column = np.concatenate([floats("f32", 500, rng), some])
    (got,), result = evaluate(f"{name}{ftz}.f32 $d, $0;", ["f32"], ["f32"], [column])
    for bits, operand in zip(got.tolist(), column.tolist(), strict=True):
        x, g = ref.decode(operand, "f32"), ref.decode(bits, "f32")
        if math.isnan(x):
            continue
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            near = float(np.float32(APPROXIMATE[name](ref.flushed(x, "f32") if ftz else x)))
        near = ref.flushed(near, "f32") if ftz else near
        close = math.isnan(g) if math.isnan(near) else g == near or math.isclose(g, near, rel_tol=2.0**-23)
        assert close or (abs(near) < 2.0**-120 and abs(g - near) <= 2.0**-126), (x, g, near)
    (finding,) = result.findings
    assert (finding.kind, finding.is_error, finding.count) == ("approximation", False, 1000)
    assert finding.message.startswith(f"{name}{ftz}.f32 gives the nearest float32")


def near_least() -> Iterator[tuple[Case, list[tuple[float, ...]]]]:
    """Instructions with .ftz, and rows of operands whose exact results are just below the least normal number."""
    for t, digits, least, tie in (
        ("f32", 24, 2.0**-126, (18631 * 2.0**-14, 1801 * 2.0**-11)),
        ("f16", 11, 2.0**-14, (65 * 2.0**-6, 63 * 2.0**-6)),
    ):
        # Times 1 - 2^-digits, 1 - 2^-2(digits - 1) and 1 - 2^-(digits + 1): the first has as many digits as the format.
        rows = [(least, 1 - 2.0**-digits), (least * (1 + 2.0 ** (1 - digits)), 1 - 2.0 ** (1 - digits))]
        rows.append((least * tie[0], tie[1]))
        rows += [(-a, b) for a, b in rows]
        for mode in ("rn", "rz", "rm", "rp") if t == "f32" else ("rn",):
            yield op(f"mul.{mode}.ftz.{t}", t, f"{t} {t}", ref.mul), rows
            # The last one's sum in float64 is a tie between the least normal number and the one below it.
            hidden = [(8384513 * 2.0**-98, -8392705 * 2.0**-99, least)] * (t == "f32")
            yield op(f"fma.{mode}.ftz.{t}", t, f"{t} {t} {t}", ref.fma), [*((*row, 0.0) for row in rows), *hidden]
            if t == "f32":
                yield op(f"cvt.{mode}.ftz.f32.f64", t, "f64", same), [(a * b,) for a, b in rows]
                # Quotients have no digits closer to the least normal number than these.
                quotients = [(2 - 2.0**-23, 2.0**127), (1.5 - 2.0**-23, 1.5 * 2.0**126)]
                yield op(f"div.{mode}.ftz.f32", t, "f32 f32", ref.div), quotients
                yield op(f"rcp.{mode}.ftz.f32", t, "f32", lambda a: ref.div(1.0, a)), [(2.0**126 * (1 + 2.0**-23),)]


NEAR_LEAST = [
    (case, [patterns(column, type_) for column, type_ in zip(zip(*rows, strict=True), case.kinds, strict=True)])
    for case, rows in near_least()
]


@pytest.mark.parametrize(("case", "columns"), NEAR_LEAST, ids=[case.text for case, _ in NEAR_LEAST])
def test_a_result_that_would_be_subnormal_if_exponents_had_no_limit_is_flushed(
    case: Case, columns: list[np.ndarray]
) -> None:
    """Each row alone: one that is subnormal makes the emulator round all of them in another way."""
    for k in range(len(columns[0])):
        check(case, [column[k : k + 1] for column in columns])


F32_NAN = ref.encode(math.nan, "f32")


@pytest.mark.parametrize(
    ("text", "result", "operands", "right"),
    [
        ("mul.rn.ftz.f32 $d, $0, $1;", "f32", {"f32": (0x00800001, 0x3F7FFFFE)}, 0x00800000),
        ("mul.ftz.f16 $d, $0, $1;", "f16", {"f16": (0x8400, 0xBBFF)}, 0),
        ("mul.ftz.f16x2 $d, $0, $1;", "f16x2", {"f16x2": (67163482, 1006620315)}, 26731),
        ("mul.ftz.sat.f16x2 $d, $0, $1;", "f16x2", {"f16x2": (67163482, 1006620315)}, 15360),
        ("cvt.rp.ftz.f16.f32 $d, $0;", "f16", {"f32": (0x0001FCB8,)}, 1),
        ("testp.normal.f32 $d, $0;", "pred", {"f32": (0x80000000,)}, 1),
        ("cvt.rn.tf32.f32 $d, $0;", "u32", {"f32": (F32_NAN,)}, 0x7FFFE000),
        ("cvt.rna.tf32.f32 $d, $0;", "u32", {"f32": (0x7FC00000,)}, 0x7FC00000),
        ("cvt.rna.tf32.f32 $d, $0;", "u32", {"f32": (0xFF801FFF,)}, 0xFF800000),
        ("cvt.rn.f16.f32 $d, $0;", "u16", {"f32": (F32_NAN,)}, 0x7FFF),
        ("cvt.rn.bf16.f32 $d, $0;", "u16", {"f32": (F32_NAN,)}, 0x7FFF),
    ],
)
def test_what_an_h200_gave(text: str, result: str, operands: dict[str, tuple[int, ...]], right: int) -> None:
    ((type_, values),) = operands.items()
    columns = [np.array([value], np.uint64) for value in values]
    (got,), _ = evaluate(text, [result], [type_] * len(values), columns)
    assert numerals(int(got[0]), result) == [right] or got.tolist() == [right]
