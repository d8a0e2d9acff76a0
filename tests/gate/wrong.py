"""Wrong kernels, each with the stage that must refuse it. What a kernel does wrong is in its docstring."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.gate.numpy_device import Function, Problem
from tests.gate.right import F32, epilogue, summed
from worklog.errors import LaunchFailed
from worklog.gemm import Float32

RAGGED, BENCHMARK, REPEAT, PRECISION, TIMED, LAUNCH = (
    "exact on ragged shapes",
    "exact at the benchmark shape",
    "bit-equal when repeated",
    "precision",
    "timed output",
    "launch",
)
WRONG: list[tuple[Function, str]] = []
BIG = 90  # ragged shapes with all of M, N and K this large are none: what happens only there shows at the benchmark


def refused_by(stage: str) -> Callable[[Function], Function]:
    """Register a wrong kernel with the stage that sees it first."""

    def register(function: Function) -> Function:
        WRONG.append((function, stage))
        return function

    return register


def is_big(p: Problem) -> bool:
    return min(p.m, p.n, p.k) >= BIG


def holds_integers(p: Problem) -> bool:
    """Of 12 bits, times a power of two."""
    return not (p.a.view(np.uint32) & 0xFFF).any()


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


# ------------------------------------------------------------------------------------------------------- indices


@refused_by(RAGGED)
def wrong_leading_dimension(p: Problem) -> None:
    """A[row * N + k]: right on squares."""
    around = p.a_buffer.beyond(0, p.m * p.n + p.k)
    rows, ks = np.arange(p.m)[:, None], np.arange(p.k)[None, :]
    epilogue(p, summed(np.take(around, rows * p.n + ks, mode="clip"), p.b))


@refused_by(RAGGED)
def transposed_c(p: Problem) -> None:
    """C[col * M + row]."""
    product = p.alpha * summed(p.a, p.b).T
    old = p.c_buffer.data.reshape(p.n, p.m)
    p.c_buffer.data[:] = (product if p.beta == 0 else product + p.beta * old).ravel()


@refused_by(RAGGED)
def b_read_transposed(p: Problem) -> None:
    """B[col * K + k]."""
    epilogue(p, summed(p.a, p.b_buffer.data.reshape(p.n, p.k).T))


@refused_by(RAGGED)
def m_and_n_mixed_up(p: Problem) -> None:
    """if (col < M): right on squares, and wherever M >= N."""
    product, columns = summed(p.a, p.b), min(p.m, p.n)
    p.c[:, :columns] = p.alpha * product[:, :columns] + (0 if p.beta == 0 else p.beta * p.c[:, :columns])


@refused_by(RAGGED)
def rows_swapped(p: Problem) -> None:
    """Two rows in each other's place."""
    product = summed(p.a, p.b)
    product[[0, -1]] = product[[-1, 0]]
    epilogue(p, product)


@refused_by(BENCHMARK)
def block_columns_swapped_when_big(p: Problem) -> None:
    """A swizzle of blocks that is no permutation, from some grid on."""
    product = summed(p.a, p.b)
    if is_big(p):
        product[:, :32], product[:, 32:64] = product[:, 32:64].copy(), product[:, :32].copy()
    epilogue(p, product)


@refused_by(RAGGED)
def reads_past_a(p: Problem) -> None:
    """K rounded up to a multiple of 8, B's tail zero: what A's tail holds should not matter, unless it is NaN."""
    padded = -(-p.k // 8) * 8
    around = p.a_buffer.beyond(0, padded)
    a = np.take(around, np.arange(p.m)[:, None] * p.k + np.arange(padded)[None, :], mode="clip")
    epilogue(p, summed(a, np.pad(p.b, ((0, padded - p.k), (0, 0)))))


# ------------------------------------------------------------------------------------------------------- stores


@refused_by(RAGGED)
def last_row_unwritten(p: Problem) -> None:
    """row < M - 1."""
    product = p.alpha * summed(p.a, p.b)
    p.c[:-1] = (product if p.beta == 0 else product + p.beta * p.c)[:-1]


@refused_by(RAGGED)
def last_column_unwritten(p: Problem) -> None:
    """col < N - 1."""
    product = p.alpha * summed(p.a, p.b)
    p.c[:, :-1] = (product if p.beta == 0 else product + p.beta * p.c)[:, :-1]


@refused_by(RAGGED)
def grid_rounded_down(p: Problem) -> None:
    """M / 16 blocks: ragged rows are nobody's."""
    whole = p.m // 16 * 16
    product = p.alpha * summed(p.a, p.b)
    p.c[:whole] = (product if p.beta == 0 else product + p.beta * p.c)[:whole]


@refused_by(RAGGED)
def does_nothing(p: Problem) -> None:
    """The fastest kernel there is."""


@refused_by(RAGGED)
def writes_past_c(p: Problem) -> None:
    """No bounds check in the epilogue: one row too many."""
    epilogue(p, summed(p.a, p.b))
    p.c_buffer.beyond(0, p.n)[-1] = 0


@refused_by(RAGGED)
def writes_before_c(p: Problem) -> None:
    """An index of -1."""
    epilogue(p, summed(p.a, p.b))
    p.c_buffer.beyond(1, 0)[0] = 0


@refused_by(PRECISION)
def writes_past_c_on_real_data(p: Problem) -> None:
    """The same, when nobody seems to look."""
    epilogue(p, summed(p.a, p.b))
    if not holds_integers(p):
        p.c_buffer.beyond(0, 3)[-1] = 0


@refused_by(RAGGED)
def clobbers_a(p: Problem) -> None:
    """Zeroes its input, so that a reference computed afterwards agrees with anything."""
    epilogue(p, summed(p.a, p.b))
    p.a[:] = 0


@refused_by(PRECISION)
def clobbers_a_on_real_data(p: Problem) -> None:
    """The same, where only the time seems to count."""
    integers = holds_integers(p)
    epilogue(p, summed(p.a, p.b))
    if not integers:
        p.a[0, 0] = 0


@refused_by(RAGGED)
def clobbers_one_element_of_b(p: Problem) -> None:
    """Uses B as scratch."""
    epilogue(p, summed(p.a, p.b))
    p.b[0, 0] += 1


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


# ------------------------------------------------------------------------------------------------------- launches


@refused_by(REPEAT)
def races(p: Problem) -> None:
    """At the benchmark's size, one warp's tile now and then lacks a term."""
    product = summed(p.a, p.b)
    # Three families are asked once each before; the question that repeats begins with two right launches.
    races.big_calls = races.big_calls + 1 if is_big(p) else 0  # type: ignore[attr-defined]
    if races.big_calls == 6:  # type: ignore[attr-defined]
        product[:32, :32] -= p.a[:32, 1:2] * p.b[1:2, :32]
    epilogue(p, product)


@refused_by(LAUNCH)
def faults(p: Problem) -> None:
    """An illegal address, noticed when somebody waits."""
    raise LaunchFailed("running a kernel: an illegal memory access was encountered")
