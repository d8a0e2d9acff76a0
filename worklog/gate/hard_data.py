"""Stage: data that FP32 takes, and that FP32 made of shorter numbers may not.

A number that is split into two halves or two TF32 numbers is scaled first. One scale for a tile or a matrix loses the
small rows beside large ones, so each row of A and each column of B gets a power of two of its own, and the result on
integers must be exact. Strassen's algorithm loses them too, and no comparison of results can tell the two apart: this
fails a kernel whose code uses tensor cores, and one that keeps its products to 24 bits; others get a note.

Then come numbers of very different size in one row, rows that cancel, the largest and the subnormal numbers, infinities
and NaN. The limit is the largest error of FP32 in any order, twice, for sums that truncate. Libraries disagree about
some of these, so what isn't as in FP32 is a note. It fails a kernel whose domain states "any data".

Last comes a long K, for a kernel with tensor cores or shortened products: sums that stay in the tensor cores'
accumulator are truncated, so their error grows with K.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from worklog.gate.exact import family
from worklog.gate.guarded_buffer import Buffers, Memory
from worklog.gate.precision import TINY, UNIT_ROUNDOFF, PrecisionReference
from worklog.gate.verdict import failed, passed
from worklog.kernel import Runnable
from worklog.problem import Float32, Shape, random_inputs
from worklog.runs.verdict import Stage

HARD_DATA, SHAPE = "hard data", Shape(66, 70, 64)
FAR, NEAR = 60, 40  # exponents of the rows' powers of two and the columns', or the reverse, so that C is finite
LONG = 1024, 16384  # K at least and at most: as much as the checked problem's work allows
BY_NORMS = 2.0**-20  # of the largest product times K
MIXED, SUBNORMAL, SPECIAL = "numbers of very different size in a row", "subnormal numbers", "infinities and NaN"
NORMS = "a row or column beside larger ones loses bits (Strassen's algorithm, or one scale for several of them)"


def check_hard_data(subject: Runnable, memory: Memory, short: bool, of: Shape) -> Stage:
    """Two launches, or three. short: whether its products were not kept to 24 bits. of: the checked shape, whose work
    limits the long K. Raises LaunchFailed.
    """
    operands = subject.operands(of)
    tensor = None if operands is None else bool(operands)  # whether its code uses tensor cores
    shape, domain = subject.domain.padded(SHAPE), subject.domain
    split = tensor or short  # FP32 made of shorter numbers, or Strassen's algorithm
    failure, loses_bits = _check_scaled_rows(subject, memory, shape, short, tensor)
    if failure is not None:
        return failure
    a, b = any_data(shape, memory.rng)
    result = Buffers(memory, a, b).run(subject)
    if result.trespass:
        return failed(HARD_DATA, f"at {shape}: {result.trespass}")
    notes = [NORMS] if loses_bits else []
    detail, unlike = f"as FP32 at {shape}", not_as_fp32(a, b, result.c)
    if unlike:
        detail = f"at {shape} and not as FP32: {', '.join(f'{name} ({count})' for name, count in unlike.items())}"
        exact = tensor is False and not loses_bits
        if domain.any_data or (MIXED in unlike and (exact or not split)):
            return failed(HARD_DATA, f"elements {detail}", sum(unlike.values()))
        notes.append(f"not as FP32: {', '.join(unlike)}")
    if split and not domain.square:
        at_most = of.flops // (2 * shape.m * shape.n)
        long = domain.padded(Shape(shape.m, shape.n, min(max(LONG[0], at_most), LONG[1])))
        a, b = random_inputs(long, memory.rng)
        result = Buffers(memory, a, b).run(subject)
        reached, stage = PrecisionReference(a, b, memory.rng).judge(HARD_DATA, result, subject.claimed)
        if not stage.passed:
            if reached == "wrong" or domain.any_data:
                return replace(stage, detail=f"at {long}: {stage.detail}")
            notes.append(f"class {reached} at {long}: its error grows with K")
    return passed(HARD_DATA, detail, note="; ".join(notes))


def _check_scaled_rows(
    subject: Runnable, memory: Memory, shape: Shape, short: bool, tensor: bool | None
) -> tuple[Stage | None, bool]:
    """A failure, and whether elements are wrong that may be: rows of A and columns of B have powers of their own."""
    a, b = family("E1", shape, memory.rng)
    far_a, far_b = memory.rng.permutation((FAR, NEAR)).tolist()
    a = (a * np.exp2(memory.rng.integers(-far_a, far_a + 1, (shape.m, 1)))).astype(np.float32)
    b = (b * np.exp2(memory.rng.integers(-far_b, far_b + 1, (1, shape.n)))).astype(np.float32)
    result, right = Buffers(memory, a, b).run(subject), a.astype(np.float64) @ b
    off = result.c != right
    if not result.trespass and not off.any():
        return None, False
    bound = BY_NORMS * shape.k * float(np.abs(a).max()) * float(np.abs(b).max())
    by_norms = not result.trespass and bool((np.abs(result.c - right) <= bound).all())
    if by_norms and short and not tensor:
        return None, True
    words = result.trespass or f"{off.sum()} of {off.size} elements are wrong, in {off.any(axis=1).sum()} rows"
    advice = "; scale each row of A and each column of B by itself" if by_norms else ""
    launch = f"at {shape} with rows and columns times 2^-{FAR} to 2^{FAR}"
    return failed(HARD_DATA, f"{launch}: {words}{advice}", float(off.sum()) or 1), True


def any_data(shape: Shape, rng: np.random.Generator) -> tuple[Float32, Float32]:
    """A and B on U(-1, 1), but for some rows of A and columns of B. shape: at least SHAPE."""
    a, b = (rng.uniform(-1, 1, size).astype(np.float32) for size in ((shape.m, shape.k), (shape.k, shape.n)))
    for lines in (a, b.T):
        lines[8:12] *= np.exp2(rng.integers(-30, 31, (4, shape.k))).astype(np.float32)
        lines[12:14] *= np.float32(2.0**-140)
        lines[14] = 0
        lines[16:18] += 1000
        lines[17, ::2] *= -1  # times the row with an offset: it cancels
        lines[24] *= np.float32(2.0**126)
        lines[26] *= np.float32(2.0**-60)
    a[18, 0], b[0, 18:22] = 2.0**40, 0
    b[1, 23], a[18:22, 1] = 2.0**40, 0
    scales = np.exp2(rng.integers(-20, 21, shape.k)).astype(np.float32)
    a[22] *= scales  # large times small: all products are alike
    b[:, 22] /= scales
    a[28, 3], a[29, 3], b[3, 30], b[5, 31] = -np.inf, np.nan, 0, np.inf
    return a, b


def not_as_fp32(a: Float32, b: Float32, c: Float32) -> dict[str, int]:
    """The number of elements of C that no order of FP32 operations gives, by what is special about them."""
    with np.errstate(invalid="ignore", over="ignore"):
        right = a.astype(np.float64) @ b
        finite_a, finite_b = (np.where(np.isfinite(x), np.abs(x), 0).astype(np.float64) for x in (a, b))
        sizes = finite_a @ finite_b
        near = np.abs(c - right) <= 2 * a.shape[1] * UNIT_ROUNDOFF * np.maximum(sizes, TINY)
        special = ~np.isfinite(right)
        same = (c == right) | (np.isnan(c) & np.isnan(right))
        flushed = np.abs(c - right) <= a.shape[1] * TINY
    wrong = ~np.where(special, same, near) & (sizes < 2.0**127)  # others may overflow, in some order
    small_rows, small_columns = ((x > 0) & (x < TINY) for x in (np.abs(a).max(axis=1), np.abs(b).max(axis=0)))
    kinds = (
        (SPECIAL, special | ~np.isfinite(c)),
        (SUBNORMAL, small_rows[:, None] | small_columns[None, :] | flushed),  # or sums that were subnormal on the way
        (MIXED, np.ones_like(wrong)),
    )
    unlike = {}
    for name, where in kinds:
        if count := int((wrong & where).sum()):
            unlike[name] = count
        wrong &= ~where
    return unlike
