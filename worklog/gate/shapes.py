"""Stages: exact integers on edge shapes, exact integers at the benchmark shape, random inputs at sizes just below it,
and the same bits when a launch is repeated.

Squares of a power of two hide most mistakes: M and N swapped, a wrong leading dimension, a K tail that is dropped, a
bound that is off by one. So small shapes lie around warps and tiles, and M, N and K are all different. A kernel can be
right on all of these and wrong at the benchmark's: a library switches to tensor cores from some size on, a swizzle
stops being a permutation, an index overflows. And the benchmark shape is mostly a multiple of every tile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import numpy as np

from worklog.errors import LaunchFailed
from worklog.gate import draws, exact
from worklog.gate.after_timing import LaunchProbe
from worklog.gate.exact import ExactProblem, Indices, Projection, error_map, if_rounded
from worklog.gate.guarded_buffer import Buffers, Memory, Result
from worklog.gate.mistake import mistake_in
from worklog.gate.precision import full_mantissa
from worklog.gate.verdict import failed, passed
from worklog.kernel import Program, Runnable
from worklog.problem import Domain, Float32, Shape
from worklog.runs.verdict import ErrorMap, Stage

EDGE_SHAPES = "exact on edge shapes"
ALIGNMENT = "alignment"
STATE = "kept state"
KEPT_LAUNCHES = 5000, 300  # on a GPU and on the emulator
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
LARGE = 257, 300  # rows and columns, or terms, of shapes beyond what is small for many a library
TILES = 128, 256  # rows and columns that are multiples of most tiles, above an odd K
FREE_K = 70, 1, 9, 33  # of a kernel for whole tiles only, that takes any K
LARGE_SQUARES = 200, 260  # of a kernel for squares only: a longer K would take the emulator minutes
WITH_BETA = exact.STRUCTURES.index("the identity"), len(exact.STRUCTURES)
ONCE = 6  # of the shapes drawn: they are large in some way, or square
RANGES = -(-(2 * exact.FARTHEST + 1) // exact.RANGE)
WHOLE = 48, 64, 32
SPECIAL = 33, 47  # M or N, and the other: K is the first
ACROSS = 49, 97  # the other way: at least four small tiles, because a single column of tiles has no order

BENCHMARK_SHAPE = "exact at the benchmark shape"
LAUNCHES = 3
POWERS = (-4.0, -2.0, -1.0, -0.5, -0.25, 0.25, 0.5, 2.0, 4.0)  # alpha
MOST_LOCATED = 1e11  # multiply-adds spent on an error map: a second or two of a CPU
RAGGED = "just below the benchmark shape"
MOST_CUT = 16  # pairs of rows, columns or terms
REPEATED = "bit-equal when repeated"
MOST, LEAST, BUDGET_S = 20, 3, 0.5  # repeated launches, and seconds for them
BLOCK = 256
_DIFFER = Path(__file__).with_name("differ.cu")
DIFFER = Program(_DIFFER.name, _DIFFER.read_text(encoding="utf-8"), "differ")


def edge_shapes(domain: Domain) -> list[Shape]:
    """Small shapes inside the domain, none with M = N; for a kernel that takes only whole tiles larger than FINE, one
    to five tiles per side in different mixes, wide and tall, one K step included.
    """
    shapes: list[Shape] = []
    if domain.m > FINE and domain.n > FINE:
        wide, tall = max(2, domain.m // domain.n + 1), max(2, domain.n // domain.m + 1)
        mixes = ((1, wide, 3), (tall, 1, 1), (3, 2, 5), (2, 3, 2))
        for (m, n, k), free in zip(mixes, FREE_K, strict=True):
            terms = free if domain.k <= FINE else k * domain.k
            shapes.append(domain.padded(Shape(m * domain.m, n * domain.n, terms)))
    else:
        steps = domain.m, domain.n, domain.k
        for index, sizes in enumerate(ANY_SIZES):
            tiles = 1 + index % 3
            fine = [size if step <= FINE else step * tiles for step, size in zip(steps, sizes, strict=True)]
            shapes.append(domain.padded(Shape(*fine)))
    return [shape for shape in dict.fromkeys(shapes) if domain.square or shape.m != shape.n]


def drawn_shapes(domain: Domain, rng: np.random.Generator) -> list[Shape]:
    """A few more shapes at random. The last two are long, one each way, with a short K: more tiles than a group of a
    swizzle or a table of blocks holds. Of those before them one has a long K, one many rows and columns, one an odd K
    behind whole tiles; and one is a square, if the domain has a small one.
    """
    small = [tuple(int(rng.integers(1, most + 1)) for most in LARGEST_DRAWN) for _ in range(DRAWN)]
    short = domain.k if domain.k > 4 else domain.k * int(rng.integers(2, 6))
    tall, wide = (int(rng.integers(LONG, LONG + 100)) for _ in range(2))
    if domain.square:
        return [domain.padded(Shape.of(int(rng.integers(1, most + 1)))) for most in (*LARGEST_DRAWN, *LARGE_SQUARES)]
    few_columns, few_rows = (int(rng.integers(*ACROSS)) for _ in range(2))
    long, rows, columns = (int(rng.integers(*LARGE)) for _ in range(3))
    sizes = small if max(domain.m, domain.n) <= FINE else []
    sizes += [(7, 10, long), (rows, columns, short), (*TILES, 2 * int(rng.integers(10, 30)) + 1)]
    side = replace(domain, square=True).padded(Shape.of(few_columns)).m
    if side < LARGE[0]:
        sizes.append((side, side, side))
    sizes += [(tall, few_columns, short), (few_rows, wide, short)]
    return [domain.padded(Shape(*three)) for three in sizes]


def ragged_shapes(shape: Shape, domain: Domain, rng: np.random.Generator) -> list[Shape]:
    """Up to four shapes in the domain, at most a few percent below this one: all sizes odd, all of them 4 times an odd
    number, which loads of four elements take, only K odd, and only N.
    """

    def below(size: int, step: int, multiple: int) -> int:
        if step > 1 or size <= multiple:
            return max(step, size - step)
        if multiple > 1:
            whole = (size - 1) // multiple
            return multiple * (whole - 1 + whole % 2)
        cut = size - 1 - 2 * int(rng.integers(max(1, min(MOST_CUT, size // 64))))
        return max(1, cut - 1 + cut % 2)

    sizes = (shape.m, domain.m), (shape.n, domain.n), (shape.k, domain.k)
    odd, fours = (Shape(*(below(size, step, multiple) for size, step in sizes)) for multiple in (1, 4))
    shapes = [odd, fours, Shape(shape.m, shape.n, odd.k), Shape(shape.m, odd.n, shape.k)]
    if domain.square:
        step = max(domain.m, domain.n, domain.k)
        shapes = [domain.padded(Shape.of(max(1, shape.m - cut))) for cut in (2 * step, step)]
    return [smaller for smaller in dict.fromkeys(shapes) if smaller in domain and smaller != shape]


# --------------------------------------------------------------------------------------------------------- edge shapes


def check_edge_shapes(subject: Runnable, memory: Memory) -> Stage:
    """Run the kernel on every edge shape, and stop at the first mistake. Inputs alternate between the exact families,
    stretched by powers of two, and C starts with even integers where beta is not 0, so nothing rounds: each element is
    compared with the FP64 product. Raises LaunchFailed.
    """
    domain, claimed, rng = subject.domain, subject.claimed, memory.rng
    listed, drawn = edge_shapes(domain), drawn_shapes(domain, rng)
    cases: list[tuple[Shape, Scalars]] = []
    for index, shape in enumerate((*listed, *drawn)):
        most = 1 if shape in drawn[-ONCE:] else 2 if shape == listed[-1] else 4  # the largest shapes take the longest
        cases += [(shape, scalars) for scalars in _scalars(rng, index, most, domain)]
    names = exact.families(claimed)
    cases += [(listed[0], USUAL)] * (len(names) * RANGES - len(cases))
    decks = {name: (exact.exponents(rng), exact.exponents(rng)) for name in names}

    def problem_of(name: str, shape: Shape, scalars: Scalars) -> ExactProblem:
        a, b = exact.family(name, shape, rng, claimed, 0 if scalars == USUAL else exact.HEADROOM)
        of_a, of_b = exact.stretch(a, b, decks[name], claimed)
        before = _old(shape, rng) * np.float32(of_a * of_b) if scalars[1] else None
        return ExactProblem(name, a, b, (of_a, of_b), *scalars, before)

    launches, tried = 0, set[Shape]()
    ordinary = (problem_of(name, *case) for name, case in zip(cycle(names), cases))
    rare = draws.problems(domain, claimed, rng, large=memory.device.source == "live")
    for problem in chain(ordinary, _special_data(memory, domain, claimed), rare):
        launches += 1
        tried.add(problem.shape)
        mistake = mistake_in(subject, memory, problem)
        if isinstance(mistake, ErrorMap) and problem.family in exact.FAMILIES:
            larger = problem_of(problem.family, listed[-1], (problem.alpha, problem.beta)).around_1
            shown = mistake_in(subject, memory, larger)
            if isinstance(shown, ErrorMap) and larger.shape != problem.shape:  # it shows more
                return _failure(larger, shown, f" (and at {problem.shape})")
        if mistake is not None:
            return _failure(problem, mistake)
    various = [name for name in ("alpha", "beta") if getattr(domain, name)]
    which = f"various {' and '.join(various)}" if various else "alpha = 1, beta = 0"
    return passed(EDGE_SHAPES, f"{len(tried)} shapes, {launches} launches with {which}, no element wrong")


def check_alignment(subject: Runnable, memory: Memory) -> Stage:
    """Launches with one matrix that begins 16 bytes behind an allocation's start, and on the emulator 4 bytes, as far
    as the domain takes that: whole tiles, so that paths with vectors run. An access that is misaligned then is a note
    with the domain that it implies. Raises LaunchFailed for other errors.
    """
    domain, needed = subject.domain, [*subject.domain.bytes_of]
    shape, emulated = domain.padded(Shape(*WHOLE)), memory.device.source == "emulated"
    tried = [(place, words) for place in range(3) for words in ((1, 2, 4) if emulated else (4,))]
    for place, words in tried:
        if 4 * words % needed[place] or (words == 2 and needed[place] < 8):  # in between, only to know how many bytes
            continue
        problem = ExactProblem("E1", *exact.family("E1", shape, memory.rng, subject.claimed))
        try:
            mistake = mistake_in(subject, memory, problem, {"ABC"[place]: words})
        except LaunchFailed as error:
            if "misaligned" not in error.kinds:
                raise
            needed[place] = 8 * words
            continue
        if mistake is not None:
            behind = f"{4 * words} bytes behind an allocation's start"
            return failed(ALIGNMENT, f"with {'ABC'[place]} at {behind}: {mistake}")
    stated = replace(domain, bytes_of=(needed[0], needed[1], needed[2]))
    if stated != domain:
        detail = f"misaligned accesses, so addresses have a domain: {stated}"
        return passed(ALIGNMENT, detail, note=f"the domain is inferred: {stated}; state it, as in --domain '{stated}'")
    return passed(
        ALIGNMENT,
        f"right with each matrix {'4 and ' * (emulated and 4 in needed)}16 bytes behind an allocation's start",
    )


def check_state(subject: Runnable, memory: Memory) -> Stage:
    """A kernel that keeps variables between launches: loaded again, its first launch has several blocks, and many tiny
    launches follow, in which a counter passes 2^8, and on a GPU 2^12. Raises LaunchFailed.
    """
    listed = edge_shapes(subject.domain)
    subject.relocate()
    count = KEPT_LAUNCHES[memory.device.source == "emulated"]
    several, tiny = (
        ExactProblem("E1", *exact.family("E1", shape, memory.rng, subject.claimed)) for shape in (listed[-1], listed[0])
    )
    if (mistake := mistake_in(subject, memory, several)) is not None:
        return failed(STATE, f"in the first launch after loading, at {several.shape}: {mistake}")
    device, buffers, right = memory.device, Buffers(memory, tiny.a, tiny.b), (tiny.a @ tiny.b).ravel()
    memory.lend(subject, tiny.shape)
    a, b, c = buffers.abc
    for number in range(count):
        device.fill(c, float(memory.sentinel()))
        subject.enqueue(tiny.shape, 1.0, a, b, 0.0, c)
        if wrong := int((device.download(c) != right).sum()):
            return failed(
                STATE, f"in launch {number + 2} after loading, at {tiny.shape}: {wrong} elements are wrong", wrong
            )
    names = ", ".join(subject.variables(listed[-1]))
    said = f"keeps {names} between launches"
    return passed(STATE, f"{said}: right in the first {count + 1} after loading", note=said)


def _special_data(memory: Memory, domain: Domain, claimed: str) -> Iterator[ExactProblem]:
    """A or B has one of STRUCTURES; a matrix that may be the identity is square. Zeros meet a beta, too."""
    for number, kind in enumerate((*exact.STRUCTURES, exact.STRUCTURES[0])):
        for operand, sizes in enumerate((SPECIAL, SPECIAL[::-1])):
            shape = domain.padded(Shape(sizes[0], sizes[1], SPECIAL[0]))
            both = exact.family("E1", shape, memory.rng, claimed, exact.HEADROOM)
            exact.structured(kind, both[operand], memory.rng)
            scalars = _scalars(memory.rng, 0, 4, domain)[-1] if number in WITH_BETA else USUAL
            before = _old(shape, memory.rng) if scalars[1] else None
            yield ExactProblem(f"E1 with {'AB'[operand]} {kind}", *both, (1.0, 1.0), *scalars, before)


def _scalars(rng: np.random.Generator, index: int, most: int, domain: Domain) -> tuple[Scalars, ...]:
    """Pairs for one shape: the usual one, alpha alone, beta alone or with the usual alpha, and both; of these, the ones
    that the kernel takes.
    """
    x, y, z = (float(rng.choice(HALVES)) for _ in range(3))
    pairs: tuple[Scalars, ...] = USUAL, (x, 0.0), ((0.0, y), (1.0, 1.0), (1.0, y))[index % 3], (x, z)
    if most < 4:
        pairs = ((x, 0.0), (y, z))[:most]
    taken = ((alpha if domain.alpha else 1.0, beta if domain.beta else 0.0) for alpha, beta in pairs)
    return tuple(dict.fromkeys(taken))


def _old(shape: Shape, rng: np.random.Generator) -> Float32:
    """What C holds where it is read: even integers of 17 bits, half of which a shorter format doesn't hold."""
    return (2 * rng.integers(-(2**16), 2**16, (shape.m, shape.n))).astype(np.float32)


