"""Wrong kernels, each with the stage of the gate that must fail it; more are in tests/exploits/wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.gate.numpy_device import Function, Problem
from tests.gate.right import F32, epilogue, sequential, summed
from worklog.errors import LaunchFailed
from worklog.problem.gemm import Float32

EDGE, SCALARS, BENCHMARK, REPEAT, PRECISION, HARD, RAGGED, LAUNCH = (
    "exact on edge shapes",
    "alpha, beta and C of 24 bits",
    "exact at the benchmark shape",
    "bit-equal when repeated",
    "precision",
    "hard data",
    "just below the benchmark shape",
    "launch",
)
Where = Callable[[Problem], bool]


def always(p: Problem) -> bool:
    return True


def is_big(p: Problem) -> bool:
    """No edge shape has all of M, N and K this large."""
    return min(p.m, p.n, p.k) >= 90


def on_integers(p: Problem) -> bool:
    """Of 12 bits, times a power of two."""
    return not (p.a.view(np.uint32) & 0xFFF).any()


def on_real_data(p: Problem) -> bool:
    return not on_integers(p)


def on_family_e4(p: Problem) -> bool:
    return is_big(p) and on_integers(p) and np.count_nonzero(p.b) == p.n


# ------------------------------------------------------------------------------------------------------ shorter formats


def cut(values: Float32, bits: int, half: bool = False) -> Float32:
    """Without the last `bits` bits, rounded (half up) or truncated."""
    whole = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64) + (1 << (bits - 1) if half else 0)
    return (whole & ~np.uint64((1 << bits) - 1)).astype(np.uint32).view(F32)


def tf32(values: Float32) -> Float32:
    return cut(values, 13, half=True)


def bf16(values: Float32) -> Float32:
    return cut(values, 16, half=True)


def fp16(values: Float32) -> Float32:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return values.astype(np.float16).astype(F32)


def two_halves(p: Problem) -> Float32:
    """Two parts of each operand in FP16, which ends at 65504."""
    high = [fp16(x) for x in (p.a, p.b)]
    low = [fp16((x - y) * 2048) / 2048 for x, y in zip((p.a, p.b), high, strict=True)]
    return summed(high[0] + low[0], high[1] + low[1])


def truncating_sum(p: Problem) -> Float32:
    """A tensor core's accumulator: each sum is rounded towards zero. Exact on integers, and less precise than FP32."""
    total = np.zeros((p.m, p.n), F32)
    for k in range(p.k):
        new = p.a[:, k : k + 1].astype(np.float64) * p.b[k : k + 1] + total
        rounded = new.astype(F32)
        total = np.where(np.abs(rounded) > np.abs(new), np.nextafter(rounded, F32(0)), rounded)
    return total


# -------------------------------------------------------------------------------------------------------------- makers


def product(of: Callable[[Problem], Float32], where: Where = always) -> Function:
    """A kernel that takes `of` for A B on some problems, and a right product on the others."""

    def kernel(p: Problem) -> None:
        with np.errstate(all="ignore"):
            epilogue(p, of(p) if where(p) else summed(p.a, p.b))

    return kernel


def without_a_term(rows: slice, columns: slice, k: int) -> Callable[[Problem], Float32]:
    """A B, but one term is missing in these rows and columns."""

    def of(p: Problem) -> Float32:
        found = summed(p.a, p.b)
        found[rows, columns] -= np.outer(p.a[rows, k], p.b[k, columns])
        return found

    return of


def scalars(change: Callable[[Any, Any], tuple[Any, Any]]) -> Function:
    """A kernel that computes with another alpha and beta."""

    def kernel(p: Problem) -> None:
        alpha, beta = change(p.alpha, p.beta)
        p.c[:] = alpha * summed(p.a, p.b) + (beta * p.c if beta else 0)

    return kernel


def stores(region: Callable[[Problem], Any]) -> Function:
    """A kernel that writes only this region of C."""

    def kernel(p: Problem) -> None:
        old = p.c.copy()
        sequential(p)
        new = p.c.copy()
        p.c[:] = old
        p.c[region(p)] = new[region(p)]

    return kernel


def then(effect: Callable[[Problem], Any], where: Where = always) -> Function:
    """A right kernel that afterwards does something that it must not do."""

    def kernel(p: Problem) -> None:
        here = where(p)
        sequential(p)
        if here:
            effect(p)

    return kernel


# ------------------------------------------------------------------------------------------------------- the odd ones


