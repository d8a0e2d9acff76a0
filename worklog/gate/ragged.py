"""Stage: exact integers on small shapes of every kind in the domain.

Squares of a power of two hide most mistakes: M and N mixed up, a wrong leading dimension, a K tail that is dropped, a
bound that is off by one, a row that nobody computes. So this stage asks about shapes around warps and tiles, down to
a single element, with M, N and K all different; for a kernel that takes only whole tiles, about different numbers of
them. Every shape is asked with several alpha and beta, since a kernel that ignores one of them is right for the usual
1 and 0. The inputs alternate between the exact families (worklog.gate.exact), and C starts with even integers where
beta is not 0, so that nothing rounds and no tolerance is needed: each element is compared with the FP64 product, the
guards around C are looked at, and A and B must come back as they went.

A launch is small, so this costs milliseconds on a GPU, whatever the benchmark's size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from worklog.gate.arena import Inputs, Memory, Result
from worklog.gate.exact import families, family, ragged_shapes
from worklog.gate.locate import if_rounded, locate
from worklog.gate.verdict import Stage, Where, passed, refused
from worklog.gemm import Float32, Float64, Shape
from worklog.kernels import Subject

NAME = "exact on ragged shapes"
SCALARS = ((1.0, 0.0), (1.0, 1.0), (2.0, -1.0), (0.5, 0.5))  # alpha, beta: with even C, all exact


@dataclass(frozen=True)
class _Problem:
    """One launch to make. before: what C holds, even integers below 2^11, or None for a sentinel."""

    shape: Shape
    a: Float32
    b: Float32
    alpha: float
    beta: float
    before: Float32 | None

    @property
    def expected(self) -> Float32:
        """alpha A B + beta C. alpha = 0.5 can leave half integers, exact in FP32 below 2^23; beyond, one rounding of
        the epilogue is right.
        """
        return self.of(self.alpha, self.beta).astype(np.float32)

    def of(self, alpha: float, beta: float) -> Float64:
        """The same with other scalars, in FP64."""
        product: Float64 = alpha * (self.a.astype(np.float64) @ self.b.astype(np.float64))
        return product if self.before is None else product + beta * self.before

    def __str__(self) -> str:
        s = self.shape
        return f"at {s.m} x {s.n} x {s.k} with alpha = {self.alpha:g}, beta = {self.beta:g}"


def ask(subject: Subject, memory: Memory, claimed: str) -> Stage:
    """Put the subject to every small shape, and stop at the first mistake. Raises LaunchFailed."""
    shapes = ragged_shapes(subject.domain)
    names = families(claimed)
    for index, shape in enumerate(shapes):
        for scalars in SCALARS:
            name = names[index % len(names)]
            problem = _problem(name, shape, scalars, memory, claimed)
            found = _mistake(subject, memory, problem)
            if found is not None:
                largest = _problem(name, shapes[-1], scalars, memory, claimed)
                return _refusal(problem, found, largest, _mistake(subject, memory, largest), name)
    return passed(NAME, f"{len(shapes)} shapes x {len(SCALARS)} pairs of alpha and beta, no element wrong")


def _problem(name: str, shape: Shape, scalars: tuple[float, float], memory: Memory, claimed: str) -> _Problem:
    a, b = family(name, shape, memory.rng, claimed)
    alpha, beta = scalars
    before = (2 * memory.rng.integers(-1000, 1000, (shape.m, shape.n))).astype(np.float32) if beta else None
    return _Problem(shape, a, b, alpha, beta, before)


def _refusal(problem: _Problem, found: Where | str, largest: _Problem, there: Where | str | None, name: str) -> Stage:
    """The first mistake; or where both are wrong elements, the one at the largest shape, which tells more."""
    if isinstance(found, Where) and isinstance(there, Where) and largest.shape != problem.shape:
        where, also = if_rounded(there, name), f" (and at {problem.shape})"
        return refused(NAME, f"{largest}{also}: {where}", where.wrong, where)
    if isinstance(found, Where):
        where = if_rounded(found, name)
        return refused(NAME, f"{problem}: {where}", where.wrong, where)
    return refused(NAME, f"{problem}: {found}")


def _mistake(subject: Subject, memory: Memory, problem: _Problem) -> Where | str | None:
    """What is wrong with the subject's answer."""
    a, b = problem.a, problem.b
    inputs = (memory.guarded(a, np.nan), a), (memory.guarded(b, np.nan), b)
    result = _launch(subject, memory, problem, inputs, problem.before)
    if result.trespass:
        return result.trespass
    expected = problem.expected
    if (result.c != expected).any():
        factor = None if problem.alpha == 0 else (problem.alpha * problem.a.astype(np.float64), problem.b)
        where = locate(result.c, expected, result.sentinel, factor)
        return _explained(where, subject, memory, problem, inputs, result)
    return None


def _launch(subject: Subject, memory: Memory, problem: _Problem, inputs: Inputs, before: Float32 | None) -> Result:
    shape, sentinel = problem.shape, memory.sentinel()
    host = np.full((shape.m, shape.n), sentinel, np.float32) if before is None else before
    c = memory.guarded(host, float(sentinel))
    memory.dirt.spread()
    subject.enqueue(shape, problem.alpha, inputs[0][0].inner, inputs[1][0].inner, problem.beta, c.inner)
    memory.device.synchronize()
    return memory.result(c, shape.m, shape.n, sentinel, inputs)


def _explained(
    where: Where, subject: Subject, memory: Memory, problem: _Problem, inputs: Inputs, result: Result
) -> Where:
    """The same with a better guess, where the answer is the right one to another question."""
    c, shape = result.c, problem.shape
    ab = problem.a.astype(np.float64) @ problem.b.astype(np.float64)
    others: dict[str, Float64] = {
        "alpha is ignored": problem.of(1.0, problem.beta),
        "beta is ignored": problem.of(problem.alpha, 0.0),
        "beta is taken for 1": problem.of(problem.alpha, 1.0),
        "C is written transposed": (problem.alpha * ab).T.reshape(ab.shape),
        "B is read transposed": problem.alpha * (problem.a.astype(np.float64) @ problem.b.reshape(shape.n, shape.k).T),
    }
    for guess, other in others.items():
        if np.array_equal(c, other.astype(np.float32)):
            return replace(where, guess=f"This is the answer if {guess}.")
    if problem.before is None and where.wrong == c.size and (c == result.sentinel).all():
        zeros = np.zeros((shape.m, shape.n), np.float32)
        if np.array_equal(_launch(subject, memory, problem, inputs, zeros).c, problem.expected):
            return replace(where, guess="The old C is added although beta is 0: on zeros the answer is right.")
    return where