def _failure(problem: ExactProblem, mistake: ErrorMap | str, also: str = "") -> Stage:
    m, n, k = problem.shape.m, problem.shape.n, problem.shape.k
    launch = f"at {m} x {n} x {k} with alpha = {problem.alpha:g}, beta = {problem.beta:g}"
    for name, scale in zip("AB", problem.stretched, strict=True):
        launch += f", {name} times {scale:.0e}" if scale != 1 else ""
    if problem.family not in exact.FAMILIES:
        launch += f", {problem.family}"
    if isinstance(mistake, str):
        return failed(EDGE_SHAPES, f"{launch}: {mistake}")
    if problem.usual:
        mistake = if_rounded(mistake, problem.family)
    return failed(EDGE_SHAPES, f"{launch}{also}: {mistake}", mistake.wrong, mistake)


# ------------------------------------------------------------------------------------------------ the benchmark shape


def exact_problems(
    shape: Shape, rng: np.random.Generator, claimed: str = "fp32", *, alpha: bool = True, beta: bool = True
) -> list[Projection]:
    """One for each family on which a kernel of the class must be exact, at least three: the first with the usual alpha
    and beta, which is repeated, the others with an alpha, and with both. alpha, beta: whether the kernel takes it.

    alpha is a power of two with a sign, and beta and the old C are odd integers of 12 and 11 bits, because a fast path
    for large shapes can forget or shorten either; their product is as large as A B may be.
    """
    projections = []
    for index, name in enumerate((exact.families(claimed) * LAUNCHES)[:LAUNCHES]):
        with_beta = index == 2 and beta
        a, b = exact.family(name, shape, rng, claimed, int(with_beta))
        of_a, of_b = exact.stretch(a, b, (exact.exponents(rng), exact.exponents(rng)), claimed)
        power = float(rng.choice(POWERS)) if index and alpha else 1.0
        factor = float(rng.choice((-1, 1)) * (2 * rng.integers(1024, 2048) + 1)) if with_beta else 0.0
        odd = float(2 * rng.integers(512, 1024) + 1)
        before = odd * abs(power) * of_a * of_b if with_beta else None
        projections.append(Projection(ExactProblem(name, a, b, (of_a, of_b), power, factor, before), rng))
    return projections


