"""Stages: exact integers on edge shapes, exact integers at the benchmark shape, and the same bits when a launch is
repeated.

Squares of a power of two hide most mistakes: M and N swapped, a wrong leading dimension, a K tail that is dropped, a
bound that is off by one, a row that no thread computes. So the edge shapes are shapes around warps and tiles, down to a
single element, with M, N and K all different; for a kernel that takes only whole tiles, different numbers of them; and
a few drawn at random, the last two of them long, because a swizzle can be right up to some number of tiles.

Each shape runs with several alpha and beta, because a kernel that ignores one of them is right for the usual 1 and 0.
They are drawn from halves up to 3.5, and 0 for alpha. The inputs alternate between the exact families
(worklog.gate.exact), stretched by powers of two, and C starts with even integers where beta is not 0, so nothing rounds
and no tolerance is needed: each element is compared with the FP64 product, the guards around C must be intact, and A
and B unchanged.

A kernel can be right on every small shape and wrong at the benchmark's: a library switches to tensor cores from some
size on, a swizzle stops being a permutation, an index overflows, two blocks race. So the exact families run at the
benchmark's shape too. A reference product at 4096 would take longer than everything else, so C, A and B are projected
on random integer vectors instead (worklog.gate.exact.Projection). Only if a row is wrong is the product computed, for
the rows and columns that the projections name, to draw the error map. Here alpha and beta are powers of two with a
sign, because a fast path for large shapes can forget either. C then holds one value everywhere: a fill and no upload.

A race need not show in one launch. On the dense integers of family E1 every order of additions gives the same result,
so two launches of a right kernel agree bit by bit, even with atomics. The repeated launches write a second C, filled
with a sentinel before each, which is compared with the first on the device: at least 3 launches, and 20 or as many as
fit into half a second. A race that is rarer needs compute-sanitizer's racecheck or the emulator, which sees it in one
launch.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from worklog.gate.exact import HEADROOM, ExactProblem, Indices, Projection, families, family, stretch
from worklog.gate.guarded_buffer import Buffers, Memory, Result
from worklog.gate.verdict import ErrorMap, Stage, error_map, failed, if_rounded, passed
from worklog.kernel.device import Program, Subject
from worklog.problem.gemm import Domain, Shape

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
LARGE_SQUARES = 200, 260  # of a kernel for squares only: a longer K would take the emulator minutes
ACROSS = 49, 97  # the other way: at least four small tiles, because a single column of tiles has no order


def edge_shapes(domain: Domain) -> list[Shape]:
    """Small shapes inside the domain, none with M = N: sizes around warps and tiles, or for a kernel that takes only
    whole tiles larger than FINE, one to five tiles per side in different mixes, wide and tall, one K step included.
    """
    if domain.m > FINE and domain.n > FINE:
        wide, tall = max(2, domain.m // domain.n + 1), max(2, domain.n // domain.m + 1)
        mixes = ((1, wide, 3), (tall, 1, 1), (3, 2, 5), (2, 3, 2))
        shapes = [domain.padded(Shape(m * domain.m, n * domain.n, k * domain.k)) for m, n, k in mixes]
    else:
        steps, shapes = (domain.m, domain.n, domain.k), []
        for index, sizes in enumerate(ANY_SIZES):
            fine = (size if step <= FINE else step * (1 + index % 3) for step, size in zip(steps, sizes, strict=True))
            shapes.append(domain.padded(Shape(*fine)))
    return [shape for shape in dict.fromkeys(shapes) if domain.square or shape.m != shape.n]


def drawn_shapes(domain: Domain, rng: np.random.Generator) -> list[Shape]:
    """A few more shapes at random. The last two are long, one each way, with a short K: more tiles than a group of a
    swizzle or a table of blocks holds.
    """
    small = [tuple(int(rng.integers(1, most + 1)) for most in LARGEST_DRAWN) for _ in range(DRAWN)]
    few = domain.k if domain.k > 4 else domain.k * int(rng.integers(2, 6))
    tall, wide = (int(rng.integers(LONG, LONG + 100)) for _ in range(2))
    if domain.square:
        return [domain.padded(Shape.of(int(rng.integers(1, most + 1)))) for most in (*LARGEST_DRAWN, *LARGE_SQUARES)]
    across = [int(rng.integers(*ACROSS)) for _ in range(2)]
    sizes = [*(small if max(domain.m, domain.n) <= FINE else []), (tall, across[0], few), (across[1], wide, few)]
    return [domain.padded(Shape(*three)) for three in sizes]


def check_edge_shapes(subject: Subject, memory: Memory, claimed: str) -> Stage:
    """Run the kernel on every edge shape, and stop at the first mistake. Raises LaunchFailed."""
    listed, drawn = edge_shapes(subject.domain), drawn_shapes(subject.domain, memory.rng)
    names, launches = families(claimed), 0
    for index, shape in enumerate((*listed, *drawn)):
        for scalars in _scalars(memory.rng, index, shape in drawn[-2:], subject.domain):
            name = names[index % len(names)]
            problem = _edge_problem(name, shape, scalars, memory, claimed)
            found = _mistake(subject, memory, problem)
            launches += 1
            if found is not None:
                largest = _edge_problem(name, listed[-1], scalars, memory, claimed).around_1
                return _failure(problem, found, largest, _mistake(subject, memory, largest))
    count = len(listed) + len(drawn)
    various = [name for name in ("alpha", "beta") if getattr(subject.domain, name)]
    which = f"various {' and '.join(various)}" if various else "alpha = 1, beta = 0"
    return passed(EDGE_SHAPES, f"{count} shapes, {launches} launches with {which}, no element wrong")


def _scalars(rng: np.random.Generator, index: int, few: bool, domain: Domain) -> tuple[Scalars, ...]:
    """Pairs for one shape: the usual one, alpha alone, beta alone or with the usual alpha, and both; of these, the ones
    that the kernel takes.
    """
    pairs = _pairs(rng, index, few)
    taken = ((alpha if domain.alpha else 1.0, beta if domain.beta else 0.0) for alpha, beta in pairs)
    return tuple(dict.fromkeys(taken))


def _pairs(rng: np.random.Generator, index: int, few: bool) -> tuple[Scalars, ...]:
    x, y, z = (float(rng.choice(HALVES)) for _ in range(3))
    if few:
        return ((x, 0.0),)
    return USUAL, (x, 0.0), ((0.0, y), (1.0, 1.0), (1.0, y))[index % 3], (x, z)


def _edge_problem(name: str, shape: Shape, scalars: Scalars, memory: Memory, claimed: str) -> ExactProblem:
    """C holds even integers below 2^11, times both powers of two, where it is read."""
    a, b = family(name, shape, memory.rng, claimed, 0 if scalars == USUAL else HEADROOM)
    of_a, of_b = stretch(a, b, memory.rng, claimed)
    even = 2 * memory.rng.integers(-1000, 1000, (shape.m, shape.n))
    before = (even * (of_a * of_b)).astype(np.float32) if scalars[1] else None
    return ExactProblem(name, a, b, (of_a, of_b), *scalars, before)


def _failure(
    problem: ExactProblem, found: ErrorMap | str, largest: ExactProblem, there: ErrorMap | str | None
) -> Stage:
    """The first mistake; or, where both are wrong elements, the one at the largest shape, which shows more."""
    shown, where, also = problem, found, ""
    if isinstance(found, ErrorMap) and isinstance(there, ErrorMap) and largest.shape != problem.shape:
        shown, where, also = largest, there, f" (and at {problem.shape})"
    m, n, k = shown.shape.m, shown.shape.n, shown.shape.k
    scales = "".join(f", {x} times {scale:.0e}" for x, scale in zip("AB", shown.stretched, strict=True) if scale != 1)
    launch = f"at {m} x {n} x {k} with alpha = {shown.alpha:g}, beta = {shown.beta:g}{scales}"
    if not isinstance(where, ErrorMap):
        return failed(EDGE_SHAPES, f"{launch}: {where}")
    if (shown.alpha, shown.beta) == USUAL:
        where = if_rounded(where, shown.family)
    return failed(EDGE_SHAPES, f"{launch}{also}: {where}", where.wrong, where)


def _mistake(subject: Subject, memory: Memory, problem: ExactProblem) -> ErrorMap | str | None:
    """What is wrong with the kernel's result, or None."""
    result = Buffers(memory, problem.a, problem.b).run(subject, problem.alpha, problem.beta, problem.before)
    if result.trespass:
        return result.trespass
    product = problem.a.astype(np.float64) @ problem.b.astype(np.float64)
    expected = problem.result(product, problem.alpha, problem.beta)
    if (result.c == expected).all():
        return None
    factors = None if problem.alpha == 0 else (problem.alpha * problem.a.astype(np.float64), problem.b)
    where = error_map(result.c, expected, result.sentinel, factors)
    if mistake := problem.wrong_scalar(result.c, product):
        return replace(where, guess=f"This is the result if {mistake}.")
    transposed = problem.b.reshape(problem.b.shape[::-1]).T
    layouts = {
        "C is written transposed": product.T.reshape(product.shape),
        "B is read transposed": problem.a.astype(np.float64) @ transposed,
    }
    for mistake, other in layouts.items():
        if np.array_equal(result.c, (problem.alpha * other).astype(np.float32)):
            return replace(where, guess=f"This is the result if {mistake}.")
    if problem.before is None and (result.c == result.sentinel).all():
        # In other buffers, so that a late launch into the first ones isn't mistaken for this one.
        again = Buffers(memory, problem.a, problem.b).run(subject, problem.alpha, problem.beta, 0.0)
        if np.array_equal(again.c, expected):
            guess = "The old C is added although beta is 0: with C = 0 before the launch, the result is right."
            return replace(where, guess=guess)
    if problem.stretched != (1.0, 1.0) and _mistake(subject, memory, problem.around_1) is None:
        guess = "Right for numbers around 1, wrong for large or small ones: parts in FP16? The class fp16 is exempt."
        return replace(where, guess=guess)
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
Exact = tuple[ExactProblem, Projection]


