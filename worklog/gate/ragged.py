"""Stage: exact integers on small shapes of every kind in the domain.

Squares of a power of two hide most mistakes: M and N mixed up, a wrong leading dimension, a K tail that is dropped, a
bound that is off by one, a row that nobody computes. So this stage asks about shapes around warps and tiles, down to
a single element, with M, N and K all different; for a kernel that takes only whole tiles, about different numbers of
them; and about a few drawn at random, the last of them long, since a list can be known and a swizzle can be right up to
some number of tiles.

Every shape is asked with several alpha and beta, since a kernel that ignores one of them is right for the usual 1 and
0, and one that knows powers of two only, or no signs, or forgets alpha where beta is 0, is right for many more: so they
are drawn, from halves up to 3.5, and 0 for alpha. The inputs alternate between the exact families (worklog.gate.exact),
stretched by powers of two, and C starts with even integers where beta is not 0, so that nothing rounds and no tolerance
is needed: each element is compared with the FP64 product, the guards around C are looked at, and A and B must come back
as they went.

A launch is small, so this costs milliseconds on a GPU, whatever the benchmark's size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from worklog.gate.arena import Inputs, Memory, Result
from worklog.gate.exact import HEADROOM, drawn_shapes, families, family, ragged_shapes, stretch
from worklog.gate.locate import if_rounded, locate
from worklog.gate.verdict import Stage, Where, passed, refused
from worklog.kernel.kernel import Subject
from worklog.problem.gemm import Float32, Float64, Shape

NAME = "exact on ragged shapes"
HALVES = tuple(halves / 2 for halves in range(-7, 8) if halves not in (0, 2))  # with even C all is exact
Scalars = tuple[float, float]  # alpha, beta
USUAL = 1.0, 0.0


@dataclass(frozen=True)
class _Problem:
    """One launch to make. stretched: the powers of two that are in A and in B. before: what C holds, even integers
    below 2^11 times both, or None for a sentinel.
    """

    shape: Shape
    a: Float32
    b: Float32
    alpha: float
    beta: float
    before: Float32 | None
    stretched: tuple[float, float]

    @property
    def expected(self) -> Float32:
        """alpha A B + beta C: halves of integers below 2^24, exact in FP32."""
        return self.of(self.alpha, self.beta).astype(np.float32)

    def of(self, alpha: float, beta: float) -> Float64:
        """The same with other scalars, in FP64."""
        product: Float64 = alpha * (self.a.astype(np.float64) @ self.b.astype(np.float64))
        return product if self.before is None else product + beta * self.before

    def __str__(self) -> str:
        s = self.shape
        scales = zip("AB", self.stretched, strict=True)
        stretched = "".join(f", {name} times {scale:.0e}" for name, scale in scales if scale != 1)
        return f"at {s.m} x {s.n} x {s.k} with alpha = {self.alpha:g}, beta = {self.beta:g}{stretched}"

    @property
    def around_1(self) -> _Problem:
        """The same without the powers of two."""
        of_a, of_b = (np.float32(1 / scale) for scale in self.stretched)
        before = None if self.before is None else self.before * of_a * of_b
        return replace(self, a=self.a * of_a, b=self.b * of_b, before=before, stretched=(1.0, 1.0))


def ask(subject: Subject, memory: Memory, claimed: str) -> Stage:
    """Put the subject to every small shape, and stop at the first mistake. Raises LaunchFailed."""
    listed, drawn = ragged_shapes(subject.domain), drawn_shapes(subject.domain, memory.rng)
    names, launches = families(claimed), 0
    for index, shape in enumerate((*listed, *drawn)):
        for scalars in _scalars(memory.rng, index, few=shape in drawn[-2:]):
            name = names[index % len(names)]
            problem = _problem(name, shape, scalars, memory, claimed)
            found = _mistake(subject, memory, problem)
            launches += 1
            if found is not None:
                largest = _problem(name, listed[-1], scalars, memory, claimed).around_1
                return _refusal(problem, found, largest, _mistake(subject, memory, largest), name)
    return passed(
        NAME, f"{len(listed) + len(drawn)} shapes, {launches} launches with various alpha and beta, no element wrong"
    )


def _scalars(rng: np.random.Generator, index: int, few: bool) -> tuple[Scalars, ...]:
    """Pairs to ask a shape with: the usual one, alpha alone, beta alone or with the usual alpha, and both."""
    x, y, z = (float(rng.choice(HALVES)) for _ in range(3))
    if few:
        return ((x, 0.0),)
    return USUAL, (x, 0.0), ((0.0, y), (1.0, 1.0), (1.0, y))[index % 3], (x, z)


def _problem(name: str, shape: Shape, scalars: Scalars, memory: Memory, claimed: str) -> _Problem:
    alpha, beta = scalars
    a, b = family(name, shape, memory.rng, claimed, 0 if scalars == USUAL else HEADROOM)
    stretched = of_a, of_b = stretch(a, b, memory.rng, claimed)
    even = 2 * memory.rng.integers(-1000, 1000, (shape.m, shape.n))
    before = (even * (of_a * of_b)).astype(np.float32) if beta else None
    return _Problem(shape, a, b, alpha, beta, before, stretched)


def _refusal(problem: _Problem, found: Where | str, largest: _Problem, there: Where | str | None, name: str) -> Stage:
    """The first mistake; or where both are wrong elements, the one at the largest shape, which tells more."""
    told, where, also = problem, found, ""
    if isinstance(found, Where) and isinstance(there, Where) and largest.shape != problem.shape:
        told, where, also = largest, there, f" (and at {problem.shape})"
    if not isinstance(where, Where):
        return refused(NAME, f"{told}: {where}")
    if (told.alpha, told.beta) == USUAL:
        where = if_rounded(where, name)
    return refused(NAME, f"{told}{also}: {where}", where.wrong, where)


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
    alpha, beta = problem.alpha, problem.beta
    others: dict[str, Float64] = {
        "alpha is ignored": problem.of(1.0, beta),
        "the sign of alpha is ignored": problem.of(abs(alpha), beta),
        "the sign of beta is ignored": problem.of(alpha, abs(beta)),
        "beta is ignored": problem.of(alpha, 0.0),
        "beta is taken for 1": problem.of(alpha, 1.0),
        "C is written transposed": (alpha * ab).T.reshape(ab.shape),
        "B is read transposed": alpha * (problem.a.astype(np.float64) @ problem.b.reshape(shape.n, shape.k).T),
    }
    for guess, other in others.items():
        if np.array_equal(c, other.astype(np.float32)):
            return replace(where, guess=f"This is the answer if {guess}.")
    if problem.before is None and where.wrong == c.size and (c == result.sentinel).all():
        zeros = np.zeros((shape.m, shape.n), np.float32)
        if np.array_equal(_launch(subject, memory, problem, inputs, zeros).c, problem.expected):
            return replace(where, guess="The old C is added although beta is 0: on zeros the answer is right.")
    if problem.stretched != (1.0, 1.0) and _mistake(subject, memory, problem.around_1) is None:
        return replace(
            where,
            guess="Right for numbers around 1: it lacks FP32's range (parts in FP16? The class fp16 need not have it).",
        )
    return where
