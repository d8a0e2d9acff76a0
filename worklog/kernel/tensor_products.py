"""The sums of the second ladder's rungs in NumPy: bit for bit what their kernels compute, for many lengths of K in
seconds. A tensor core of Hopper's (worklog/emulator/core/multiply.h has its sources) adds K products and a sum so:

1. emax is the largest of the sums of two factors' exponents, over products that are not zero and without normalising
   these, and of the accumulator's exponent, and at least -133. The exponent of a subnormal is that of its format's
   least normal number. A zero has none, however large the other factor.
2. Products and accumulator are truncated to multiples of 2^(emax - 25), and added exactly.
3. The sum is truncated to a float32. What becomes zero is +0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.problem import Float32

Array = NDArray[Any]
STEP = {"tf32": 8, "f16": 16}  # k of one mma.sync
# k after which a tensor core's sum is added to an FP32 sum, by name; None: never.
WAYS = {
    "promoted every 128 k": 128,
    "promoted every 64 k": 64,
    "promoted every 256 k": 256,
    "never promoted": None,
}
FRACTION = 25  # bits that a term keeps below the largest term's exponent
LEAST = {"f16": -14, "tf32": -126, "f32": -126}  # exponents of the least normal numbers
LEAST_SUM = -133  # the least emax
NO_EXPONENT = -5000  # of a product that is zero
NAN = np.uint32(0x7FFFFFFF).view(np.float32)


@np.errstate(all="ignore")
def multiply_add(a: Array, b: Array, c: Array, type_: str, sum_type: str) -> Array:
    """a @ b + c as the sum of step 2, in float64, which holds it exactly. Infinities and NaN as in IEEE arithmetic."""
    ea = _exponents(a, LEAST[type_])
    eb = _exponents(b, LEAST[type_])
    steps = range(a.shape[-1])
    emax = np.maximum(_exponents(c, LEAST[sum_type]), LEAST_SUM)
    for k in steps:
        np.maximum(emax, ea[..., :, k, None] + eb[..., None, k, :], out=emax)
    scale = np.ldexp(1.0, FRACTION - emax)
    total: Array = np.trunc(c * scale)
    for k in steps:
        term = a[..., :, k, None] * b[..., None, k, :]
        term *= scale
        total += np.trunc(term, out=term)
    exact: Array = total / scale + 0.0
    if np.isfinite(a).all() and np.isfinite(b).all() and np.isfinite(c).all():
        return exact
    plain = c + sum(a[..., :, k, None] * b[..., None, k, :] for k in steps)
    return np.where(np.isfinite(plain), exact, plain)


def _exponents(x: Array, least: int) -> Array:
    """Of float64 numbers, at least `least`; NO_EXPONENT for zero."""
    exponents = (x.view(np.int64) >> 52 & 0x7FF).astype(np.int32) - 1023
    return np.where(x == 0, np.int32(NO_EXPONENT), np.maximum(exponents, np.int32(least)))


def truncated(x: Array) -> Array:
    """float64 to float32 toward zero, 2^128 and more to infinity, NaN to the GPU's, -0 to 0."""
    with np.errstate(all="ignore"):
        normal = (x.view(np.int64) & ~np.int64((1 << 29) - 1)).view(np.float64)
        step = 2.0**-149
        out = np.where(np.abs(x) < 2.0**-126, np.trunc(x / step) * step + 0.0, normal).astype(
            np.float32
        )
        return np.where(np.isnan(x), NAN, out)


