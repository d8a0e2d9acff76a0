"""Launches of kernels with an epilogue, in whose place C gets the product alone.

An activation hides a half of the results: relu makes each negative sum 0. So each launch of the
gate becomes two, on A and old C and on their negatives, and C gets f(x) - f(-x), which is x for
relu and for both forms of gelu (worklog.problem.epilogues). All stages judge that C as they judge a
product.

gelu rounds between 0 and about 6, where f(x) - f(-x) isn't exactly x. So A and the old C are
multiplied by a power of two, and C is divided by it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from worklog.kernel import Device, Runnable
from worklog.problem import Float32
from worklog.problem.epilogues import RELU
from worklog.problem.formats import FLOAT32, Types

# Exponents of the power of two for gelu. A C of 16 bits has no room for more.
SHIFT = 8
SHIFT_OF_16_BITS = 4
EIGHTHS = 8  # of which the exact results of small sums are multiples
NEAR = 2.0**-20  # relative


def enqueue_both(device: Device, subject: Runnable, types: Types, *arguments: Any) -> None:
    """Launch on A and on -A, and leave f(x) - f(-x) in C. Raises LaunchFailed.

    arguments: shape, alpha, a, b, beta, c, as for `enqueue`
    """
    shape, alpha, a, b, beta, c = arguments
    host_a = device.download(a)
    old = device.download(c)

    def odd_part(factor: float) -> Float32 | None:
        """Return (f(x) - f(-x)) / factor of larger x; None if A was changed."""
        results = list[Float32]()
        for sign in (factor, -factor):
            scaled = host_a * np.float32(sign)
            device.overwrite(a, scaled)
            device.overwrite(c, old * np.float32(sign if beta else math.copysign(1, sign)))
            subject.enqueue(shape, alpha, a, b, beta, c)
            results.append(device.download(c))
            if not np.array_equal(device.download(a), scaled, equal_nan=True):
                return None
        positive, negative = results
        return _odd_part(positive, negative, old, factor)

    factor = 1.0 if types.epilogue == RELU else _factor(types, host_a)
    product = odd_part(factor)
    if product is not None and factor > 1 and not np.isfinite(product).all():
        # What overflows a C of 16 bits may be in range without the factor.
        unscaled = odd_part(1.0)
        if unscaled is not None:
            unscaled = np.where(np.isfinite(product), product, unscaled)
        product = unscaled
    if product is None:
        return  # A isn't restored, so the check of inputs reports it
    device.overwrite(a, host_a)
    device.overwrite(c, product)


def _factor(types: Types, a: Float32) -> float:
    """Return a power of two for A, such that the sums stay in range."""
    shift = SHIFT if types.c == FLOAT32 else SHIFT_OF_16_BITS
    with np.errstate(invalid="ignore"):
        finite = np.abs(a[np.isfinite(a)])
    largest = float(finite.max()) if finite.size else 1.0
    room = types.a.largest_exponent - int(np.frexp(max(largest, 1.0))[1])
    return 2.0 ** max(0, min(shift, room))


def _odd_part(positive: Float32, negative: Float32, old: Float32, factor: float) -> Float32:
    """Return (f(x) - f(-x)) / factor. An element that neither launch wrote stays.

    positive, negative: C after the launches
    old: C before
    """
    with np.errstate(invalid="ignore"):
        product = (positive.astype(np.float64) - negative) / factor
    if factor > 1:
        eighths = np.rint(product * EIGHTHS) / EIGHTHS
        with np.errstate(invalid="ignore"):  # infinite
            is_near = np.abs(product - eighths) <= NEAR * np.abs(product)
        product = np.where(is_near, eighths, product)
    is_unwritten = (positive == old) & (negative == -old)  # beta is 0: else, C isn't a sentinel
    odd_part: Float32 = np.where(is_unwritten, old, product).astype(np.float32)
    return odd_part
