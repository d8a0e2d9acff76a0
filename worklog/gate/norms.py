"""Hard data for the class fp32-norm: the largest numbers of A and B bound each element's error.

Strassen's algorithm and Winograd's form of it multiply sums of quadrants. A small row of A is added
to a large one, and loses low bits. So no limit on an element's error can follow from the row and
the column of the element, as the classes fp32 and fp32-emulated want it. Higham (Accuracy and
Stability of Numerical Algorithms, 2nd edition, 2002, section 23.2.2) gives for n x n matrices, with
the largest number in size as the norm and the usual product from n0 on:

    |C - computed C| <= f(n) u |A| |B| + O(u^2)
    Strassen's algorithm:  f(n) = (n / n0)^log2(12) (n0^2 + 5 n0) - 5 n
    Winograd's form:       f(n) = (n / n0)^log2(18) (n0^2 + 6 n0) - 6 n
    the usual product:     f(n) = n^2

With one level, n / n0 = 2. Where the 18 comes from: C12 = A11 B11 + S2 T2 + S1 T1 + S4 B22, and the
largest numbers of S1, S2, S4, T1 and T2 are 2, 3, 4, 2 and 3 times those of A and B, so 1 + 9 + 4 +
4. n counts the terms of a sum, so it is K for other matrices.

kernels/winograd.cu adds a product to the sum of those before it, so it rounds larger sums. With k
= K / 2, a sum is at most k, 10 k, 14 k and 18 k after each product, so the roundings add up to 34
k^2 in place of 18 k^2. So its worst case is up to 34/18 times Winograd's bound.

The worst case is far from what rounding does: at K = 4096 it is 20 K^2 with two levels, and sums of
terms with random signs reach 2.2 K (tests/gate/test_norms.py repeats it at shorter K). Halves and
TF32 would pass the worst case. So the gate's bound is 16 K u |A| |B|, and on data of one size it
wants twice the limits of fp32. It can't tell whether an element that is small beside |A| |B| has a
right bit, and whether the algorithm is Strassen's or uses one scale for all rows. Integers must be
exact if sums of quadrants hold them, so a wrong sign or a missing term fails at another stage.

An infinity or NaN meets sums of other rows, and Inf - Inf is NaN. With two levels, a row shares
sums with three other rows, and so does a column. So what FP32 makes infinite or NaN may be either;
it must not be finite. One NaN in A may reach 4 rows of C, one infinity in B 4 columns, and the
other elements must stay finite.
"""

from __future__ import annotations

import numpy as np

from worklog.gate.guarded_buffer import Buffers, Memory
from worklog.gate.precision import (
    BY_NORM,
    HARD_DATA,
    NORM_LEVELS,
    SHAPE,
    SPECIAL,
    PrecisionReference,
    beyond_norms,
    long_k,
    scaled_rows,
)
from worklog.kernel import Runnable
from worklog.problem import Float32, Shape, random_inputs
from worklog.runs import Stage, failed, passed

SPREAD = 2**NORM_LEVELS  # rows or columns that share sums
ELEMENT_SCALES = 20  # exponents of elements that differ within rows and columns


def winograd_bound(k: int, levels: int) -> float:
    """Return the worst case f of Winograd's form by Higham's theorem 23.3.

    k: the terms of a sum, a multiple of 2^levels
    """
    if levels == 0:
        return float(k**2)
    inner = k / 2**levels
    return float(18**levels * (inner**2 + 6 * inner) - 6 * k)


def check_norms(subject: Runnable, memory: Memory, checked_shape: Shape) -> Stage:
    """Launch five times on hard data. Raises LaunchFailed.

    checked_shape: its work limits the long K
    """
    domain = subject.domain
    if domain.any_data:
        detail = f"the domain states any data as in FP32, and {BY_NORM} isn't: omit one of them"
        return failed(HARD_DATA, detail)
    shape = domain.padded(SHAPE)
    rng = memory.rng
    worst = 0.0
    of_elements = f"numbers times 2^-{ELEMENT_SCALES} to 2^{ELEMENT_SCALES}"
    for a, b, scales in (
        scaled_rows(shape, rng, subject.claim),
        (*_scaled_elements(shape, rng), of_elements),
    ):
        result = Buffers(memory, a, b).run(subject)
        launch = f"at {shape} with {scales}"
        if result.trespass:
            return failed(HARD_DATA, f"{launch}: {result.trespass}")
        with np.errstate(invalid="ignore", over="ignore"):
            share = beyond_norms(result.c - a.astype(np.float64) @ b, a, b)
        beyond = int((~(share <= 1)).sum())
        if beyond:
            detail = f"{beyond} of {share.size} elements exceed the bound by norms, 16 K u |A| |B|"
            return failed(HARD_DATA, f"{launch}: {detail}", beyond)
        worst = max(worst, float(share.max()))
    mistake = _spread_mistake(subject, memory, shape)
    if mistake:
        return failed(HARD_DATA, f"at {shape} with {mistake}")
    if not domain.square:
        shape = domain.padded(Shape(shape.m, shape.n, long_k(shape, checked_shape)))
        a, b = random_inputs(shape, rng)
        result = Buffers(memory, a, b).run(subject)
        _, stage = PrecisionReference(a, b, rng).judge(HARD_DATA, result, subject.claimed)
        if not stage.passed:
            return failed(HARD_DATA, f"at {shape}: {stage.detail}")
    detail = f"within {worst:.2g} of the bound by norms at {domain.padded(SHAPE)}"
    return passed(HARD_DATA, detail, clause=f"error bounded by norms; not as FP32: {SPECIAL}")


def _scaled_elements(shape: Shape, rng: np.random.Generator) -> tuple[Float32, Float32]:
    """Return A and B on U(-1, 1) with a power of two for each element."""
    scaled = list[Float32]()
    for matrix in random_inputs(shape, rng):
        exponents = rng.integers(-ELEMENT_SCALES, ELEMENT_SCALES + 1, matrix.shape)
        scaled.append(np.ldexp(matrix, exponents).astype(np.float32))
    return scaled[0], scaled[1]


def _spread_mistake(subject: Runnable, memory: Memory, shape: Shape) -> str:
    """Return what is wrong if A holds one NaN, or B one infinity; "" for nothing."""
    rng = memory.rng
    for name, value in (("A", np.nan), ("B", np.inf)):
        a, b = random_inputs(shape, rng)
        row = int(rng.integers(shape.m if name == "A" else shape.n))
        term = int(rng.integers(shape.k))
        if name == "A":
            a[row, term] = value
        else:
            b[term, row] = value
        result = Buffers(memory, a, b).run(subject)
        lines = "rows" if name == "A" else "columns"
        with_value = f"one {value} in {name}"
        if result.trespass:
            return f"{with_value}: {result.trespass}"
        of_lines = result.c if name == "A" else result.c.T
        mistake = _line_mistake(of_lines, row, lines)
        if mistake:
            return f"{with_value}: {mistake}"
    return ""


def _line_mistake(c: Float32, line: int, lines: str) -> str:
    """Return what is wrong in the lines of C if one of them isn't finite in FP32.

    lines: rows or columns, of which `line` is the number of one
    """
    is_special = ~np.isfinite(c)
    if not is_special[line].all():
        return f"{lines[:-1]} {line} of C has finite elements"
    reached = int(is_special.any(axis=1).sum())
    if reached > SPREAD:
        return f"it reaches {reached} {lines} of C, and {BY_NORM} allows {SPREAD}"
    return ""
