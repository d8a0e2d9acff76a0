"""Stages: exact integers on edge shapes, exact integers at the benchmark shape, and the same bits when a launch is
repeated.

Squares of a power of two hide most mistakes: M and N swapped, a wrong leading dimension, a K tail that is dropped, a
bound that is off by one, a row that no thread computes. So this stage takes shapes around warps and tiles, down to a
single element, with M, N and K all different; for a kernel that takes only whole tiles, different numbers of them; and
a few drawn at random, the last two of them long, because a swizzle can be right up to some number of tiles.

Each shape runs with several alpha and beta, because a kernel that ignores one of them is right for the usual 1 and 0.
They are drawn from halves up to 3.5, and 0 for alpha. The inputs alternate between the exact families
(worklog.gate.exact), stretched by powers of two, and C starts with even integers where beta is not 0, so nothing rounds
and no tolerance is needed: each element is compared with the FP64 product, the guards around C must be intact, and A
and B unchanged.

The launches are small, so this takes milliseconds on a GPU at any benchmark size.

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

from worklog.gate.exact import HEADROOM, Projection, families, family, stretch
from worklog.gate.guarded_buffer import Buffers, Inputs, Memory, Result
from worklog.gate.verdict import ErrorMap, Stage, error_map, failed, if_rounded, passed
from worklog.kernel.device import Device, Program, Subject
from worklog.problem.gemm import Domain, Float32, Float64, Shape

EDGE_SHAPES = "exact on edge shapes"
HALVES = tuple(halves / 2 for halves in range(-7, 8) if halves not in (0, 2))  # with even C all is exact
Scalars = tuple[float, float]  # alpha, beta
USUAL = 1.0, 0.0


# Around warps and tiles, down to a single element; M, N and K all different.
ANY_SIZES = (
    (1, 7, 2),
    (7, 1, 33),
    (16, 31, 1),
    (31, 65, 17),
    (33, 16, 129),
    (64, 127, 9),
    (65, 33, 64),
    (127, 129, 8),
    (129, 64, 31),
    (130, 190, 70),
)
FINE = 16  # up to this step sizes are rounded up to a multiple; beyond it they are counted in steps
DRAWN, LARGEST_DRAWN = 3, (139, 139, 80)
LONG = 1100  # rows or columns: nine large tiles
ACROSS = 49, 97  # the other way: at least four small tiles, because a single column of tiles has no order


def edge_shapes(domain: Domain) -> list[Shape]:
    """Small shapes inside the domain, none with M = N.

    For a kernel that takes any size or multiples of at most FINE: sizes around warps and tiles. For one that takes
    whole tiles: one to five tiles per side in different mixes, wide and tall, one K step included.
    """
    if domain.m > FINE and domain.n > FINE:
        wide, tall = max(2, domain.m // domain.n + 1), max(2, domain.n // domain.m + 1)
        mixes = ((1, wide, 3), (tall, 1, 1), (3, 2, 5), (2, 3, 2))
        shapes = [Shape(m * domain.m, n * domain.n, k * domain.k) for m, n, k in mixes]
    else:
        steps = (domain.m, domain.n, domain.k)
        shapes = [
            Shape(*(_multiple(step, size, index) for step, size in zip(steps, sizes, strict=True)))
            for index, sizes in enumerate(ANY_SIZES)
        ]
    return [shape for shape in dict.fromkeys(shapes) if shape.m != shape.n]


def drawn_shapes(domain: Domain, rng: np.random.Generator) -> list[Shape]:
    """A few more shapes at random. The last two are long, one each way, with a short K: more tiles than a group of a
    swizzle or a table of blocks holds.
    """
    steps = domain.m, domain.n, domain.k
    small = [tuple(int(rng.integers(1, most + 1)) for most in LARGEST_DRAWN) for _ in range(DRAWN)]
    few = domain.k if domain.k > 4 else domain.k * int(rng.integers(2, 6))
    tall, wide = (int(rng.integers(LONG, LONG + 100)) for _ in range(2))
    across = [int(rng.integers(*ACROSS)) for _ in range(2)]
    sizes = [*(small if max(steps[:2]) <= FINE else []), (tall, across[0], few), (across[1], wide, few)]
    return [Shape(*(-(-size // step) * step for size, step in zip(three, steps, strict=True))) for three in sizes]


def _multiple(step: int, size: int, index: int) -> int:
    """A multiple of step: the first from size on, or for a coarse step one of the first three."""
    return -(-size // step) * step if step <= FINE else step * (1 + index % 3)


@dataclass(frozen=True)
class _Problem:
    """One launch to make. stretched: the powers of two in A and in B. before: what C holds, even integers below 2^11
    times both, or None for a sentinel.
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


def check_edge_shapes(subject: Subject, memory: Memory, claimed: str) -> Stage:
    """Run the kernel on every edge shape, and stop at the first mistake. Raises LaunchFailed."""
    listed, drawn = edge_shapes(subject.domain), drawn_shapes(subject.domain, memory.rng)
    names, launches = families(claimed), 0
    for index, shape in enumerate((*listed, *drawn)):
        for scalars in _scalars(memory.rng, index, few=shape in drawn[-2:]):
            name = names[index % len(names)]
            problem = _edge_problem(name, shape, scalars, memory, claimed)
            found = _mistake(subject, memory, problem)
            launches += 1
            if found is not None:
                largest = _edge_problem(name, listed[-1], scalars, memory, claimed).around_1
                return _failure(problem, found, largest, _mistake(subject, memory, largest), name)
    return passed(
        EDGE_SHAPES,
        f"{len(listed) + len(drawn)} shapes, {launches} launches with various alpha and beta, no element wrong",
    )


