"""The sums of the second ladder's rungs in NumPy, with the emulator's tensor core: bit for bit what their kernels
compute, for many lengths of K in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator import multiply_add, to_tf32, truncated
from worklog.problem import Float32

Array = NDArray[Any]
STEP = {"tf32": 8, "f16": 16}  # k of one mma.sync


def parts(x: Float32, type_: str) -> tuple[Float32, Float32]:
    """hi and lo, numbers of a type whose sum is x to 22 bits or more."""

    def rounded(each: Array) -> Float32:
        half = type_ == "f16"
        found: Float32 = each.astype(np.float16).astype(np.float32) if half else to_tf32(each, "rna").view(np.float32)
        return found

    hi = rounded(x)
    return hi, rounded(x - hi)


def scaled(x: Float32, axis: int) -> tuple[Float32, Array]:
    """x with its lines' largest magnitudes between 2^14 and 2^15, and the exponents of the powers of two that did it;
    axis: along a line.
    """
    exponents = 15 - np.frexp(np.abs(x).max(axis, keepdims=True))[1]
    return np.ldexp(x, exponents), exponents


def tensor_product(a: Float32, b: Float32, type_: str = "f16", products: int = 3, promote: int | None = 128) -> Float32:
    """A B (M x N) as the rungs tf32 (products=1, promote=None), tf32x3, fp16x3 (promote=None) and promoted compute it.

    type_: "tf32" or "f16". products: 1, or 3 of two parts of each factor. promote: k after which a tensor core's sum is
    added to an FP32 sum; None: never. K is a multiple of 16, and of `promote` or below it.
    """
    step, k = STEP[type_], a.shape[1]
    of_a, of_b = np.zeros((len(a), 1), int), np.zeros((1, b.shape[1]), int)
    if type_ == "f16":
        (a, of_a), (b, of_b) = scaled(a, 1), scaled(b, 0)
    (a_hi, a_lo), (b_hi, b_lo) = parts(a, type_), parts(b, type_)
    pairs = [(a_lo, b_hi), (a_hi, b_lo), (a_hi, b_hi)][-products:]
    # All stretches at once: (stretches, M, length) and (stretches, length, N).
    length = min(promote or k, k)
    stretched = [
        (
            np.ascontiguousarray(x.reshape(len(x), -1, length).swapaxes(0, 1)).astype(np.float64),
            y.reshape(-1, length, y.shape[1]).astype(np.float64),
        )
        for x, y in pairs
    ]
    acc = np.zeros((k // length, len(a), b.shape[1]), np.float32)
    for start in range(0, length, step):
        for x, y in stretched:
            terms = x[:, :, start : start + step], y[:, start : start + step]
            acc = truncated(multiply_add(*terms, acc.astype(np.float64), type_, "f32"))
    total = acc[0]
    for each in acc[1:]:
        total = total + each
    unscaled: Float32 = np.ldexp(total, -of_a - of_b)
    return unscaled


def in_order(a: Float32, b: Float32) -> Float32:
    """A B by FP32 multiply-adds in the order of k, as plain FP32 kernels compute it."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = (np.outer(a[:, k].astype(np.float64), b[k]) + total).astype(np.float32)
    return total


def rms_error(c: Float32, a: Float32, b: Float32) -> float:
    """The gate's measure, in u·D: u = 2^-24, D the 2-norm of an element's K products."""
    of_a, of_b = a.astype(np.float64), b.astype(np.float64)
    gauge = np.sqrt(np.square(of_a) @ np.square(of_b))
    return float(np.sqrt(np.mean(np.square((c - of_a @ of_b) / (2.0**-24 * gauge)))))


WAYS = {f"promoted every {p} k": p for p in (128, 64, 256)} | {"never promoted": None}


def error_growth(sizes: Sequence[int], n: int, seed: int = 13) -> dict[str, dict[int, float]]:
    """rms errors of FP16x3 by how often it is promoted (WAYS), and of FP32 multiply-adds, by K: of n x n elements of C,
    with factors uniform in -1 to 1.
    """
    rng, curves = np.random.default_rng(seed), {name: dict[int, float]() for name in (*WAYS, "FP32 multiply-adds")}
    for k in sizes:
        a, b = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((n, k), (k, n)))
        made = {name: tensor_product(a, b, promote=each) for name, each in WAYS.items()}
        for name, c in (made | {"FP32 multiply-adds": in_order(a, b)}).items():
            curves[name][k] = rms_error(c, a, b)
    return curves