def parts(x: Float32, type_: str) -> tuple[Float32, Float32]:
    """hi and lo, numbers of a type whose sum is x to 22 bits or more."""

    def rounded(values: Array) -> Float32:
        if type_ == "f16":
            out: Float32 = values.astype(np.float16).astype(np.float32)
        else:  # cvt.rna.tf32.f32: to 10 bits of fraction, ties away from zero
            bits = (values.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
            out = np.where(np.isfinite(values), bits.view(np.float32), values)
        return out

    hi = rounded(x)
    return hi, rounded(x - hi)


def scaled(x: Float32, axis: int) -> tuple[Float32, Array]:
    """x with its lines' largest magnitudes between 2^14 and 2^15, and the exponents of the powers of two that did it;
    axis: along a line.
    """
    exponents = 15 - np.frexp(np.abs(x).max(axis, keepdims=True))[1]
    return np.ldexp(x, exponents), exponents


def tensor_product(
    a: Float32, b: Float32, type_: str = "f16", products: int = 3, promote: int | None = 128
) -> Float32:
    """A B (M x N) as the rungs tf32 (products=1, promote=None), tf32x3, fp16x3 (promote=None) and promoted compute it.

    type_: "tf32" or "f16". products: 1, or 3 of two parts of each factor. promote: as in WAYS. K is a multiple of 16,
    and of `promote` or below it.
    """
    k = a.shape[1]
    shift = np.zeros((len(a), b.shape[1]), int)
    if type_ == "f16":
        (a, of_a) = scaled(a, 1)
        (b, of_b) = scaled(b, 0)
        shift = of_a + of_b
    (a_hi, a_lo) = parts(a, type_)
    (b_hi, b_lo) = parts(b, type_)
    total = np.zeros(shift.shape, np.float32)
    length = min(promote or k, k)
    for begin in range(0, k, length):
        acc = np.zeros_like(total)
        for start in range(begin, begin + length, STEP[type_]):
            step = slice(start, start + STEP[type_])
            for x, y in [(a_lo, b_hi), (a_hi, b_lo), (a_hi, b_hi)][-products:]:
                terms = x[:, step].astype(np.float64), y[step].astype(np.float64)
                acc = truncated(multiply_add(*terms, acc.astype(np.float64), type_, "f32"))
        total = acc if begin == 0 else total + acc
    unscaled: Float32 = np.ldexp(total, -shift)
    return unscaled


def in_order(a: Array, b: Array, dtype: Any = np.float32) -> Array:
    """A B by multiply-adds of a type in the order of k, as plain FP32 kernels compute it, with the same bits on every
    CPU: NumPy's `@` calls a library, whose order depends on it.
    """
    total = np.zeros((len(a), b.shape[1]), dtype)
    for k in range(a.shape[1]):
        total = (np.outer(a[:, k].astype(np.float64), b[k]) + total).astype(dtype)
    return total


def rounded(x: Array, bits: int) -> Float32:
    """x in FP32, rounded to a significand of that many bits: 11 for TF32 and FP16, 8 for BF16."""
    fraction, exponent = np.frexp(x)
    short: Array = np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits)
    return short.astype(np.float32)


def rms_error(c: Float32, a: Float32, b: Float32) -> float:
    """The gate's measure, in u·D: u = 2^-24, D the 2-norm of an element's K products."""
    of_a = a.astype(np.float64)
    of_b = b.astype(np.float64)
    gauge = np.sqrt(np.square(of_a) @ np.square(of_b))
    return float(np.sqrt(np.mean(np.square((c - of_a @ of_b) / (2.0**-24 * gauge)))))


def error_growth(sizes: Sequence[int], n: int) -> dict[str, dict[int, float]]:
    """rms errors of FP16x3 by how often it is promoted (WAYS), and of FP32 multiply-adds, by K: of n x n elements of C,
    with factors uniform in -1 to 1.
    """
    rng = np.random.default_rng(13)
    curves = {name: dict[int, float]() for name in (*WAYS, "FP32 multiply-adds")}
    for k in sizes:
        a, b = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((n, k), (k, n)))
        for name, promote in WAYS.items():
            curves[name][k] = rms_error(tensor_product(a, b, promote=promote), a, b)
        curves["FP32 multiply-adds"][k] = rms_error(in_order(a, b), a, b)
    return curves