def _scalars(rng: np.random.Generator, index: int, few: bool) -> tuple[Scalars, ...]:
    """Pairs for one shape: the usual one, alpha alone, beta alone or with the usual alpha, and both."""
    x, y, z = (float(rng.choice(HALVES)) for _ in range(3))
    if few:
        return ((x, 0.0),)
    return USUAL, (x, 0.0), ((0.0, y), (1.0, 1.0), (1.0, y))[index % 3], (x, z)


def _edge_problem(name: str, shape: Shape, scalars: Scalars, memory: Memory, claimed: str) -> _Problem:
    alpha, beta = scalars
    a, b = family(name, shape, memory.rng, claimed, 0 if scalars == USUAL else HEADROOM)
    stretched = of_a, of_b = stretch(a, b, memory.rng, claimed)
    even = 2 * memory.rng.integers(-1000, 1000, (shape.m, shape.n))
    before = (even * (of_a * of_b)).astype(np.float32) if beta else None
    return _Problem(shape, a, b, alpha, beta, before, stretched)


def _failure(
    problem: _Problem, found: ErrorMap | str, largest: _Problem, there: ErrorMap | str | None, name: str
) -> Stage:
    """The first mistake; or, where both are wrong elements, the one at the largest shape, which shows more."""
    shown, where, also = problem, found, ""
    if isinstance(found, ErrorMap) and isinstance(there, ErrorMap) and largest.shape != problem.shape:
        shown, where, also = largest, there, f" (and at {problem.shape})"
    if not isinstance(where, ErrorMap):
        return failed(EDGE_SHAPES, f"{shown}: {where}")
    if (shown.alpha, shown.beta) == USUAL:
        where = if_rounded(where, name)
    return failed(EDGE_SHAPES, f"{shown}{also}: {where}", where.wrong, where)


def _mistake(subject: Subject, memory: Memory, problem: _Problem) -> ErrorMap | str | None:
    """What is wrong with the kernel's result, or None."""
    a, b = problem.a, problem.b
    inputs = (memory.guarded(a, np.nan), a), (memory.guarded(b, np.nan), b)
    result = _launch(subject, memory, problem, inputs, problem.before)
    if result.trespass:
        return result.trespass
    expected = problem.expected
    if (result.c != expected).any():
        factor = None if problem.alpha == 0 else (problem.alpha * problem.a.astype(np.float64), problem.b)
        where = error_map(result.c, expected, result.sentinel, factor)
        return _explained(where, subject, memory, problem, inputs, result)
    return None


def _launch(subject: Subject, memory: Memory, problem: _Problem, inputs: Inputs, before: Float32 | None) -> Result:
    shape, sentinel = problem.shape, memory.sentinel()
    host = np.full((shape.m, shape.n), sentinel, np.float32) if before is None else before
    c = memory.guarded(host, float(sentinel))
    memory.foul()
    subject.enqueue(shape, problem.alpha, inputs[0][0].inner, inputs[1][0].inner, problem.beta, c.inner)
    memory.device.synchronize()
    return memory.result(c, shape.m, shape.n, sentinel, inputs)


def _explained(
    where: ErrorMap, subject: Subject, memory: Memory, problem: _Problem, inputs: Inputs, result: Result
) -> ErrorMap:
    """The same with a better guess, where the result is right for other scalars or another layout."""
    c, shape = result.c, problem.shape
    ab = problem.a.astype(np.float64) @ problem.b.astype(np.float64)
    alpha, beta = problem.alpha, problem.beta
    others: dict[str, Float64] = {
        "alpha is ignored": problem.of(1.0, beta),
        "the sign of alpha is ignored": problem.of(abs(alpha), beta),
        "the sign of beta is ignored": problem.of(alpha, abs(beta)),
        "beta is ignored": problem.of(alpha, 0.0),
        "beta is taken as 1": problem.of(alpha, 1.0),
        "C is written transposed": (alpha * ab).T.reshape(ab.shape),
        "B is read transposed": alpha * (problem.a.astype(np.float64) @ problem.b.reshape(shape.n, shape.k).T),
    }
    for guess, other in others.items():
        if np.array_equal(c, other.astype(np.float32)):
            return replace(where, guess=f"This is the result if {guess}.")
    if problem.before is None and where.wrong == c.size and (c == result.sentinel).all():
        zeros = np.zeros((shape.m, shape.n), np.float32)
        if np.array_equal(_launch(subject, memory, problem, inputs, zeros).c, problem.expected):
            return replace(
                where, guess="The old C is added although beta is 0: with C = 0 before the launch, the result is right."
            )
    if problem.stretched != (1.0, 1.0) and _mistake(subject, memory, problem.around_1) is None:
        return replace(
            where,
            guess="Right for numbers around 1, wrong for large or small ones: parts in FP16? The class fp16 is exempt.",
        )
    return where


BENCHMARK_SHAPE = "exact at the benchmark shape"
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


def check_benchmark_shape(subject: Subject, buffers: Buffers, exact: list[ExactProblem]) -> Stage:
    """One launch per family: C must be exact in every row, and its guards intact. Raises LaunchFailed."""
    for problem in exact:
        with buffers.holding(problem.a, problem.b):
            result = buffers.run(subject, problem.alpha, problem.beta, problem.before)
        where = f"family {problem.name} at {buffers.shape}{problem.scalars}"
        if result.trespass:
            return failed(BENCHMARK_SHAPE, f"{where}: {result.trespass}")
        rows = problem.projection.wrong_rows(result.c)
        if len(rows):
            found = if_rounded(_map(result, problem, rows), problem.name)
            return failed(BENCHMARK_SHAPE, f"{where}: {found}", found.wrong, found)
    names = ", ".join(dict.fromkeys(problem.name for problem in exact))
    return passed(BENCHMARK_SHAPE, f"families {names} at {buffers.shape}, no row wrong")


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