def stale_tile(p: Problem) -> Float32:
    """The second tile of 8 is multiplied with the first one of B: a barrier is missing."""
    b = p.b.copy()
    if p.k >= 16:
        b[8:16] = b[:8]
    return summed(p.a, b)


def whole_tiles(p: Problem) -> Float32:
    """Zeros where a tile of 16 is not whole."""
    found = summed(p.a, p.b)
    found[p.m // 16 * 16 :] = 0
    found[:, p.n // 16 * 16 :] = 0
    return found


def past_a(p: Problem) -> Float32:
    """K rounded up to a multiple of 8, B's tail zero: what follows A has no effect unless it is NaN."""
    padded = -(-p.k // 8) * 8
    around = p.a_buffer.beyond(0, padded)
    a = np.take(around, np.arange(p.m)[:, None] * p.k + np.arange(padded), mode="clip")
    return summed(a, np.pad(p.b, ((0, padded - p.k), (0, 0))))


def transposed_c(p: Problem) -> None:
    """C[col * M + row]."""
    found, old = p.alpha * summed(p.a, p.b).T, p.c_buffer.data.reshape(p.n, p.m)
    p.c_buffer.data[:] = (found if p.beta == 0 else found + p.beta * old).ravel()


def in_the_sixth_big_launch(other: Function) -> Function:
    """At the benchmark's size three exact problems are launched once each, and the repeated one begins with two right
    launches.
    """
    calls = 0

    def kernel(p: Problem) -> None:
        nonlocal calls
        calls = calls + 1 if is_big(p) else 0
        (other if calls == 6 else sequential)(p)

    return kernel


def faults(p: Problem) -> None:
    """An illegal address, noticed when the host waits."""
    raise LaunchFailed("running a kernel: an illegal memory access was encountered")


WRONG: dict[str, tuple[str, Function]] = {
    # formats
    "tf32_rounded": (EDGE, product(lambda p: summed(tf32(p.a), tf32(p.b)))),
    "tf32_truncated": (EDGE, product(lambda p: summed(cut(p.a, 13), cut(p.b, 13)))),
    "fp16_inputs": (EDGE, product(lambda p: summed(fp16(p.a), fp16(p.b)))),
    "bf16_inputs": (EDGE, product(lambda p: summed(bf16(p.a), bf16(p.b)))),
    "two_halves": (EDGE, product(two_halves)),
    "tf32_when_big": (BENCHMARK, product(lambda p: summed(tf32(p.a), tf32(p.b)), is_big)),
    "tf32_on_real_data": (PRECISION, product(lambda p: summed(tf32(p.a), tf32(p.b)), on_real_data)),
    "bf16_on_real_data": (PRECISION, product(lambda p: summed(bf16(p.a), bf16(p.b)), on_real_data)),
    "truncates": (PRECISION, product(truncating_sum)),
    # terms
    "last_k_dropped": (EDGE, product(lambda p: summed(p.a[:, :-1], p.b[:-1]))),
    "k_tail_dropped": (EDGE, product(lambda p: summed(p.a[:, : p.k // 16 * 16], p.b[: p.k // 16 * 16]))),
    "stale_tile": (EDGE, product(stale_tile)),
    "one_warp_tile_misses_a_k": (BENCHMARK, product(without_a_term(np.s_[32:64], np.s_[64:96], 9), is_big)),
    "one_element_misses_a_k": (BENCHMARK, product(without_a_term(np.s_[77:78], np.s_[55:56], 3), is_big)),
    "last_row_misses_a_k_on_real_data": (PRECISION, product(without_a_term(np.s_[-1:], np.s_[:], 0), on_real_data)),
    "row_100_misses_a_k_on_real_data": (PRECISION, product(without_a_term(np.s_[100:101], np.s_[:], 0), on_real_data)),
    # values
    "adds_to_c": (EDGE, scalars(lambda alpha, beta: (alpha, beta or 1))),
    "alpha_ignored": (EDGE, scalars(lambda alpha, beta: (1, beta))),
    "sign_of_alpha_ignored": (EDGE, scalars(lambda alpha, beta: (abs(alpha), beta))),
    "beta_ignored": (EDGE, scalars(lambda alpha, beta: (alpha, 0))),
    "beta_1_taken_for_0": (EDGE, scalars(lambda alpha, beta: (alpha, 0 if beta == 1 else beta))),
    "alpha_in_11_bits": (SCALARS, scalars(lambda alpha, beta: (tf32(np.full(1, alpha, F32))[0], beta))),
    "not_a_number": (EDGE, lambda p: p.c.fill(np.nan)),
    "one_infinity": (EDGE, then(lambda p: p.c.put(0, np.inf))),
    "zeros": (EDGE, lambda p: p.c.fill(0)),
    "does_nothing": (EDGE, lambda p: None),
    "scaled_by_1_001": (EDGE, product(lambda p: summed(p.a, p.b) * F32(1.001))),
    "scaled_on_real_data": (PRECISION, product(lambda p: summed(p.a, p.b) * F32(1.001), on_real_data)),
    # indices
    "transposed_c": (EDGE, transposed_c),
    "b_read_transposed": (EDGE, product(lambda p: summed(p.a, p.b_buffer.data.reshape(p.n, p.k).T))),
    "rows_swapped": (EDGE, product(lambda p: summed(p.a, p.b)[[p.m - 1, *range(1, p.m - 1), 0][: p.m]])),
    "columns_swapped_when_big": (BENCHMARK, product(lambda p: np.roll(summed(p.a, p.b), 32, axis=1), is_big)),
    "reads_past_a": (EDGE, product(past_a)),
    "edges_dropped_when_big": (RAGGED, product(whole_tiles, is_big)),
    "pairs_of_columns_if_k_is_even": (
        RAGGED,
        product(lambda p: np.roll(summed(p.a, p.b), 1, axis=1), lambda p: is_big(p) and p.n % 2 == 1 and p.k % 2 == 0),
    ),
    # data
    "a_stops_at_its_first_zero": (EDGE, product(lambda p: summed(p.a * np.cumprod(p.a != 0, axis=1, dtype=F32), p.b))),
    "clips_large_numbers": (HARD, product(lambda p: summed(np.clip(p.a, -(2.0**55), 2.0**55).astype(F32), p.b))),
    "drops_small_numbers": (HARD, product(lambda p: summed(np.where(np.abs(p.a) < 2.0**-50, F32(0), p.a), p.b))),
    "tf32_in_a_range": (
        EDGE,
        product(lambda p: summed(np.where(np.abs(np.log2(np.abs(p.a)) - 19) < 5, tf32(p.a), p.a), p.b)),
    ),
    "zero_column_forgets_beta": (EDGE, then(lambda p: np.copyto(p.c, 0, where=~p.b.any(axis=0)))),
    "b_transposed_in_squares": (EDGE, product(lambda p: summed(p.a, p.b.T if p.m == p.n == p.k else p.b))),
    # stores
    "last_row_unwritten": (EDGE, stores(lambda p: np.s_[:-1])),
    "grid_rounded_down": (EDGE, stores(lambda p: np.s_[: p.m // 16 * 16])),
    "writes_past_c": (EDGE, then(lambda p: p.c_buffer.beyond(0, p.n).put(-1, 0))),
    "writes_before_c": (EDGE, then(lambda p: p.c_buffer.beyond(1, 0).put(0, 0))),
    "writes_past_c_when_big": (BENCHMARK, then(lambda p: p.c_buffer.beyond(0, 3).put(-1, 0), is_big)),
    "writes_past_c_below_the_benchmark": (
        RAGGED,
        then(lambda p: p.c_buffer.beyond(0, 3).put(-1, 0), lambda p: is_big(p) and p.n % 2 == 1),
    ),
    "writes_past_c_on_real_data": (PRECISION, then(lambda p: p.c_buffer.beyond(0, 3).put(-1, 0), on_real_data)),
    "writes_past_c_in_family_e4": ("products", then(lambda p: p.c_buffer.beyond(0, 2).put(-1, 0), on_family_e4)),
    "clobbers_a": (EDGE, then(lambda p: p.a.fill(0))),
    "clobbers_a_on_real_data": (PRECISION, then(lambda p: p.a.put(0, 0), on_real_data)),
    "clobbers_one_element_of_b": (EDGE, then(lambda p: p.b.put(0, p.b[0, 0] + 1))),
    # launches
    "races": (REPEAT, in_the_sixth_big_launch(product(without_a_term(np.s_[:32], np.s_[:32], 1)))),
    "skips_a_launch": (REPEAT, in_the_sixth_big_launch(lambda p: None)),
    "faults": (LAUNCH, faults),
}


def wrong(name: str) -> Function:
    """A wrong kernel by its name."""
    return WRONG[name][1]
