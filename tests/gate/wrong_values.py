"""Kernels that compute something else: in another format, without a term, with a wrong value.

What a kernel does wrong is in its docstring.
"""

from __future__ import annotations

import numpy as np

from tests.gate.numpy_device import Function, Problem
from tests.gate.right import F32, epilogue, summed
from tests.gate.wrong_stages import BENCHMARK, PRECISION, RAGGED, holds_integers, is_big, register_in
from worklog.problem.gemm import Float32

WRONG_VALUES: list[tuple[Function, str]] = []
refused_by = register_in(WRONG_VALUES)

# ------------------------------------------------------------------------------------------------------- formats


def cut(values: Float32, bits: int, half: bool) -> Float32:
    """Without the last `bits` bits, rounded (half up) or truncated."""
    whole = values.view(np.uint32).astype(np.uint64) + (1 << (bits - 1) if half else 0)
    return (whole & ~np.uint64((1 << bits) - 1)).astype(np.uint32).view(F32)


def tf32(values: Float32) -> Float32:
    return cut(np.ascontiguousarray(values), 13, half=True)


def bf16(values: Float32) -> Float32:
    return cut(np.ascontiguousarray(values), 16, half=True)


@refused_by(RAGGED)
def tf32_rounded(p: Problem) -> None:
    """Tensor cores: 10-bit mantissas, rounded."""
    epilogue(p, summed(tf32(p.a), tf32(p.b)))


@refused_by(RAGGED)
def tf32_truncated(p: Problem) -> None:
    """The same, cut off."""
    a, b = (cut(np.ascontiguousarray(x), 13, half=False) for x in (p.a, p.b))
    epilogue(p, summed(a, b))


@refused_by(RAGGED)
def tf32_for_b_only(p: Problem) -> None:
    """One operand is enough to be wrong."""
    epilogue(p, summed(p.a, tf32(p.b)))


