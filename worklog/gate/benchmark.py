"""Stage: exact integers at the very shape that is timed.

A kernel may be right on every small shape and wrong at the one that counts: a library switches to tensor cores from
some size on, a grid swizzle stops being a permutation, an index overflows, two blocks race. So the exact families are
asked at the benchmark's shape too. No reference product is computed, which at 4096 would take longer than all else: C
is projected on random integer vectors, and so are A and B (worklog.gate.exact.Projection), in FP64, where nothing
rounds. A wrong row goes unnoticed with a chance of 2^-32. There is then no expected C on the device that a kernel
could find and copy.

The families come with alpha and beta of their own, powers of two with a sign, and stretched as on small shapes: a fast
path for large ones can forget either. C then holds one and the same value everywhere, which costs a fill and no upload.

Only where something is wrong, the product is computed for the rows and columns that the projections name, and the
mistake located (worklog.gate.locate).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from worklog.gate.arena import Arena, Result
from worklog.gate.exact import Projection, families, family, stretch
from worklog.gate.locate import if_rounded, locate
from worklog.gate.verdict import Stage, Where, passed, refused
from worklog.kernel.kernel import Subject
from worklog.problem.gemm import Float32, Shape

NAME = "exact at the benchmark shape"
LAUNCHES = 3
OLD = 64.0  # what C holds before a launch with a beta, in units of A B: any alpha's multiple
MOST_LOCATED = 1e11  # multiply-adds spent on locating a mistake: a second or two of a CPU


@dataclass(frozen=True)
class ExactQuestion:
    """One family's inputs, and the two vectors that a right alpha A B + beta C has. before: what every element of C
    holds, or None for a sentinel.
    """

    name: str
    a: Float32
    b: Float32
    projection: Projection
    alpha: float = 1.0
    beta: float = 0.0
    before: float | None = None

    @property
    def scalars(self) -> str:
        """In words, unless they are the usual ones."""
        usual = (self.alpha, self.beta) == (1, 0)
        return "" if usual else f" with alpha = {self.alpha:g}, beta = {self.beta:g}"


def questions(shape: Shape, rng: np.random.Generator, claimed: str = "fp32") -> list[ExactQuestion]:
    """One for each family that a kernel of the class must answer exactly, three at least: the first with the usual
    alpha and beta, which is asked again and again (worklog.gate.repeat), the others with alpha, and with both.
    """
    names = (families(claimed) * LAUNCHES)[:LAUNCHES]
    # One after the other: threads would be quicker, but they are made by Python that a subject's host code can change.
    return [_question(index, name, shape, rng, claimed) for index, name in enumerate(names)]


def _question(index: int, name: str, shape: Shape, rng: np.random.Generator, claimed: str) -> ExactQuestion:
    a, b = family(name, shape, rng, claimed)
    of_a, of_b = stretch(a, b, rng, claimed)
    alpha, beta = _power(rng) if index else 1.0, _power(rng) if index == 2 else 0.0
    before = OLD * of_a * of_b if beta else None
    projection = Projection.of(a, b, rng, alpha, beta * (before or 0.0), abs(alpha) * of_a * of_b)
    return ExactQuestion(name, a, b, projection, alpha, beta, before)


def _power(rng: np.random.Generator) -> float:
    """±1/4 to ±4, never 1."""
    return float(rng.choice((-4.0, -2.0, -1.0, -0.5, -0.25, 0.25, 0.5, 2.0, 4.0)))


def ask(subject: Subject, arena: Arena, asked: list[ExactQuestion]) -> Stage:
    """One launch a family; C must be exact in every row, and its guards untouched. Raises LaunchFailed."""
    for question in asked:
        with arena.holding(question.a, question.b):
            result = arena.run(subject, question.alpha, question.beta, question.before)
        where = f"family {question.name} at {arena.shape}{question.scalars}"
        if result.trespass:
            return refused(NAME, f"{where}: {result.trespass}")
        rows = question.projection.wrong_rows(result.c)
        if len(rows):
            found = if_rounded(_locate(result, question, rows), question.name)
            return refused(NAME, f"{where}: {found}", found.wrong, found)
    names = ", ".join(dict.fromkeys(question.name for question in asked))
    return passed(NAME, f"families {names} at {arena.shape}, no row wrong")


def _locate(result: Result, question: ExactQuestion, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Where:
    """Compute what belongs into the wrong rows and columns, or into some of the rows if that is too much."""
    c, alpha, old = result.c, np.float32(question.alpha), np.float32(question.beta * (question.before or 0.0))
    expected = c.copy()
    columns = question.projection.wrong_columns(c)
    if question.before is None and (c == result.sentinel).all():
        expected[:] = 0  # nothing was written: what belongs there makes no difference
        return locate(c, expected, result.sentinel)
    step = int(np.ceil(len(rows) * len(columns) * question.a.shape[1] / MOST_LOCATED))
    seen = np.ix_(rows[:: max(1, step)], columns)
    # In FP32: every partial sum is an exact integer times a power of two, in BLAS's order too.
    product = question.a[seen[0].ravel()] @ question.b[:, columns]
    expected[seen] = alpha * product + old
    where = locate(c, expected, result.sentinel, (alpha * question.a, question.b))
    for guess, other in (("alpha", product + old), ("beta", alpha * product)):
        if np.array_equal(c[seen], other):
            return replace(where, guess=f"This is the answer if {guess} is ignored.")
    return where
