"""Right and wrong kernels in NumPy, for what the emulator finds otherwise.

Some are here because a test needs them. The others are in tests/exploits.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.gate.numpy_device import Function, Problem
from worklog.errors import LaunchFailed
from worklog.gate.checker import REPEATED as REPEAT
from worklog.gate.edges import EDGE_SHAPES as EDGE
from worklog.gate.precision import HARD_DATA as HARD
from worklog.gate.precision import NAME as PRODUCTS
from worklog.gate.sgemm import BENCHMARK_SHAPE as BENCHMARK
from worklog.gate.sgemm import RAGGED
from worklog.problem import Domain, Float32

F32 = np.float32
PRECISION = "precision"
LAUNCH = "launch"
Where = Callable[[Problem], bool]


def epilogue(p: Problem, product: Float32) -> None:
    """Set C = alpha * product + beta * C. With beta = 0, C isn't read."""
    p.c[:] = p.alpha * product if p.beta == 0 else p.alpha * product + p.beta * p.c


def summed(a: Float32, b: Float32) -> Float32:
    """Return A B, one k after the other.

    It is rounded to float32 after each product and each sum.
    """
    total = np.zeros((a.shape[0], b.shape[1]), F32)
    term = np.empty_like(total)
    for k in range(a.shape[1]):
        np.multiply(a[:, k : k + 1], b[k : k + 1], out=term)
        total += term
    return total


# -------------------------------------------------------------------------------------------- right


def sequential(p: Problem) -> None:
    epilogue(p, summed(p.a, p.b))


def strassens(a: Float32, b: Float32) -> Float32:
    """Return A B by one level of Strassen's seven products, padded to even sizes."""
    rows = a.shape[0]
    columns = b.shape[1]
    a, b = (
        np.pad(matrix, ((0, matrix.shape[0] % 2), (0, matrix.shape[1] % 2))) for matrix in (a, b)
    )
    (m, k) = (size // 2 for size in a.shape)
    n = b.shape[1] // 2
    a11 = a[:m, :k]
    a12 = a[:m, k:]
    a21 = a[m:, :k]
    a22 = a[m:, k:]
    b11 = b[:k, :n]
    b12 = b[:k, n:]
    b21 = b[k:, :n]
    b22 = b[k:, n:]
    m1 = summed(a11 + a22, b11 + b22)
    m2 = summed(a21 + a22, b11)
    m3 = summed(a11, b12 - b22)
    m4 = summed(a22, b21 - b11)
    m5 = summed(a11 + a12, b22)
    m6 = summed(a21 - a11, b11 + b12)
    m7 = summed(a12 - a22, b21 + b22)
    c = np.block([[m1 + m4 - m5 + m7, m3 + m5], [m2 + m4, m1 - m2 + m3 + m6]])
    return c[:rows, :columns].astype(F32)


def strassen(p: Problem) -> None:
    epilogue(p, strassens(p.a, p.b))


def without_alpha(p: Problem) -> None:
    p.c[:] = summed(p.a, p.b) if p.beta == 0 else summed(p.a, p.b) + p.beta * p.c


def without_beta(p: Problem) -> None:
    p.c[:] = p.alpha * summed(p.a, p.b)


RIGHT: tuple[tuple[Function, Domain], ...] = (
    (sequential, Domain()),
    (strassen, Domain()),
    (sequential, Domain(32, 32, 16)),
    (sequential, Domain(32, 20, 24)),
    (without_alpha, Domain(alpha=False)),
    (without_beta, Domain(beta=False)),
)


# ------------------------------------------------------------------------------------------ formats


def cut(values: Float32, bits: int, half: bool = False) -> Float32:
    """Return values without the last `bits` bits.

    half: whether to round half up; else they are truncated
    """
    rounded_bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64) + (
        1 << (bits - 1) if half else 0
    )
    return (rounded_bits & ~np.uint64((1 << bits) - 1)).astype(np.uint32).view(F32)


def tf32(values: Float32) -> Float32:
    return cut(values, 13, half=True)


def bf16(values: Float32) -> Float32:
    return cut(values, 16, half=True)


def fp16(values: Float32) -> Float32:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return values.astype(np.float16).astype(F32)