@refused_by(RAGGED)
def fp16_inputs(p: Problem) -> None:
    """11 significant bits."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        epilogue(p, summed(p.a.astype(np.float16).astype(F32), p.b.astype(np.float16).astype(F32)))


@refused_by(RAGGED)
def bf16_inputs(p: Problem) -> None:
    """8 significant bits."""
    epilogue(p, summed(bf16(p.a), bf16(p.b)))


@refused_by(RAGGED)
def fp16_accumulator(p: Problem) -> None:
    """Right inputs, sums kept in 16 bits."""
    total = np.zeros((p.m, p.n), np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(p.k):
            total = (total + p.a[:, k : k + 1] * p.b[k : k + 1]).astype(np.float16)
        epilogue(p, total.astype(F32))


@refused_by(BENCHMARK)
def tf32_when_big(p: Problem) -> None:
    """A library that takes tensor cores from some size on."""
    epilogue(p, summed(tf32(p.a), tf32(p.b)) if is_big(p) else summed(p.a, p.b))


@refused_by(PRECISION)
def tf32_unless_integers(p: Problem) -> None:
    """Exact while it is tested on integers."""
    epilogue(p, summed(p.a, p.b) if holds_integers(p) else summed(tf32(p.a), tf32(p.b)))


@refused_by(PRECISION)
def bf16_unless_integers(p: Problem) -> None:
    """The same with 8 bits."""
    epilogue(p, summed(p.a, p.b) if holds_integers(p) else summed(bf16(p.a), bf16(p.b)))


# ------------------------------------------------------------------------------------------------------- terms


@refused_by(RAGGED)
def last_k_dropped(p: Problem) -> None:
    """for (k = 0; k < K - 1; ++k)."""
    epilogue(p, summed(p.a[:, :-1], p.b[:-1]))


@refused_by(RAGGED)
def first_k_twice(p: Problem) -> None:
    """The first tile is added before the loop and in it."""
    epilogue(p, summed(p.a, p.b) + p.a[:, :1] * p.b[:1])


@refused_by(RAGGED)
def k_tail_dropped(p: Problem) -> None:
    """K / 16 tiles, the rest forgotten."""
    whole = p.k // 16 * 16
    epilogue(p, summed(p.a[:, :whole], p.b[:whole]))


@refused_by(BENCHMARK)
def one_warp_tile_misses_a_k(p: Problem) -> None:
    """A race, as it shows: one 32 x 32 tile lacks one term."""
    product = summed(p.a, p.b)
    if is_big(p):
        product[32:64, 64:96] -= p.a[32:64, 9:10] * p.b[9:10, 64:96]
    epilogue(p, product)


@refused_by(BENCHMARK)
def one_element_misses_a_k(p: Problem) -> None:
    """The smallest mistake there is."""
    product = summed(p.a, p.b)
    if is_big(p):
        product[77, 55] -= p.a[77, 3] * p.b[3, 55]
    epilogue(p, product)


@refused_by(RAGGED)
def stale_tile(p: Problem) -> None:
    """The second tile of 8 is multiplied with the first one of B: a barrier is missing."""
    b = p.b.copy()
    if p.k >= 16:
        b[8:16] = b[:8]
    epilogue(p, summed(p.a, b))


# ------------------------------------------------------------------------------------------------------- values


@refused_by(RAGGED)
def adds_to_c(p: Problem) -> None:
    """C += A B: right whenever C was zero before."""
    p.c[:] = p.alpha * summed(p.a, p.b) + (p.c if p.beta == 0 else p.beta * p.c)


@refused_by(RAGGED)
def alpha_ignored(p: Problem) -> None:
    """Tests use 1."""
    product = summed(p.a, p.b)
    p.c[:] = product if p.beta == 0 else product + p.beta * p.c


@refused_by(RAGGED)
def beta_ignored(p: Problem) -> None:
    """Tests use 0."""
    p.c[:] = p.alpha * summed(p.a, p.b)


@refused_by(RAGGED)
def beta_1_taken_for_0(p: Problem) -> None:
    """A special case too many."""
    product = p.alpha * summed(p.a, p.b)
    p.c[:] = product if p.beta in (0, 1) else product + p.beta * p.c


@refused_by(RAGGED)
def not_a_number(p: Problem) -> None:
    """NaN > tolerance is false."""
    p.c[:] = np.nan


@refused_by(RAGGED)
def infinite(p: Problem) -> None:
    """So is NaN, which infinity minus infinity is."""
    epilogue(p, summed(p.a, p.b))
    p.c[0, 0] = np.inf


@refused_by(RAGGED)
def zeros(p: Problem) -> None:
    """Within an absolute tolerance of many products."""
    p.c[:] = 0


@refused_by(RAGGED)
def scaled_by_1_001(p: Problem) -> None:
    """A tenth of a percent everywhere."""
    epilogue(p, summed(p.a, p.b) * F32(1.001))


@refused_by(PRECISION)
def scaled_unless_integers(p: Problem) -> None:
    """A wrong value, not a format."""
    epilogue(p, summed(p.a, p.b) * F32(1 if holds_integers(p) else 1.001))


@refused_by(PRECISION)
def biased_unless_integers(p: Problem) -> None:
    """0.25 % of the largest element, everywhere."""
    product = summed(p.a, p.b)
    epilogue(p, product if holds_integers(p) else product + F32(0.0025) * np.abs(product).max())


@refused_by(PRECISION)
def one_row_off_unless_integers(p: Problem) -> None:
    """One row of all, wrong by one term; the class must not be judged by an average."""
    product = summed(p.a, p.b)
    if not holds_integers(p):
        product[-1] += p.a[-1, 0] * p.b[0]
    epilogue(p, product)


@refused_by(PRECISION)
def one_row_of_many_off_unless_integers(p: Problem) -> None:
    """One row that few would look at."""
    product = summed(p.a, p.b)
    if not holds_integers(p):
        product[100] += p.a[100, 0] * p.b[0]
    epilogue(p, product)


@refused_by(PRECISION)
def truncates(p: Problem) -> None:
    """A tensor core's accumulator: each sum rounded towards zero. Exact on integers, and no FP32."""
    total = np.zeros((p.m, p.n), F32)
    for k in range(p.k):
        new = p.a[:, k : k + 1].astype(np.float64) * p.b[k : k + 1] + total
        rounded = new.astype(F32)
        too_far = np.abs(rounded) > np.abs(new)
        total = np.where(too_far, np.nextafter(rounded, F32(0)), rounded)
    epilogue(p, total)
