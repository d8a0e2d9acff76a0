"""Label: are single products kept to 24 bits?

FP32 hardware forms each product of two 24-bit significands exactly and rounds once. Two ways to be right in FP32's
error do not: Strassen's algorithm multiplies sums of elements, and emulation on tensor cores puts each product together
from several shorter ones and leaves the smallest out (3xTF32, BF16x3). Both are legitimate and neither is refused. But
whoever compares speeds wants to know, and neither has to declare it to pass, so the gate finds out.

Family E4: odd 12-bit integers in A, and in each column of B a single odd 12-bit integer among zeros. Every element of C
is then one product of 23 or 24 bits, which whoever keeps products whole has exactly, in every order and with any
accumulator. Up to ROWS rows are looked at, drawn anew each time, since the host takes long over all of them: who
shortens products in a share s of the rows is overlooked with a chance of (1 - s)^ROWS.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from worklog.gate.arena import Arena
from worklog.gate.exact import Indices
from worklog.gate.verdict import Stage, passed, refused
from worklog.kernel.kernel import Subject
from worklog.problem.gemm import Float32, Shape

NAME = "products"
CLASSES = ("fp32", "fp32-emulated")  # of shorter formats nobody expects it
ROWS = 256  # at most, that are looked at
SHORT = "not kept to 24 bits (Strassen's algorithm, or several short products for one)"


@dataclass(frozen=True)
class ProductQuestion:
    """a: (M, K); column j of B holds factors[j] in row rows[j] and zeros elsewhere. looked_at: rows of C. B and what is
    expected are made when they are asked for, which costs less than to keep them.
    """

    a: Float32
    rows: Indices
    factors: Float32
    looked_at: Indices

    @classmethod
    def of(cls, shape: Shape, rng: np.random.Generator) -> ProductQuestion:
        """Draw one."""
        looked_at = np.sort(rng.choice(shape.m, min(shape.m, ROWS), replace=False))
        return cls(_odd(rng, (shape.m, shape.k)), rng.integers(0, shape.k, shape.n), _odd(rng, (shape.n,)), looked_at)

    @property
    def b(self) -> Float32:
        """(K, N)."""
        matrix = np.zeros((self.a.shape[1], self.rows.size), np.float32)
        matrix[self.rows, np.arange(self.rows.size)] = self.factors
        return matrix

    @property
    def expected(self) -> Float32:
        """The rows that are looked at, (up to ROWS, N), exact in float32."""
        product: Float32 = self.a[self.looked_at][:, self.rows] * self.factors
        return product


def ask(subject: Subject, arena: Arena, question: ProductQuestion) -> Stage:
    """One launch. What it finds is a note and no refusal, unless the subject wrote where it must not. Raises
    LaunchFailed.
    """
    with arena.holding(question.a, question.b):
        result = arena.run(subject)
    if result.trespass:
        return refused(NAME, f"family E4 at {arena.shape}: {result.trespass}")
    expected = question.expected
    wrong = int((result.c[question.looked_at] != expected).sum())
    where = f"at {arena.shape}, in {len(expected)} of {arena.shape.m} rows"
    if not wrong:
        return passed(NAME, f"kept to 24 bits {where}", 0, expected.size)
    stage = passed(NAME, f"{SHORT}: {wrong} of {expected.size} differ {where}", wrong, expected.size)
    return replace(stage, note=f"products are {SHORT}")


def _odd(rng: np.random.Generator, size: tuple[int, ...]) -> Float32:
    """Odd integers of exactly 12 bits, of either sign."""
    drawn = rng.integers(0, 2048, size, dtype=np.int16)
    odd = 2049 + 2 * (drawn & 1023)
    return (odd * (1 - 2 * (drawn >> 10))).astype(np.float32)
