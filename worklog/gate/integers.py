"""The stage for integers of the full range, with sums beyond float32's integers.

The other stages have factors and sums whose values float32 holds. A kernel that adds in float or in
16 bits, takes the bytes as unsigned or has no -128 is right there. Here all numbers of the format
are factors, and many sums leave 24 bits. The reference is in int64, and a C of int32 is compared as
integers. A C of floats is compared as FP32's sums are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from worklog.gate.guarded_buffer import Buffers, Memory
from worklog.gate.precision import classify, rms_and_largest
from worklog.kernel import Runnable
from worklog.problem import Domain, Float32, Float64, Shape
from worklog.problem.epilogues import activated
from worklog.problem.formats import FLOAT32, INT8, Format
from worklog.runs import Stage, failed, passed

FULL_RANGE = "integers of the full range"
EXACT = "exact"  # in place of a precision class
SHAPE = 33, 47  # M and N
LONG_K = 2112  # so that sums of int8 leave float32's integers, also with zeros in a tail
LONG_SQUARE = 160  # of a kernel for squares, on the emulator
LARGE = 0.8  # share of the largest number, from which large elements are drawn
LARGEST_OF_INT32 = 800  # factors of int32, so that sums stay in int32
SHORT_SPAN = 2**16  # numbers of int16
LEAST_SHORT = 2**15
# Roundings of a C of int32 that a float alpha or beta multiplied, in units of the last place.
ROUNDINGS = 4
ROUNDED = "sums beyond 24 bits are rounded, as a float alpha or beta does"

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Factors:
    """A, B and C before the launch, as integers, and the scalars."""

    a: Integers
    b: Integers
    old: Integers
    alpha: int = 1
    beta: int = 0
    epilogue: str = ""

    @classmethod
    def of_matrices(cls, a: Float32, b: Float32, old: Float32 | float | None) -> Factors:
        """Return the factors of matrices, with the usual scalars.

        old: C, or the value of each element; None if it isn't read
        """
        if old is None:
            old = 0.0
        return cls(a.astype(np.int64), b.astype(np.int64), np.asarray(old).astype(np.int64))

    @property
    def sums(self) -> Integers:
        """A B."""
        product: Integers = self.a @ self.b
        return product

    def result(self, sums: Integers) -> Integers:
        """Return alpha sums + beta C, with the activation."""
        result = self.alpha * sums + self.beta * self.old
        if self.epilogue:
            return np.rint(activated(self.epilogue, result.astype(np.float64))).astype(np.int64)
        return result


def check_full_range(subject: Runnable, memory: Memory) -> Stage:
    """Launch with all numbers of A's and B's formats and a long K. Raises LaunchFailed."""
    shape = _shape(subject.domain, is_live=memory.device.source == "live")
    factors = _drawn(subject, shape, memory.rng)
    buffers = Buffers(memory, factors.a.astype(np.float32), factors.b.astype(np.float32))
    old = factors.old.astype(np.float32) if factors.beta else None
    result = buffers.run(subject, factors.alpha, factors.beta, old, is_raw=True)
    launch = f"at {shape} with alpha = {factors.alpha}, beta = {factors.beta}"
    if result.trespass:
        return failed(FULL_RANGE, f"{launch}: {result.trespass}")
    launch += f", and sums up to {np.abs(factors.sums).max():,}"
    if not subject.types.c.is_integer:
        return _judged_as_float(launch, result.c, factors)
    c = _integers_in(memory, buffers).reshape(factors.sums.shape)
    error = np.abs(c - factors.result(factors.sums))
    wrong_count = int((error > _allowed(subject, factors)).sum())
    if not wrong_count:
        clause = ROUNDED if error.any() else ""
        return passed(FULL_RANGE, f"every element is right {launch}", clause=clause)
    detail = f"{wrong_count} of {c.size} elements are wrong"
    if cause := mistake(c, factors, subject.types.a):
        detail += f": this is the result if {cause}"
    return failed(FULL_RANGE, f"{launch}: {detail}", wrong_count)


def _shape(domain: Domain, *, is_live: bool) -> Shape:
    """Return a small M and N, and a long K."""
    if domain.square:
        return domain.padded(Shape.of(LONG_K if is_live else LONG_SQUARE))
    return domain.padded(Shape(*SHAPE, LONG_K))


def _allowed(subject: Runnable, factors: Factors) -> Float64:
    """Return the error that each element of a C of integers may have.

    It is 0, but where a float alpha or beta rounds a sum beyond 24 bits.
    """
    right = np.abs(factors.result(factors.sums))
    is_scaled = subject.domain.alpha or subject.domain.beta
    if not is_scaled or subject.types.scalar.is_integer:
        return np.zeros(right.shape)
    units = np.spacing(right.astype(np.float32)).astype(np.float64)
    return np.where(right < 2**FLOAT32.significand, 0, ROUNDINGS * units / 2)


def _drawn(subject: Runnable, shape: Shape, rng: np.random.Generator) -> Factors:
    """Return factors of all numbers; every second row and column has large ones of one sign."""
    types = subject.types
    a = _any_integers(types.a, (shape.m, shape.k), rng)
    b = _any_integers(types.b, (shape.n, shape.k), rng)
    alpha = 1
    beta = 0
    if subject.domain.alpha:
        alpha = -1
    if subject.domain.beta:
        beta = 2
    old = rng.integers(-(2**12), 2**12, (shape.m, shape.n))
    return Factors(a, np.ascontiguousarray(b.T), old, alpha, beta, types.epilogue)


def _any_integers(format_: Format, size: tuple[int, int], rng: np.random.Generator) -> Integers:
    """Return rows of any integers, and of large ones of one sign."""
    smallest = -128 if format_ == INT8 else -LARGEST_OF_INT32
    rows = rng.integers(smallest, -smallest, size)
    large = int(LARGE * smallest)
    rows[1::4] = rng.integers(smallest, large, rows[1::4].shape)
    rows[3::4] = rng.integers(-large, -smallest, rows[3::4].shape)
    rows[0, :] = smallest
    return rows


def _integers_in(memory: Memory, buffers: Buffers) -> Integers:
    """Return C's integers, which float32 doesn't hold."""
    device = memory.device
    c = buffers.abc[2]
    memory_words = device.download(device.as_format(c, FLOAT32, c.size))
    return memory_words.view(np.int32).astype(np.int64)


def _judged_as_float(launch: str, c: Float32, factors: Factors) -> Stage:
    """Return the stage of a C of floats, whose sums are as precise as FP32's."""
    right = factors.result(factors.sums)
    gauge = np.sqrt(np.square(factors.a).astype(np.float64) @ np.square(factors.b))
    rms, worst = rms_and_largest(c - right.astype(np.float64), gauge)
    reached = "wrong"
    if np.isfinite(c).all():
        reached = classify(rms, worst, factors.a.shape[1])
    detail = f"class {reached} {launch}: rms {rms:.3g} u·D"
    if reached == "fp32":
        return passed(FULL_RANGE, detail)
    return failed(FULL_RANGE, detail)


