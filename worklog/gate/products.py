"""Label: are single products kept to 24 bits?

FP32 hardware forms each product of two 24-bit significands exactly and rounds once. Two ways to be right in FP32's
error do not: Strassen's algorithm multiplies sums of elements, and emulation on tensor cores puts each product together
from several shorter ones and leaves the smallest out (3xTF32, BF16x3). Both are legitimate and neither is refused. But
whoever compares speeds wants to know, and neither has to declare it to pass, so the gate finds out.

Family E4: odd 12-bit integers in A, and in each column of B a single odd 12-bit integer among zeros. Every element of C
is then one product of 23 or 24 bits, which whoever keeps products whole has exactly, in every order and with any
accumulator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from worklog.gate.arena import Arena
from worklog.gate.verdict import Stage, passed, refused
from worklog.gemm import Float32, Shape
from worklog.kernels import Subject

NAME = "products"
CLASSES = ("fp32", "fp32-emulated")  # of shorter formats nobody expects it
SHORT = "not kept to 24 bits (Strassen's algorithm, or several short products for one)"


@dataclass(frozen=True)
class ProductQuestion:
    """a: (M, K); b: (K, N), a single element in each column; expected: (M, N), exact in float32."""

    a: Float32
    b: Float32
    expected: Float32

    @classmethod
    def of(cls, shape: Shape, rng: np.random.Generator) -> ProductQuestion:
        """Draw one."""
        a, factors = _odd(rng, (shape.m, shape.k)), _odd(rng, (1, shape.n))
        rows = rng.integers(0, shape.k, shape.n)
        b = np.zeros((shape.k, shape.n), np.float32)
        b[rows, np.arange(shape.n)] = factors[0]
        return cls(a, b, a[:, rows] * factors)


def ask(subject: Subject, arena: Arena, question: ProductQuestion) -> Stage:
    """One launch. What it finds is a note and no refusal, unless the subject wrote where it must not. Raises
    LaunchFailed.
    """
    with arena.holding(question.a, question.b):
        result = arena.run(subject)
    if result.trespass:
        return refused(NAME, f"family E4 at {arena.shape}: {result.trespass}")
    wrong = int((result.c != question.expected).sum())
    if not wrong:
        return passed(NAME, f"kept to 24 bits at {arena.shape}", 0, result.c.size)
    stage = passed(NAME, f"{SHORT}: {wrong} of {result.c.size} differ at {arena.shape}", wrong, result.c.size)
    return replace(stage, note=f"products are {SHORT}")


def _odd(rng: np.random.Generator, size: tuple[int, int]) -> Float32:
    """Odd integers of exactly 12 bits, of either sign."""
    values: Float32 = ((rng.integers(1024, 2048, size) * 2 + 1) * rng.choice([-1, 1], size)).astype(np.float32)
    return values
