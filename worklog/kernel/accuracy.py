"""How far C can be from alpha A B + beta C: bounds that hold for any data, for `worklog.sgemm(A, B, max_error=...)`.

A bound E says: |error of C_ij| <= E (|alpha| (|A| |B|)_ij + |beta C_ij|), unless that number, or a partial sum, leaves
the range of normal FP32 numbers. It counts roundings. n of them, each by a factor of 1 + d with |d| <= u, are off by
n u / (1 - n u) at most (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., lemma 3.1). The bounds are
nearly reached: by sums in which each term is just below half of the last bit of the sum so far, or that a tensor core
truncates. A bound that took roundings as random numbers would be about sqrt(K) u, and equal numbers in A break it.
"""

from __future__ import annotations

import math

from worklog.problem import Shape

U = 2.0**-24  # the largest relative error of an FP32 rounding
ENDING = 3  # roundings of alpha times the sum, of beta times C, and of their sum
STAGE_K, PROMOTED = 32, 4  # of rung 26: k per stage, and the most stages that a tensor core sums
# Of one tensor-core instruction of rung 26, in u: it truncates 16 products to 2^-25 of the largest term, 8 u, and the
# sum to 24 bits, 2 u (worklog.analysis.tensor_products states the rule, which is bit-equal to an H200).
TRUNCATED = 10
# Of the two halves of a number, in u: each factor is off by 2^-22, 4 u, where its second half is subnormal; the product
# of the two second halves, which is left out, is 2^-22 too; and u for what pass 1 counts as lost bits.
SPLIT = 13


def _bound(roundings: float) -> float:
    """Of this many roundings one after the other."""
    return roundings * U / (1 - roundings * U) if roundings * U < 1 else math.inf


def fp32_bound(terms: int, parts: int = 1) -> float:
    """Of a chain of `terms` fused multiply-adds, and of the sum of `parts` of them in turn: each product takes part in
    at most `terms` + `parts` - 1 roundings (Higham, section 3.1).
    """
    return _bound(terms + parts - 1 + ENDING)


def split_bound(shape: Shape, parts: int) -> float:
    """Of rung 26 with K in these parts. 2 instructions per stage multiply the first halves, 4 the small products before
    them. Each is off by TRUNCATED of the sum of magnitudes so far; the first stage's small products by 2^-10 of that.
    FP32 registers add what 4 stages sum. An element that pass 2 sums again has a chain per lane of a warp, and 5 steps
    that add these; the larger bound counts. The magnitudes of the halves' products exceed |A| |B| by 2^-9 at most.
    """
    stages = math.ceil(math.ceil(shape.k / STAGE_K) / parts)
    summed = min(stages, PROMOTED)
    instructions = 6 * summed - 4 + 4 * 2**-10
    promotions = (stages + 5) // PROMOTED
    by_halves = (SPLIT + TRUNCATED * instructions + promotions - 1) * (1 + 2**-9)
    return _bound(max(by_halves, stages + 5) + parts - 1 + ENDING)


def exact_bound(k: int) -> float:
    """Of sums in double precision: K fused multiply-adds and three more roundings of 2^-53, and one to FP32."""
    return U + (k + ENDING) * 2.0**-53