def mistake(c: Integers, factors: Factors, format_: Format) -> str:
    """Return the usual mistake that gives C; "" for another one.

    format_: of A and B
    """
    for text, sums in _mistakes(factors, format_):
        if (c == factors.result(sums)).all():
            return text
    right = factors.result(factors.sums)
    is_large = np.abs(factors.sums) > 2**FLOAT32.significand
    terms = np.abs(factors.a) @ np.abs(factors.b) * float(abs(factors.alpha))
    bound = factors.a.shape[1] * terms * 2.0**-FLOAT32.significand
    is_near = np.abs(c - right) <= bound
    if is_large.any() and is_near.all():
        return "sums are kept in float, which has no integers beyond 24 bits"
    return ""


def _mistakes(factors: Factors, format_: Format) -> Iterator[tuple[str, Integers]]:
    """Yield usual mistakes, and the sums that each gives."""
    sums = factors.sums
    yield "sums are kept in 16 bits", (sums + LEAST_SHORT) % SHORT_SPAN - LEAST_SHORT
    yield "sums are limited to 16 bits", np.clip(sums, -LEAST_SHORT, LEAST_SHORT - 1)
    if format_ != INT8:
        return
    unsigned_a = factors.a % 256
    unsigned_b = factors.b % 256
    unsigned = replace(factors, a=unsigned_a, b=unsigned_b)
    yield "the bytes of A and B are taken as unsigned", unsigned.sums
    yield "the bytes of A are taken as unsigned", replace(factors, a=unsigned_a).sums
    yield "the bytes of B are taken as unsigned", replace(factors, b=unsigned_b).sums
    limited_a = np.maximum(factors.a, -127)
    limited_b = np.maximum(factors.b, -127)
    yield "-128 is taken as -127", replace(factors, a=limited_a, b=limited_b).sums
    yield "-128 in A is taken as -127", replace(factors, a=limited_a).sums
    yield "-128 in B is taken as -127", replace(factors, b=limited_b).sums
