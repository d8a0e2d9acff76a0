"""Kernels that read or write the wrong place, and launches that go wrong.

What a kernel does wrong is in its docstring.
"""

from __future__ import annotations

import numpy as np

from tests.gate.numpy_device import Function, Problem
from tests.gate.right import epilogue, summed
from tests.gate.wrong_stages import (
    BENCHMARK,
    LAUNCH,
    PRECISION,
    RAGGED,
    REPEAT,
    holds_integers,
    is_big,
    register_in,
)
from worklog.errors import LaunchFailed

WRONG_PLACES: list[tuple[Function, str]] = []
refused_by = register_in(WRONG_PLACES)

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
