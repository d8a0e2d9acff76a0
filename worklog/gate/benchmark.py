"""Stage: exact integers at the very shape that is timed.

A kernel may be right on every small shape and wrong at the one that counts: a library switches to tensor cores from
some size on, a grid swizzle stops being a permutation, an index overflows, two blocks race. So the exact families are
asked at the benchmark's shape too. No reference product is computed, which at 4096 would take longer than all else: C
is projected on random integer vectors, and so are A and B (worklog.gate.exact.Projection), in FP64, where nothing
rounds. A wrong row goes unnoticed with a chance of 2^-32. There is then no expected C on the device that a kernel
could find and copy.

Only where something is wrong, the product is computed for the rows and columns that the projections name, and the
mistake located (worklog.gate.locate).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from worklog.gate.arena import Arena, Result
from worklog.gate.exact import Projection, families, family
from worklog.gate.locate import if_rounded, locate
from worklog.gate.verdict import Stage, Where, passed, refused
from worklog.gemm import Float32, Shape
from worklog.kernels import Subject

NAME = "exact at the benchmark shape"
MOST_LOCATED = 1e11  # multiply-adds spent on locating a mistake: a second or two of a CPU


@dataclass(frozen=True)
class ExactQuestion:
    """One family's inputs and the two vectors that a right product of them has."""

    name: str
    a: Float32
    b: Float32
    projection: Projection


def questions(shape: Shape, rng: np.random.Generator, claimed: str = "fp32") -> list[ExactQuestion]:
    """One for each family that a kernel of the class must answer exactly."""
    made = []
    for name in families(claimed):
        a, b = family(name, shape, rng, claimed)
        made.append(ExactQuestion(name, a, b, Projection.of(a, b, rng)))
    return made


def ask(subject: Subject, arena: Arena, asked: list[ExactQuestion]) -> Stage:
    """One launch a family; C must be exact in every row, and its guards untouched. Raises LaunchFailed."""
    for question in asked:
        with arena.holding(question.a, question.b):
            result = arena.run(subject)
        where = f"family {question.name} at {arena.shape}"
        if result.trespass:
            return refused(NAME, f"{where}: {result.trespass}")
        rows = question.projection.wrong_rows(result.c)
        if len(rows):
            found = if_rounded(_locate(result, question, rows), question.name)
            return refused(NAME, f"{where}: {found}", found.wrong, found)
    return passed(NAME, f"families {', '.join(q.name for q in asked)} at {arena.shape}, no row wrong")


def _locate(result: Result, question: ExactQuestion, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Where:
    """Compute what belongs into the wrong rows and columns, or into some of the rows if that is too much."""
    c = result.c
    expected = c.copy()
    columns = question.projection.wrong_columns(c)
    if (c == result.sentinel).all():
        expected[:] = 0  # nothing was written: what belongs there makes no difference
    else:
        step = int(np.ceil(len(rows) * len(columns) * question.a.shape[1] / MOST_LOCATED))
        looked_at = rows[:: max(1, step)]
        # In FP32: every partial sum is an exact integer, in BLAS's order too.
        expected[np.ix_(looked_at, columns)] = question.a[looked_at] @ question.b[:, columns]
    return locate(c, expected, result.sentinel, (question.a, question.b))
