"""The sums of the second ladder's rungs in NumPy, bit for bit as their kernels compute them.

Many lengths of K take seconds. A tensor core of Hopper (worklog/emulator/core/multiply.h has the
sources) adds K products and a sum like this:

1. emax is the largest exponent of a product that isn't zero (the sum of its factors' exponents,
   without normalising the product) or of the accumulator, and at least -133. A subnormal has the
   exponent of its format's smallest normal number. A zero has no exponent, for any other factor.
2. Products and accumulator are truncated to multiples of 2^(emax - 25), and added exactly.
3. The sum is truncated to a float32. A sum that becomes zero is +0.
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
LEAST = {"f16": -14, "tf32": -126, "f32": -126}  # exponents of the smallest normal numbers
LEAST_SUM = -133  # the smallest emax
NO_EXPONENT = -5000  # of a product that is zero
NAN = np.uint32(0x7FFFFFFF).view(np.float32)


@np.errstate(all="ignore")
def multiply_add(a: Array, b: Array, c: Array, type_: str, *, sum_type: str) -> Array:
    """Return a @ b + c as the sum of step 2, in float64, which represents it exactly.

    type_: the type of the factors
    sum_type: the type of the accumulator

    Infinities and NaN are as in IEEE arithmetic.
    """
    exponents_a = _exponents(a, LEAST[type_])
    exponents_b = _exponents(b, LEAST[type_])
    steps = range(a.shape[-1])
    emax = np.maximum(_exponents(c, LEAST[sum_type]), LEAST_SUM)
    for k in steps:
        np.maximum(emax, exponents_a[..., :, k, None] + exponents_b[..., None, k, :], out=emax)
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


def _exponents(values: Array, smallest: int) -> Array:
    """Return the exponents of float64 numbers, at least `smallest`; NO_EXPONENT for zero."""
    exponents = (values.view(np.int64) >> 52 & 0x7FF).astype(np.int32) - 1023
    return np.where(values == 0, np.int32(NO_EXPONENT), np.maximum(exponents, np.int32(smallest)))


def truncated(values: Array) -> Array:
    """Round float64 to float32 toward zero.

    2^128 and more become infinity, NaN becomes the GPU's, -0 becomes 0.
    """
    with np.errstate(all="ignore"):
        normal = (values.view(np.int64) & ~np.int64((1 << 29) - 1)).view(np.float64)
        step = 2.0**-149
        subnormal = np.trunc(values / step) * step + 0.0
        is_subnormal = np.abs(values) < 2.0**-126
        singles = np.where(is_subnormal, subnormal, normal).astype(np.float32)
        return np.where(np.isnan(values), NAN, singles)


def parts(values: Float32, type_: str) -> tuple[Float32, Float32]:
    """Return hi and lo, numbers of a type whose sum is the value to 22 bits or more."""
    hi = _converted(values, type_)
    return hi, _converted(values - hi, type_)


def _converted(values: Array, type_: str) -> Float32:
    """Return the values, rounded to a type."""
    if type_ == "f16":
        halves: Float32 = values.astype(np.float16).astype(np.float32)
        return halves
    # cvt.rna.tf32.f32: to 10 bits of fraction, ties away from zero.
    bits = (values.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), bits.view(np.float32), values)


def scaled(values: Float32, axis: int) -> tuple[Float32, Array]:
    """Scale each line by a power of two. Return also the exponents of these powers.

    axis: along a line

    A line's largest magnitude is then between 2^14 and 2^15.
    """
    exponents = 15 - np.frexp(np.abs(values).max(axis, keepdims=True))[1]
    return np.ldexp(values, exponents), exponents


def tensor_product(
    a: Float32, b: Float32, type_: str = "f16", products: int = 3, *, promote: int | None = 128
) -> Float32:
    """Return A B (M x N) as a rung with tensor cores computes it.

    type_: "tf32" or "f16"
    products: 1, or 3 of two parts of each factor
    promote: as in WAYS; K is a multiple of 16, and of `promote` or below it

    The rungs are tf32 (products=1, promote=None), tf32x3, fp16x3 (promote=None) and promoted.
    """
    k = a.shape[1]
    shift = np.zeros((len(a), b.shape[1]), int)
    if type_ == "f16":
        a, exponents_a = scaled(a, 1)
        b, exponents_b = scaled(b, 0)
        shift = exponents_a + exponents_b
    a_hi, a_lo = parts(a, type_)
    b_hi, b_lo = parts(b, type_)
    factors = [(a_lo, b_hi), (a_hi, b_lo), (a_hi, b_hi)][-products:]
    total = np.zeros(shift.shape, np.float32)
    length = min(promote or k, k)
    for begin in range(0, k, length):
        acc = _accumulated(factors, range(begin, begin + length, STEP[type_]), type_)
        total = acc if begin == 0 else total + acc
    unscaled: Float32 = np.ldexp(total, -shift)
    return unscaled


def _accumulated(factors: Sequence[tuple[Float32, Float32]], starts: range, type_: str) -> Float32:
    """Return the sum of products over a range of k, in the accumulator of the tensor cores.

    factors: the parts of A and B to multiply
    """
    a, b = factors[0]
    acc = np.zeros((len(a), b.shape[1]), np.float32)
    for start in starts:
        step = slice(start, start + STEP[type_])
        for a_part, b_part in factors:
            terms = a_part[:, step].astype(np.float64), b_part[step].astype(np.float64)
            acc = truncated(multiply_add(*terms, acc.astype(np.float64), type_, sum_type="f32"))
    return acc


def in_order(a: Array, b: Array, dtype: Any = np.float32) -> Array:
    """Return A B by multiply-adds of a type in the order of k.

    Plain FP32 kernels compute it like this. The bits are the same on every CPU, unlike NumPy's `@`,
    which calls a library whose order depends on the CPU.
    """
    total = np.zeros((len(a), b.shape[1]), dtype)
    for k in range(a.shape[1]):
        total = (np.outer(a[:, k].astype(np.float64), b[k]) + total).astype(dtype)
    return total


def rounded(values: Array, bits: int) -> Float32:
    """Return the values in FP32, rounded to a significand of that many bits.

    bits: 11 for TF32 and FP16, 8 for BF16
    """
    fraction, exponent = np.frexp(values)
    short: Array = np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits)
    return short.astype(np.float32)


def rms_error(c: Float32, a: Float32, b: Float32) -> float:
    """Return the gate's measure, in u·D.

    u = 2^-24, and D is the 2-norm of an element's K products.
    """
    doubles_a = a.astype(np.float64)
    doubles_b = b.astype(np.float64)
    gauge = np.sqrt(np.square(doubles_a) @ np.square(doubles_b))
    errors = c - doubles_a @ doubles_b
    return float(np.sqrt(np.mean(np.square(errors / (2.0**-24 * gauge)))))


def error_growth(sizes: Sequence[int], n: int) -> dict[str, dict[int, float]]:
    """Return the RMS errors of FP16x3 and of FP32 multiply-adds, by K.

    sizes: lengths of K
    n: C has n x n elements

    FP16x3 has an error for each way of promotion (WAYS). The factors are uniform in -1 to 1.
    """
    rng = np.random.default_rng(13)
    curves = {name: dict[int, float]() for name in (*WAYS, "FP32 multiply-adds")}
    for k in sizes:
        a = rng.uniform(-1, 1, (n, k)).astype(np.float32)
        b = rng.uniform(-1, 1, (k, n)).astype(np.float32)
        for name, promote in WAYS.items():
            curves[name][k] = rms_error(tensor_product(a, b, promote=promote), a, b)
        curves["FP32 multiply-adds"][k] = rms_error(in_order(a, b), a, b)
    return curves
