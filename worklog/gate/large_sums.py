"""The stage for sums of 8-bit floats beyond the ranges of shorter formats.

Elsewhere factors are around 1, or small integers: sums stay below 448 and 65,504, the largest
numbers of E4M3 and FP16. A kernel that keeps or limits its sums there is right. Here all factors
have the largest size of their format, and each sum is exact on tensor cores, too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from worklog.gate.exact import EIGHT_BIT_SUMS
from worklog.gate.guarded_buffer import Buffers, Memory
from worklog.gate.operands import launched
from worklog.gate.parts import Parts, is_near, parts_of
from worklog.kernel import Loaded
from worklog.problem import Float32, Shape
from worklog.problem.formats import FLOAT16, Types
from worklog.runs import Stage, failed, passed

LARGE_SUMS = "large sums"
# K 7 7 is an integer of the bits that tensor cores keep: the largest numbers are 7 times a power of
# two in both formats.
SHAPE = Shape(33, 47, 160)
assert 7 * 7 * SHAPE.k < 2**EIGHT_BIT_SUMS
LIMITS = (448.0, 57344.0, 65504.0, 448.0**2)  # at which a kernel may limit its sums


def check_large_sums(subject: Loaded, memory: Memory) -> Stage:
    """Launch with the largest numbers of A's and B's formats. Raises LaunchFailed.

    The stage passes without a launch if C has no room for the result, or if the kernel claims sums
    in FP16.
    """
    types = subject.types
    shape = subject.domain.padded(SHAPE)
    a, b = _largest_factors(types, shape, memory.rng)
    product = a.astype(np.float64) @ b
    factor = 1.0
    if types.c == FLOAT16:
        factor = 49 / (types.a.largest * types.b.largest)  # a power of two
    scaled = _scaled(subject, shape, factor)
    if scaled is None or subject.claimed == "fp16":
        return passed(LARGE_SUMS, "not launched: sums end at 65,504")
    alpha, values = scaled
    old = np.zeros((shape.m, shape.n), np.float32)
    result = launched(subject, Buffers(memory, a, b), alpha, old, values)
    launch = f"at {shape} with sums up to {np.abs(product).max():,.0f}"
    if result.trespass:
        return failed(LARGE_SUMS, f"{launch}: {result.trespass}")
    parts = parts_of(product, alpha, old, values, types.epilogue)
    wrong_count = int((~is_near(result.c, parts.result, types)).sum())
    if not wrong_count:
        return passed(LARGE_SUMS, f"right {launch}")
    detail = f"{launch}: {wrong_count} of {result.c.size} elements are wrong"
    return failed(LARGE_SUMS, f"{detail}{_limit_in_words(result.c, parts, types)}", wrong_count)


def _limit_in_words(c: Float32, parts: Parts, types: Types) -> str:
    """Return the limit of a kernel's sums, on both sides or above, after a colon, or ""."""
    for limit in LIMITS:
        for limited in (np.clip(parts.product, -limit, limit), np.minimum(parts.product, limit)):
            if is_near(c, replace(parts, product=limited).result, types).all():
                return f": sums are limited to {limit:,.0f}"
    return ""


def _scaled(
    subject: Loaded, shape: Shape, factor: float
) -> tuple[float, dict[str, Float32]] | None:
    """Return alpha and operands that multiply the product by a factor.

    None for a kernel that takes neither alpha nor scales, unless the factor is 1.
    """
    values = {operand.name: operand.neutral(shape) for operand in subject.kernel.operands}
    if subject.domain.alpha and subject.types.scalars([factor]):
        return factor, values
    for operand in subject.kernel.operands:
        if not operand.is_added:
            values[operand.name] = values[operand.name] * np.float32(factor)
            return 1.0, values
    return (1.0, values) if factor == 1 else None


def _largest_factors(
    types: Types, shape: Shape, rng: np.random.Generator
) -> tuple[Float32, Float32]:
    """Return A and B of the largest numbers; all terms of an element have one sign."""
    a = np.full((shape.m, shape.k), types.a.largest)
    a *= rng.choice((-1, 1), (shape.m, 1))
    a[:, SHAPE.k :] = 0
    b = np.full((shape.k, shape.n), types.b.largest)
    b *= rng.choice((-1, 1), (1, shape.n))
    return a.astype(np.float32), b.astype(np.float32)