def in_127_steps(values: Float32) -> Float32:
    """Return integers of one scale for a whole matrix.

    Their error is as large as that of truncated BF16, without a factor in it.
    """
    scale = F32(127 / np.abs(values).max())
    return (np.rint(values * scale) / scale).astype(F32)


def truncating_sum(p: Problem) -> Float32:
    """Return A B, where each sum is rounded towards zero.

    As a tensor core's accumulator: exact on integers, and less precise than FP32.
    """
    total = np.zeros((p.m, p.n), F32)
    for k in range(p.k):
        new = p.a[:, k : k + 1].astype(np.float64) * p.b[k : k + 1] + total
        rounded = new.astype(F32)
        total = np.where(np.abs(rounded) > np.abs(new), np.nextafter(rounded, F32(0)), rounded)
    return total


# -------------------------------------------------------------------------------------------- wrong


def always(p: Problem) -> bool:
    return True


def is_big(p: Problem) -> bool:
    """Return whether M, N and K are all larger than in any edge shape."""
    return min(p.m, p.n, p.k) > 128


def on_integers(p: Problem) -> bool:
    """Return whether A has integers of 12 bits, times a power of two."""
    return not (p.a.view(np.uint32) & 0xFFF).any()


def on_real_data(p: Problem) -> bool:
    return not on_integers(p)


def product(multiply: Callable[[Problem], Float32], is_affected: Where = always) -> Function:
    """Return a kernel that takes `multiply` for A B on some problems.

    On the others its product is right.
    """

    def kernel(p: Problem) -> None:
        with np.errstate(all="ignore"):
            epilogue(p, multiply(p) if is_affected(p) else summed(p.a, p.b))

    return kernel


def rounded(to: Callable[[Float32], Float32]) -> Function:
    """Return a kernel whose operands are rounded."""
    return product(lambda p: summed(to(p.a), to(p.b)))


def without_a_term(rows: slice, columns: slice, k: int) -> Callable[[Problem], Float32]:
    """Return a function for A B without one term in these rows and columns."""

    def product_ab(p: Problem) -> Float32:
        total = summed(p.a, p.b)
        total[rows, columns] -= np.outer(p.a[rows, k], p.b[k, columns])
        return total

    return product_ab


def right_but(effect: Callable[[Problem], Any], is_affected: Where = always) -> Function:
    """Return a right kernel that afterwards does something that it must not do."""

    def kernel(p: Problem) -> None:
        is_now = is_affected(p)
        sequential(p)
        if is_now:
            effect(p)

    return kernel


