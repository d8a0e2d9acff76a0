"""Each instruction on f16, f16x2, bf16 and bf16x2, run by the emulator from PTX text, against
tests/emulator/reference.py, which rounds each exact result once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest

from tests.emulator import reference as ref
from tests.emulator.evaluate import COMPARISONS, Case, check, evaluate
from tests.emulator.test_floats import or_nan, ordered, saturated


def flushed(x: float, exact: float | None = None) -> float:
    return ref.flushed(x, "f16", exact)


def relu(x: float) -> float:
    return 0.0 if x <= 0 else x


def half(t: str, function: Callable[..., float]) -> Callable[..., int]:
    """A function of numbers as one of the words that hold one or two of them. A result is a number of the format, or
    is rounded to it.
    """

    def of_words(*words: int) -> int:
        rows = zip(*(ref.halves(word, t) for word in words), strict=True)
        results = [ref.to_sixteen(function(*(ref.from_sixteen(bits, t) for bits in row)), t) for row in rows]
        return sum(bits << 16 * k for k, bits in enumerate(results))

    return of_words


def of_type(t: str) -> Iterator[Case]:
    """Cases of one of the four types."""
    f, one, two, three = t.removesuffix("x2"), (t,), (t, t), (t, t, t)
    suffixes: list[tuple[str, Callable[[float], float], Callable[..., float]]] = [("", float, lambda x, _: x)]
    if f == "f16":
        suffixes += [(".sat", float, lambda x, _: saturated(x)), (".ftz", flushed, flushed)]
        suffixes += [(".ftz.sat", flushed, lambda x, exact: saturated(flushed(x, exact)))]
    for suffix, into, out in suffixes:

        def by(exact: Callable[..., float], i: Any = into, o: Any = out) -> Callable[..., int]:
            """A result of operands, which float64 holds, rounded once; flushed by what it is before."""
            return half(t, lambda *row: o(exact(*map(i, row), f), exact(*map(i, row), "f64")))

        fma = by(ref.fma)
        yield f"add{suffix}.{t} $d, $0, $1;", t, two, by(ref.add)
        yield f"sub.rn{suffix}.{t} $d, $0, $1;", t, two, by(lambda a, b, type_: ref.add(a, -b, type_))
        yield f"mul{suffix}.{t} $d, $0, $1;", t, two, by(ref.mul)
        yield f"fma.rn{suffix}.{t} $d, $0, $1, $2;", t, three, fma
    yield f"fma.rn.relu.{t} $d, $0, $1, $2;", t, three, half(t, lambda a, b, c: relu(ref.fma(a, b, c, f)))
    yield f"neg.{t} $d, $0;", t, one, half(t, float.__neg__)
    yield f"abs.{t} $d, $0;", t, one, half(t, abs)
    for name, sign in (("min", 1), ("max", -1)):
        yield f"{name}.{t} $d, $0, $1;", t, two, half(t, lambda a, b, s=sign: ref.minimum(a, b, s))
        yield f"{name}.NaN.{t} $d, $0, $1;", t, two, half(t, lambda a, b, s=sign: or_nan(a, b, s))
        signed = half(t, lambda a, b, s=sign: ref.xor_signed(ref.minimum(abs(a), abs(b), s), a, b))
        yield f"{name}.xorsign.abs.{t} $d, $0, $1;", t, two, signed
    if f == "f16":
        yield f"neg.ftz.{t} $d, $0;", t, one, half(t, lambda a: -flushed(a))
        yield f"max.ftz.{t} $d, $0, $1;", t, two, half(t, lambda a, b: ref.minimum(flushed(a), flushed(b), -1))
    for name, test in COMPARISONS.items():
        for suffix, of_nan in (("", False), ("u", True)):
            yield from comparisons(t, f"{name}{suffix}", ordered(test, of_nan))


def comparisons(t: str, name: str, test: Callable[[float, float], bool]) -> Iterator[Case]:
    """setp gives a predicate, or one for each half; set a mask, or the number 1."""
    two = (t, t)
    yield f"set.{name}.{t}.{t} $d, $0, $1;", t, two, half(t, lambda a, b: float(test(a, b)))

    def mask(*words: int) -> int:
        pairs = zip(*(ref.halves(word, t) for word in words), strict=True)
        held = [test(*(ref.from_sixteen(bits, t) for bits in pair)) for pair in pairs]
        return sum(0xFFFF << 16 * k for k, yes in enumerate(held) if yes) if "x2" in t else -int(held[0])

    yield f"set.{name}.u32.{t} $d, $0, $1;", "u32", two, mask
    if "x2" in t:
        both = f"{{ .reg .pred p, q; setp.{name}.{t} p|q, $0, $1; selp.u32 $d, 1, 0, p; @q add.u32 $d, $d, 2; }}"
        yield both, "u32", two, lambda a, b: mask(a, b) & 1 | mask(a, b) >> 30 & 2
    else:
        yield f"setp.{name}.{t} $d, $0, $1;", "pred", two, lambda a, b: mask(a, b) & 1
        text = f"setp.{name}.or.{t} $d, $0, $1, $2;"
        yield text, "pred", (t, t, "pred"), lambda a, b, p: mask(a, b) & 1 | p


def conversions(f: str) -> Iterator[Case]:
    """From and to f16 or bf16."""
    decoded = lambda function: lambda bits: function(ref.from_sixteen(bits, f))  # noqa: E731
    for mode in ("rn", "rz", "rm", "rp"):
        for source, kind in (("f32", "half"), ("f32", "f32"), ("f64", "f64"), ("f64", "number64")):
            text = f"cvt.{mode}.{f}.{source} $d, $0;"
            yield text, f, (kind,), lambda a, m=mode: ref.to_sixteen(a, f, m)
        for source in ("u8", "s16", "u16", "s32", "u32", "s64", "u64"):
            if source != "u8":
                text = f"cvt.{mode}.{f}.{source} $d, $0;"
                yield text, f, (source,), lambda a, m=mode: ref.to_sixteen(Fraction(a), f, m)
    yield f"cvt.rn.relu.{f}.f32 $d, $0;", f, ("half",), lambda a: relu_of(a, f, "rn")
    for mode in ("rn", "rz"):
        for suffix, one in (("", ref.to_sixteen), (".relu", relu_of)):
            text = f"cvt.{mode}{suffix}.{f}x2.f32 $d, $0, $1;"
            yield text, f"{f}x2", ("half", "f32"), lambda a, b, o=one, m=mode: o(a, f, m) << 16 | o(b, f, m)
    yield f"cvt.f64.{f} $d, $0;", "f64", (f,), decoded(float)
    yield f"cvt.f32.{f} $d, $0;", "f32", (f,), decoded(float)
    other = "f16" if f == "bf16" else "bf16"
    yield f"cvt.rn.{other}.{f} $d, $0;", other, (f,), decoded(lambda a: ref.to_sixteen(a, other))
    for how in ("rni", "rzi", "rmi", "rpi"):
        yield f"cvt.{how}.{f}.{f} $d, $0;", f, (f,), half(f, lambda a, h=how: whole(a, h))
        for target in ("u16", "s16", "s32", "u32", "s64", "u64"):
            text = f"cvt.{how}.{target}.{f} $d, $0;"
            yield text, target, (f,), decoded(lambda a, to=target, h=how: ref.to_integer(a, "f32", to, h))


def relu_of(x: float, f: str, mode: str = "rn") -> int:
    return ref.to_sixteen(relu(x), f, mode)


def whole(a: float, how: str) -> float:
    if not math.isfinite(a):
        return a
    return math.copysign({"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[how](a), a)


def eight(bits: int, digits: int) -> float:
    """An 8-bit float. digits: of the fraction; with 3, only the pattern of ones is a NaN, and nothing is infinite."""
    bias = 2 ** (6 - digits) - 1
    exponent, fraction = bits >> digits & 2 ** (7 - digits) - 1, (bits & 2**digits - 1) / 2**digits
    size = math.ldexp(1 + fraction, exponent - bias) if exponent else math.ldexp(fraction, 1 - bias)
    if bits & 0x7F == 0x7F or (digits == 2 and exponent == 31):
        size = math.inf if fraction == 0 else math.nan
    return -size if bits >> 7 else size


def to_eight(x: float, digits: int) -> int:
    """The nearest finite pattern, of two the even one."""
    if math.isnan(x):
        return 0x7F
    size = min(abs(x), 1e9)
    near = min(range(0x7C if digits == 2 else 0x7F), key=lambda bits: (abs(eight(bits, digits) - size), bits & 1))
    return near | 0x80 * (math.copysign(1, x) < 0)


def of_halves() -> Iterator[Case]:
    """Cases of f16 only."""
    yield "cvt.rn.sat.f16.f32 $d, $0;", "f16", ("half",), lambda a: ref.to_sixteen(saturated(a), "f16")
    yield "cvt.rp.ftz.f16.f32 $d, $0;", "f16", ("f32",), lambda a: ref.to_sixteen(a, "f16", "rp")
    yield "cvt.sat.f32.f16 $d, $0;", "f32", ("f16",), lambda bits: saturated(ref.from_sixteen(bits, "f16"))
    yield "cvt.sat.f16.f16 $d, $0;", "f16", ("f16",), half("f16", saturated)
    for eights, digits in (("e4m3x2", 3), ("e5m2x2", 2)):
        for suffix, done in (("", lambda a: a), (".relu", relu)):
            text = f"cvt.rn{suffix}.f16x2.{eights} $d, $0;"
            halves_of = lambda word, n=digits, f=done: sum(  # noqa: E731
                ref.to_sixteen(f(eight(word >> k & 0xFF, n)), "f16") << 2 * k for k in (0, 8)
            )
            yield text, "f16x2", ("u16",), halves_of
            text = f"cvt.rn{suffix}.satfinite.{eights}.f32 $d, $0, $1;"
            both = lambda a, b, n=digits, f=done: to_eight(f(a), n) << 8 | to_eight(f(b), n)  # noqa: E731
            yield text, "u16", ("half", "f32"), both
            text = f"cvt.rn{suffix}.satfinite.{eights}.f16x2 $d, $0;"
            of_word = lambda word, f=both: f(*(ref.from_sixteen(word >> k & 0xFFFF, "f16") for k in (16, 0)))  # noqa: E731
            yield text, "u16", ("f16x2",), of_word
    flush = lambda bits: ref.flushed(ref.from_sixteen(bits, "bf16"))  # noqa: E731
    yield "cvt.ftz.f32.bf16 $d, $0;", "f32", ("bf16",), flush
    yield "cvt.rp.ftz.bf16.f32 $d, $0;", "bf16", ("f32",), lambda a: ref.to_sixteen(ref.flushed(a), "bf16", "rp")


CASES: list[Case] = [
    *(case for type_ in ("f16", "f16x2", "bf16", "bf16x2") for case in of_type(type_)),
    *(case for type_ in ("f16", "bf16") for case in conversions(type_)),
    *of_halves(),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{text} {' '.join(kinds)}" for text, _, kinds, _ in CASES])
def test_an_instruction_on_halves_is_its_reference(case: Case) -> None:
    check(case, rows=128)


@pytest.mark.parametrize(
    ("instruction", "result", "operands", "wanted"),
    [
        ("mul.ftz.f16 $d, $0, $1;", "f16", {"f16": (0x8400, 0xBBFF)}, 0),
        ("mul.ftz.f16x2 $d, $0, $1;", "f16x2", {"f16x2": (67163482, 1006620315)}, 26731),
        ("mul.ftz.sat.f16x2 $d, $0, $1;", "f16x2", {"f16x2": (67163482, 1006620315)}, 15360),
        ("cvt.rp.ftz.f16.f32 $d, $0;", "f16", {"f32": (1.82494e-40,)}, 1),
        ("testp.normal.f32 $d, $0;", "pred", {"f32": (-0.0,)}, 1),
        ("cvt.rn.tf32.f32 $d, $0;", "u32", {"f32": (math.nan,)}, 0x7FFFE000),
        ("cvt.rna.tf32.f32 $d, $0;", "u32", {"f32": (math.nan,)}, 0x7FC00000),
    ],
)
def test_what_an_h200_gave(instruction: str, result: str, operands: dict[str, tuple[float, ...]], wanted: int) -> None:
    ((type_, values),) = operands.items()
    assert evaluate(instruction, result, [type_] * len(values), [values]).tolist() == [wanted]
