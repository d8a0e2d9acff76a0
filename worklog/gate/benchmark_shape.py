"""Stages: exact integers at the shape that is timed, and the same bits when the launch is repeated.

A kernel can be right on every small shape and wrong at the one that counts: a library switches to tensor cores from
some size on, a swizzle stops being a permutation, an index overflows, two blocks race. So the exact families run at the
benchmark's shape too. A reference product at 4096 would take longer than everything else, so C is projected on random
integer vectors instead, and so are A and B (worklog.gate.exact.Projection), in FP64, where nothing rounds. A wrong row
passes with a probability of 2^-32. Only where something is wrong is the product computed, for the rows and columns that
the projections name, to draw the error map.

The families come with alpha and beta of their own, powers of two with a sign, and stretched as on edge shapes, because
a fast path for large shapes can forget either. C then holds one value everywhere, which costs a fill and no upload.

Races need not show in one launch. On the dense integers of family E1 every order of additions gives the same result, so
two launches of a right kernel agree bit by bit, even with atomics. The repeated launches write a second C, filled with
a sentinel before each, which is compared with the first on the device: at least 3 launches, and 20 or as many as fit
into half a second. A race that is rarer needs compute-sanitizer's racecheck or the emulator, which sees it in one
launch.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from worklog.gate.error_map import ErrorMap, error_map, if_rounded
from worklog.gate.exact import Projection, families, family, stretch
from worklog.gate.guarded_buffer import Buffers, Result
from worklog.gate.verdict import Stage, failed, passed
from worklog.kernel.device import Device, Program, Subject
from worklog.problem.gemm import Float32, Shape

NAME = "exact at the benchmark shape"
LAUNCHES = 3
OLD = 64.0  # what C holds before a launch with a beta, in units of A B: a multiple of any alpha
MOST_LOCATED = 1e11  # multiply-adds spent on an error map: a second or two of a CPU
REPEATED = "bit-equal when repeated"
MOST, LEAST, BUDGET_S = 20, 3, 0.5  # repeated launches, and seconds for them
BLOCK = 256
_DIFFER = Path(__file__).with_name("differ.cu")
DIFFER = Program(_DIFFER.name, _DIFFER.read_text(encoding="utf-8"), "differ")


@dataclass(frozen=True)
class ExactProblem:
    """The inputs of one family, and the projections of a right alpha A B + beta C. before: what every element of C
    holds before the launch, or None for a sentinel.
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


def problems(shape: Shape, rng: np.random.Generator, claimed: str = "fp32") -> list[ExactProblem]:
    """One for each family on which a kernel of the class must be exact, at least three: the first with the usual alpha
    and beta, which is repeated, the others with an alpha, and with both.
    """
    names = (families(claimed) * LAUNCHES)[:LAUNCHES]
    return [_problem(index, name, shape, rng, claimed) for index, name in enumerate(names)]


def _problem(index: int, name: str, shape: Shape, rng: np.random.Generator, claimed: str) -> ExactProblem:
    a, b = family(name, shape, rng, claimed)
    of_a, of_b = stretch(a, b, rng, claimed)
    alpha, beta = _power(rng) if index else 1.0, _power(rng) if index == 2 else 0.0
    before = OLD * of_a * of_b if beta else None
    projection = Projection.of(a, b, rng, alpha, beta * (before or 0.0), abs(alpha) * of_a * of_b)
    return ExactProblem(name, a, b, projection, alpha, beta, before)


def _power(rng: np.random.Generator) -> float:
    """±1/4 to ±4, never 1."""
    return float(rng.choice((-4.0, -2.0, -1.0, -0.5, -0.25, 0.25, 0.5, 2.0, 4.0)))


def check(subject: Subject, buffers: Buffers, exact: list[ExactProblem]) -> Stage:
    """One launch per family: C must be exact in every row, and its guards intact. Raises LaunchFailed."""
    for problem in exact:
        with buffers.holding(problem.a, problem.b):
            result = buffers.run(subject, problem.alpha, problem.beta, problem.before)
        where = f"family {problem.name} at {buffers.shape}{problem.scalars}"
        if result.trespass:
            return failed(NAME, f"{where}: {result.trespass}")
        rows = problem.projection.wrong_rows(result.c)
        if len(rows):
            found = if_rounded(_map(result, problem, rows), problem.name)
            return failed(NAME, f"{where}: {found}", found.wrong, found)
    names = ", ".join(dict.fromkeys(problem.name for problem in exact))
    return passed(NAME, f"families {names} at {buffers.shape}, no row wrong")


def _map(result: Result, problem: ExactProblem, rows: np.ndarray[tuple[int], np.dtype[np.intp]]) -> ErrorMap:
    """Compute what is expected in the wrong rows and columns, or in some of the rows if that is too much."""
    c, alpha, old = result.c, np.float32(problem.alpha), np.float32(problem.beta * (problem.before or 0.0))
    expected = c.copy()
    columns = problem.projection.wrong_columns(c)
    if problem.before is None and (c == result.sentinel).all():
        expected[:] = 0  # nothing was written: any expected value gives the same map
        return error_map(c, expected, result.sentinel)
    step = int(np.ceil(len(rows) * len(columns) * problem.a.shape[1] / MOST_LOCATED))
    seen = np.ix_(rows[:: max(1, step)], columns)
    # In FP32: every partial sum is an exact integer times a power of two, in BLAS's order too.
    product = problem.a[seen[0].ravel()] @ problem.b[:, columns]
    expected[seen] = alpha * product + old
    where = error_map(c, expected, result.sentinel, (alpha * problem.a, problem.b))
    for guess, other in (("alpha", product + old), ("beta", alpha * product)):
        if np.array_equal(c[seen], other):
            return replace(where, guess=f"This is the result if {guess} is ignored.")
    return where


class Repeater:
    """Repeats a launch on one device and compares the results. Raises CompileFailed."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._differ = device.compile(DIFFER)

    def check(self, subject: Subject, buffers: Buffers, problem: ExactProblem) -> Stage:
        """Launch and compare. Raises LaunchFailed."""
        found = self.device.upload(np.zeros(MOST, np.float32))
        a, b, c = buffers.abc
        launches, started = 1, time.monotonic()
        with buffers.holding(problem.a, problem.b):
            buffers.launch(subject)
            while launches < MOST and (launches < LEAST or time.monotonic() - started < BUDGET_S):
                self.device.fill(buffers.spare, float(buffers.memory.sentinel()))
                subject.enqueue(buffers.shape, 1.0, a, b, 0.0, buffers.spare)
                arguments = (np.int64(c.size), c, buffers.spare, np.int32(launches), found)
                self.device.launch(self._differ, (-(-c.size // BLOCK), 1), BLOCK, arguments)
                self.device.synchronize()
                launches += 1
        differing = np.flatnonzero(self.device.download(found))
        if len(differing):
            which = ", ".join(str(i + 1) for i in differing[:5])
            detail = f"of {launches} launches on the same integers, number {which} differs from the first: a race"
            return failed(REPEATED, detail, len(differing))
        return passed(REPEATED, f"{launches} launches on the same integers")