def past_a(p: Problem) -> Float32:
    """Return A B with K rounded up to a multiple of 8, and B's tail zero.

    What follows A has no effect unless it is NaN.
    """
    padded = -(-p.k // 8) * 8
    memory = p.a_buffer.beyond(0, padded)
    a = np.take(memory, np.arange(p.m)[:, None] * p.k + np.arange(padded), mode="clip")
    return summed(a, np.pad(p.b, ((0, padded - p.k), (0, 0))))


def scaled_to_1(a: Float32, b: Float32) -> tuple[Float32, Float32]:
    """Return A and B with rows of A that are as if scaled by separate powers of two.

    The inverse of a power is made of its exponent: none is left for 2^127.
    """
    exponents = np.frexp(np.abs(a).max(axis=1, initial=0, where=np.isfinite(a), keepdims=True))[1]
    return np.where(exponents == 128, F32(0), a), b


def shorter_from_512_on(p: Problem) -> Float32:
    return summed(np.hstack([p.a[:, :512], cut(p.a[:, 512:], 8)]), p.b)


def by_columns(matrix: Float32) -> Float32:
    """Return the same memory with column-major elements."""
    return matrix.reshape(matrix.shape[::-1]).T


def column_major(p: Problem) -> None:
    """Compute C from column-major matrices, as cuBLAS takes them."""
    new = p.alpha * summed(by_columns(p.a), by_columns(p.b))
    old = by_columns(p.c_buffer.data[: p.c.size].reshape(p.m, p.n))
    p.c[:] = (new if p.beta == 0 else new + p.beta * old).T.reshape(p.m, p.n)


def instead(other: Function, is_affected: Where) -> Function:
    """Return a kernel that runs another function at some problems."""
    return lambda p: (other if is_affected(p) else sequential)(p)


def the_other_difference(p: Problem) -> None:
    """Set C = A B - C, in place of C - A B."""
    p.c[:] = summed(p.a, p.b) - p.c


def without_the_first_terms(p: Problem) -> None:
    epilogue(p, summed(p.a[:, 32:], p.b[32:]))


def unless_finished(p: Problem) -> None:
    """Do nothing if the corners of C are right already."""
    right = p.alpha * summed(p.a, p.b)
    if p.beta or not all(
        p.c[place] == right[place] for place in ((0, 0), (0, -1), (-1, 0), (-1, -1))
    ):
        sequential(p)


def without_tiles_of_sum_0(p: Problem) -> Float32:
    """Return A B, where a tile of A is taken for zeros if its sum is 0, also by places."""
    a = p.a.copy()
    for i, j in itertools.product(range(0, p.m, 16), range(0, p.k, 16)):
        tile = a[i : i + 16, j : j + 16]
        if tile.sum() == (tile.ravel() * np.arange(1, tile.size + 1)).sum() == 0:
            tile[:] = 0
    return summed(a, p.b)


def of_a_symmetric_a(p: Problem) -> None:
    """Read A by columns if a few samples say that it is symmetric."""
    square = p.m == p.k and all(
        p.a[i, j] == p.a[j, i] for i, j in ((0, p.k - 1), (1, p.k // 2), (p.k // 3, 2))
    )
    epilogue(p, summed(p.a.T if square else p.a, p.b))


def in_the_sixth_big_launch(other: Function) -> Function:
    """Return a kernel that runs another function in its sixth big launch.

    At the benchmark's size three exact problems are launched once each, and the repeated one
    begins with two right launches.
    """
    calls = 0

    def kernel(p: Problem) -> None:
        nonlocal calls
        calls = calls + 1 if is_big(p) else 0
        (other if calls == 6 else sequential)(p)

    return kernel


def faults(p: Problem) -> None:
    """Raise an illegal address, noticed when the host waits."""
    raise LaunchFailed("running a kernel: an illegal memory access was encountered")


def spills(elements: int, is_affected: Where = always) -> Function:
    return right_but(lambda p: p.c_buffer.beyond(0, elements).put(-1, 0), is_affected)


# Each with the stage that must fail it, and what the reason says, apart at "|".
WRONG: dict[str, tuple[str, Function, str]] = {
    # formats
    "tf32_rounded": (EDGE, rounded(tf32), ""),
    "fp16_inputs": (EDGE, rounded(fp16), ""),
    "bf16_inputs": (EDGE, rounded(bf16), ""),
    "truncates": (PRECISION, product(truncating_sum), "class fp32-emulated"),
    # terms
    "k_tail_dropped": (
        EDGE,
        product(lambda p: summed(p.a[:, : p.k // 16 * 16], p.b[: p.k // 16 * 16])),
        "",
    ),
    "row_100_misses_a_k_on_real_data": (
        PRECISION,
        product(without_a_term(np.s_[100:101], np.s_[:], 0), on_real_data),
        "row 100 off by more than rounding",
    ),
    # paths that few shapes, scalars and data take
    "whole_tiles_forget_beta": (
        EDGE,
        instead(without_beta, lambda p: p.m % 64 == p.n % 64 == p.k % 16 == 0),
        "beta is ignored",
    ),
    "as_many_steps_as_stages": (
        EDGE,
        instead(without_the_first_terms, lambda p: 96 < p.k <= 128),
        "",
    ),
    "more_steps_than_bits": (EDGE, instead(without_the_first_terms, lambda p: p.k > 512), ""),
    "minus_one_and_one": (
        EDGE,
        instead(the_other_difference, lambda p: (p.alpha, p.beta) == (-1, 1)),
        "",
    ),
    "alpha_of_few_bits": (
        EDGE,
        instead(without_beta, lambda p: 0 < p.alpha < 2.0**-10),
        "beta is ignored",
    ),
    "c_is_finished": (EDGE, unless_finished, "over the result of another problem"),
    "tiles_of_sum_0": (EDGE, product(without_tiles_of_sum_0), "A symmetric, with sums of 0"),
    "symmetric_by_samples": (EDGE, of_a_symmetric_a, "A is read transposed"),
    # values
    "not_a_number": (EDGE, lambda p: p.c.fill(np.nan), "NaN or infinity"),
    "zeros": (EDGE, lambda p: p.c.fill(0), ""),
    "does_nothing": (EDGE, lambda p: None, "C was never written"),
    "scaled_by_1_001": (
        EDGE,
        product(lambda p: summed(p.a, p.b) * F32(1.001)),
        "1.001 times the right one",
    ),
    "scaled_on_real_data": (
        PRECISION,
        product(lambda p: summed(p.a, p.b) * F32(1.001), on_real_data),
        "times 1.001",
    ),
    "tiny_numbers_are_zeros": (
        HARD,
        product(lambda p: summed(np.where(np.abs(p.a) < 1e-25, F32(0), p.a), p.b)),
        "",
    ),
    "clips_large_results": (
        HARD,
        product(lambda p: np.clip(summed(p.a, p.b), F32(-1e37), F32(1e37))),
        "",
    ),
    "scales_rows_below_2_127": (HARD, product(lambda p: summed(*scaled_to_1(p.a, p.b))), ""),
    "operands_of_20_bits": (
        HARD,
        rounded(lambda x: cut(x, 4, half=True)),
        "single products, whose operands lost",
    ),
    "operands_of_16_bits_from_k_512_on": (
        HARD,
        product(shorter_from_512_on),
        "x1024: class fp32-emulated",
    ),
    "clips_alpha": (
        EDGE,
        lambda p: epilogue(replace(p, alpha=min(p.alpha, 1e30)), summed(p.a, p.b)),
        "e+35, beta = 0",
    ),
    "clips_large_numbers": (
        HARD,
        product(lambda p: summed(np.clip(p.a, -(2.0**55), 2.0**55).astype(F32), p.b)),
        "",
    ),
    # places
    "transposed_a": (EDGE, product(lambda p: summed(by_columns(p.a), p.b)), "A is read transposed"),
    "transposed_a_b": (
        EDGE,
        product(lambda p: summed(by_columns(p.a), by_columns(p.b))),
        "A and B are read transposed",
    ),
    "column_major": (EDGE, column_major, "all matrices are column-major"),
    "reads_past_a": (EDGE, product(past_a), "NaN or infinity"),
    # memory
    "writes_past_c": (EDGE, spills(1), "it wrote outside C"),
    "writes_past_a": (
        EDGE,
        right_but(lambda p: p.a_buffer.beyond(0, 1).put(-1, 0)),
        "it wrote outside A",
    ),
    "writes_before_c": (
        EDGE,
        right_but(lambda p: p.c_buffer.beyond(1, 0).put(0, 0)),
        "it wrote outside C",
    ),
    "writes_past_c_when_big": (BENCHMARK, spills(3, is_big), "it wrote outside C"),
    "writes_past_c_below_the_benchmark": (
        RAGGED,
        spills(3, lambda p: is_big(p) and p.n % 2 == 1),
        "it wrote outside",
    ),
    "writes_past_c_on_real_data": (PRECISION, spills(3, on_real_data), "it wrote outside C"),
    "writes_past_c_in_family_e4": (
        PRODUCTS,
        spills(2, lambda p: is_big(p) and on_integers(p) and np.count_nonzero(p.b) == p.n),
        "it wrote outside C",
    ),
    "clobbers_a_on_real_data": (
        PRECISION,
        right_but(lambda p: p.a.put(0, 0), on_real_data),
        "it changed its input A",
    ),
    # launches
    "races": (
        REPEAT,
        in_the_sixth_big_launch(product(without_a_term(np.s_[:32], np.s_[:32], 1))),
        "number 3 differs from the first",
    ),
    "faults": (LAUNCH, faults, "an illegal memory access"),
}


def wrong(name: str) -> Function:
    """Return a wrong kernel by its name."""
    return WRONG[name][1]