def exact_problems(
    shape: Shape, rng: np.random.Generator, claimed: str = "fp32", takes: tuple[bool, bool] = (True, True)
) -> list[Exact]:
    """One for each family on which a kernel of the class must be exact, at least three, with the projection of the
    right result: the first with the usual alpha and beta, which is repeated, the others with an alpha, and with both.
    takes: whether the kernel takes alpha, and beta.
    """
    found = []
    for index, name in enumerate((families(claimed) * LAUNCHES)[:LAUNCHES]):
        a, b = family(name, shape, rng, claimed)
        of_a, of_b = stretch(a, b, rng, claimed)
        alpha, beta = _power(rng) if index and takes[0] else 1.0, _power(rng) if index == 2 and takes[1] else 0.0
        old = OLD * of_a * of_b
        problem = ExactProblem(name, a, b, (of_a, of_b), alpha, beta, old if beta else None)
        found.append((problem, Projection.of(a, b, rng, alpha, beta * old, abs(alpha) * of_a * of_b)))
    return found


def _power(rng: np.random.Generator) -> float:
    """±1/4 to ±4, never 1."""
    return float(rng.choice((-4.0, -2.0, -1.0, -0.5, -0.25, 0.25, 0.5, 2.0, 4.0)))


def check_benchmark_shape(subject: Subject, buffers: Buffers, exact: list[Exact]) -> Stage:
    """One launch per family: C must be exact in every row, and its guards intact. Raises LaunchFailed."""
    for problem, projection in exact:
        with buffers.holding(problem.a, problem.b):
            result = buffers.run(subject, problem.alpha, problem.beta, problem.before)
        usual = (problem.alpha, problem.beta) == USUAL
        scalars = "" if usual else f" with alpha = {problem.alpha:g}, beta = {problem.beta:g}"
        where = f"family {problem.family} at {buffers.shape}{scalars}"
        if result.trespass:
            return failed(BENCHMARK_SHAPE, f"{where}: {result.trespass}")
        rows = projection.wrong_rows(result.c)
        if len(rows):
            found = if_rounded(_map(result, problem, rows, projection.wrong_columns(result.c)), problem.family)
            return failed(BENCHMARK_SHAPE, f"{where}: {found}", found.wrong, found)
    names = ", ".join(dict.fromkeys(problem.family for problem, _ in exact))
    return passed(BENCHMARK_SHAPE, f"families {names} at {buffers.shape}, no row wrong")


