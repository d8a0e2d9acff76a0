"""Right kernels, each in its own order of operations. The gate must pass all of them on every seed; more are in
tests/exploits/right.
"""

from __future__ import annotations

import numpy as np

from tests.gate.numpy_device import Function, Problem
from worklog.problem.gemm import Domain, Float32

F32 = np.float32


def epilogue(p: Problem, product: Float32) -> None:
    """C = alpha * product + beta * C, and with beta = 0 C is not read."""
    p.c[:] = p.alpha * product if p.beta == 0 else p.alpha * product + p.beta * p.c


def summed(a: Float32, b: Float32) -> Float32:
    """A B, one k after the other, rounded to float32 after each product and each sum."""
    total = np.zeros((a.shape[0], b.shape[1]), F32)
    term = np.empty_like(total)
    for k in range(a.shape[1]):
        np.multiply(a[:, k : k + 1], b[k : k + 1], out=term)
        total += term
    return total


def sequential(p: Problem) -> None:
    epilogue(p, summed(p.a, p.b))


def split_k(p: Problem) -> None:
    """Four partial sums, added at the end in any order, as with atomics."""
    parts = [summed(p.a[:, part::4], p.b[part::4]) for part in (2, 0, 3, 1)]
    epilogue(p, ((parts[0] + parts[1]) + parts[2]) + parts[3])


def blocked(p: Problem) -> None:
    """K in steps of 16, for whole tiles only."""
    product = np.zeros((p.m, p.n), F32)
    for k in range(0, p.k, 16):
        product += summed(p.a[:, k : k + 16], p.b[k : k + 16])
    epilogue(p, product)


def in_double(p: Problem) -> None:
    epilogue(p, (p.a.astype(np.float64) @ p.b.astype(np.float64)).astype(F32))


def reads_c_at_beta_0(p: Problem) -> None:
    """alpha * acc + beta * C in every case: BLAS forbids the read, but with a finite C the result is right."""
    p.c[:] = p.alpha * summed(p.a, p.b) + p.beta * p.c


def strassens(a: Float32, b: Float32) -> Float32:
    """One level of Strassen's seven products, padded to even sizes."""
    rows, columns = a.shape[0], b.shape[1]
    a, b = (np.pad(x, ((0, x.shape[0] % 2), (0, x.shape[1] % 2))) for x in (a, b))
    (m, k), n = (size // 2 for size in a.shape), b.shape[1] // 2
    a11, a12, a21, a22 = a[:m, :k], a[:m, k:], a[m:, :k], a[m:, k:]
    b11, b12, b21, b22 = b[:k, :n], b[:k, n:], b[k:, :n], b[k:, n:]
    m1 = summed(a11 + a22, b11 + b22)
    m2, m3 = summed(a21 + a22, b11), summed(a11, b12 - b22)
    m4, m5 = summed(a22, b21 - b11), summed(a11 + a12, b22)
    m6, m7 = summed(a21 - a11, b11 + b12), summed(a12 - a22, b21 + b22)
    c = np.block([[m1 + m4 - m5 + m7, m3 + m5], [m2 + m4, m1 - m2 + m3 + m6]])
    return c[:rows, :columns].astype(F32)


def strassen(p: Problem) -> None:
    epilogue(p, strassens(p.a, p.b))


RIGHT: tuple[tuple[Function, Domain], ...] = (
    *((function, Domain()) for function in (sequential, split_k, in_double, reads_c_at_beta_0, strassen)),
    (blocked, Domain(32, 32, 16)),
    (blocked, Domain(32, 20, 24)),
)
