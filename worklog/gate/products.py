"""Label: are single products kept to 24 bits?

FP32 hardware forms each product of two 24-bit significands exactly and rounds once. Two methods have FP32's error and
do not: Strassen's algorithm multiplies sums of elements, and emulation on tensor cores assembles each product from
several shorter ones without the smallest (3xTF32, BF16x3). Both are legitimate and pass, and neither has to be
declared, but a reader who compares speeds wants to know. So the gate finds out, and labels the result.

Family E4: odd 12-bit integers in A, and in each column of B a single odd 12-bit integer among zeros. Every element of C
is then one product of 23 or 24 bits, which is exact if products are whole, in any order and with any accumulator. Up to
ROWS rows are compared, drawn anew each time, because the host takes long over all of them: a kernel that shortens the
products in a share s of the rows is missed with a probability of (1 - s)^ROWS.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from worklog.gate.exact import Indices
from worklog.gate.guarded_buffer import Buffers
from worklog.gate.verdict import Stage, failed, passed
from worklog.kernel.device import Subject
from worklog.problem.gemm import Float32, Shape

NAME = "products"
CLASSES = ("fp32", "fp32-emulated")  # shorter formats cannot
ROWS = 256  # at most, that are compared
SHORT = "not kept to 24 bits (Strassen's algorithm, or several short products for one)"


@dataclass(frozen=True)
class ProductProblem:
    """a: (M, K); column j of B holds factors[j] in row rows[j] and zeros elsewhere. compared: rows of C. B and the
    expected rows are made on request, which costs less than keeping them.
    """

    a: Float32
    rows: Indices
    factors: Float32
    compared: Indices

    @classmethod
    def of(cls, shape: Shape, rng: np.random.Generator) -> ProductProblem:
        """Draw one."""
        compared = np.sort(rng.choice(shape.m, min(shape.m, ROWS), replace=False))
        return cls(_odd(rng, (shape.m, shape.k)), rng.integers(0, shape.k, shape.n), _odd(rng, (shape.n,)), compared)

    @property
    def b(self) -> Float32:
        """(K, N)."""
        matrix = np.zeros((self.a.shape[1], self.rows.size), np.float32)
        matrix[self.rows, np.arange(self.rows.size)] = self.factors
        return matrix

    @property
    def expected(self) -> Float32:
        """The compared rows, (up to ROWS, N), exact in float32."""
        product: Float32 = self.a[self.compared][:, self.rows] * self.factors
        return product


def check(subject: Subject, buffers: Buffers, problem: ProductProblem) -> Stage:
    """One launch. Short products give a note; only a write outside C fails. Raises LaunchFailed."""
    with buffers.holding(problem.a, problem.b):
        result = buffers.run(subject)
    if result.trespass:
        return failed(NAME, f"family E4 at {buffers.shape}: {result.trespass}")
    expected = problem.expected
    wrong = int((result.c[problem.compared] != expected).sum())
    where = f"at {buffers.shape}, in {len(expected)} of {buffers.shape.m} rows"
    if not wrong:
        return passed(NAME, f"kept to 24 bits {where}", 0, expected.size)
    stage = passed(NAME, f"{SHORT}: {wrong} of {expected.size} differ {where}", wrong, expected.size)
    return replace(stage, note=f"products are {SHORT}")


def _odd(rng: np.random.Generator, size: tuple[int, ...]) -> Float32:
    """Odd integers of exactly 12 bits, of either sign."""
    drawn = rng.integers(0, 2048, size, dtype=np.int16)
    odd = 2049 + 2 * (drawn & 1023)
    return (odd * (1 - 2 * (drawn >> 10))).astype(np.float32)