def check_benchmark_shape(subject: Runnable, buffers: Buffers, projections: list[Projection]) -> Stage:
    """One launch per family: C must be exact in every row, and its guards intact. Raises LaunchFailed."""
    for projection in projections:
        problem = projection.problem
        buffers.load(problem.a, problem.b)
        result = buffers.run(subject, problem.alpha, problem.beta, problem.before)
        scalars = "" if problem.usual else f" with alpha = {problem.alpha:g}, beta = {problem.beta:g}"
        launch = f"family {problem.family} at {buffers.shape}{scalars}"
        if result.trespass:
            return failed(BENCHMARK_SHAPE, f"{launch}: {result.trespass}")
        rows = projection.wrong_rows(result.c)
        if len(rows):
            where = if_rounded(_map(result, problem, rows, projection.wrong_columns(result.c)), problem.family)
            return failed(BENCHMARK_SHAPE, f"{launch}: {where}", where.wrong, where)
    names = ", ".join(dict.fromkeys(projection.problem.family for projection in projections))
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
    right = problem.a[rows] @ problem.b[:, columns]
    expected = c.copy()
    expected[seen] = problem.result(right)
    where = error_map(c, expected, result.sentinel, (np.float32(problem.alpha) * problem.a, problem.b))
    mistake = problem.wrong_scalar(c[seen], right)
    return replace(where, guess=f"This is the result if {mistake}.") if mistake else where