def _map(result: Result, problem: ExactProblem, rows: Indices, columns: Indices) -> ErrorMap:
    """Compute what is expected in the wrong rows and columns, or in some of the rows if that is too much."""
    c = result.c
    if problem.before is None and (c == result.sentinel).all():
        # Nothing was written: any expected value gives the same map.
        return error_map(c, np.zeros_like(c), result.sentinel)
    step = int(np.ceil(len(rows) * len(columns) * problem.a.shape[1] / MOST_LOCATED))
    rows = rows[:: max(1, step)]
    seen = np.ix_(rows, columns)
    # In FP32: every partial sum is an exact integer times a power of two, in BLAS's order too.
    product = problem.a[rows] @ problem.b[:, columns]
    expected = c.copy()
    expected[seen] = problem.result(product, problem.alpha, problem.beta)
    where = error_map(c, expected, result.sentinel, (np.float32(problem.alpha) * problem.a, problem.b))
    mistake = problem.wrong_scalar(c[seen], product)
    return replace(where, guess=f"This is the result if {mistake}.") if mistake else where


def check_repeated(subject: Subject, buffers: Buffers, problem: ExactProblem, differ: Any) -> Stage:
    """Repeat a launch and compare the results on the device. differ: DIFFER, compiled. Raises LaunchFailed."""
    device = buffers.memory.device
    found = device.upload(np.zeros(MOST, np.float32))
    a, b, c = buffers.abc
    launches, started = 1, time.monotonic()
    with buffers.holding(problem.a, problem.b):
        buffers.run(subject)
        while launches < MOST and (launches < LEAST or time.monotonic() - started < BUDGET_S):
            device.fill(buffers.spare, float(buffers.memory.sentinel()))
            subject.enqueue(buffers.shape, 1.0, a, b, 0.0, buffers.spare)
            arguments = (np.int64(c.size), c, buffers.spare, np.int32(launches), found)
            device.launch(differ, (-(-c.size // BLOCK), 1), BLOCK, arguments)
            device.synchronize()
            launches += 1
    differing = np.flatnonzero(device.download(found))
    if len(differing):
        which = ", ".join(str(i + 1) for i in differing[:5])
        detail = f"of {launches} launches on the same integers, number {which} differs from the first: a race"
        return failed(REPEATED, detail, len(differing))
    return passed(REPEATED, f"{launches} launches on the same integers")