def check_ragged(subject: Runnable, buffers: Buffers, probe: Callable[[float, Shape], LaunchProbe]) -> Stage:
    """One launch at each ragged shape, in the first elements of the buffers, whose inputs are lost. probe: for an
    alpha and a shape, new. Raises LaunchFailed.
    """
    memory, domain = buffers.memory, subject.domain
    shapes = ragged_shapes(buffers.shape, domain, memory.rng)
    for number, shape in enumerate(shapes):
        alpha = full_mantissa(memory.rng) if domain.alpha and number != 1 else 1.0
        checks = probe(alpha, shape)
        buffers.poison()
        a, b, c = buffers.part(shape)
        checks.prepare(a, b, c)
        memory.launch(subject, shape, alpha, a, b, 0.0, c)
        checks.observe(c)
        checks.check(a, b)
        stage = checks.stage()
        detail = buffers.wrote_outside(4 * shape.m * shape.n) or ("" if stage.passed else stage.detail)
        if detail:
            return failed(RAGGED, f"at {shape} with alpha = {alpha:.9g}: {detail}", stage.measured or 1)
    return passed(RAGGED, f"at {', '.join(map(str, shapes)) or 'no shape: the domain has none'}, no row wrong")


def check_repeated(subject: Runnable, buffers: Buffers, problem: ExactProblem, differ: Any) -> Stage:
    """Repeat a launch and compare the results on the device: a race need not show in one launch, and on the dense
    integers of family E1 two launches of a right kernel agree bit by bit, even with atomics. differ: DIFFER, compiled.
    A race that is rarer needs compute-sanitizer's racecheck or the emulator. Raises LaunchFailed.
    """
    device = buffers.memory.device
    differs = device.upload(np.zeros(MOST, np.float32))
    a, b, c = buffers.abc
    most = LEAST if device.source == "emulated" else MOST
    launches, started = 1, time.monotonic()
    buffers.load(problem.a, problem.b)
    buffers.run(subject)
    while launches < most and (launches < LEAST or time.monotonic() - started < BUDGET_S):
        device.fill(buffers.spare, float(buffers.memory.sentinel()))
        buffers.memory.lend(subject, buffers.shape)
        subject.enqueue(buffers.shape, 1.0, a, b, 0.0, buffers.spare)
        arguments = (np.int64(c.size), c, buffers.spare, np.int32(launches), differs)
        device.launch(differ, (-(-c.size // BLOCK), 1), BLOCK, arguments)
        device.synchronize()
        launches += 1
    differing = np.flatnonzero(device.download(differs))
    if len(differing):
        which = ", ".join(str(i + 1) for i in differing[:5])
        detail = f"of {launches} launches on the same integers, number {which} differs from the first: a race"
        return failed(REPEATED, detail, len(differing))
    return passed(REPEATED, f"{launches} launches on the same integers")
