"""Stages on small shapes: exact integers on shapes around warps and tiles, addresses that are aligned less, and what a
kernel keeps between launches.

Squares of a power of two hide most mistakes: M and N swapped, a wrong leading dimension, a K tail that is dropped, a
bound that is off by one. So M, N and K are all different. Others are drawn anew in each check, for paths that no list
reaches: a fast path for whole tiles, a pipeline with as many steps as stages, an update of its own for alpha = -1 and
beta = 1, a guess from C's old contents or from samples of A.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, cycle, product
from types import MappingProxyType

import numpy as np

from worklog.errors import BadSetting, LaunchFailed, apart
from worklog.gate import exact
from worklog.gate.exact import OLD_C_ADDED, ExactProblem, error_map
from worklog.gate.guarded_buffer import Buffers, Memory, Result
from worklog.kernel import EXAMPLE_GRID, Kernel, Loaded, Runnable
from worklog.problem import Domain, Float32, Float64, Shape
from worklog.runs import ErrorMap, Stage, failed, passed

EDGE_SHAPES = "exact on edge shapes"
ALIGNMENT = "alignment"
STATE = "kept state"
OLD_C = "C of NaN, beta = 0"
KEPT_LAUNCHES = (
    4096,
    256,
)  # on a GPU and on the emulator: what counts launches in fewer bits has come round then
HALVES = tuple(
    halves / 2 for halves in range(-7, 8) if halves not in (0, 2)
)  # with even C all is exact
Scalars = tuple[float, float]  # alpha, beta
USUAL = 1.0, 0.0
ONES = (0.0, 1.0, -1.0)  # alpha and beta, all pairs
FEW_TERMS = 8
# of a grid that depends on the shape, and of one that doesn't
MOST_BLOCKS = 2**16
MOST_AT_ONCE = 2**13
LARGE_ALPHA = 2.0**118
FEW_BITS = (1 + 2.0**-12, 1 - 2.0**-12, 2.0**-12, 2.0**-20)  # alpha; exact with sums of few bits

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
FREE_K = 70, 1, 9, 33  # of a kernel for whole tiles only, that takes any K
# K is drawn once from each of so many ranges of this length
STEPS = 10
STRATUM = 32
LONG_K = 512, 2048
PARTNER = 33  # M and N beside a long K are smaller
TILES = 16, 24, 32, 48, 64, 96, 128  # sides of whole tiles
MOST_TERMS = 2**21  # M N K of whole tiles
# beyond what is small for many a library; and nine large tiles
ROWS = (257, 300)
LONG = (1100, 1200)
ACROSS = (
    49,
    97,
)  # the other way: at least four small tiles, because a single column of tiles has no order
SQUARES = (
    80,
    139,
    139,
    200,
    260,
    320,
)  # of a kernel for squares only: a longer K would take the emulator minutes
# sides of the problems on a GPU
LARGE = 1500
LARGE_DRAWN = 2
RANGES = -(-(2 * exact.FARTHEST + 1) // exact.RANGE)
SPECIAL = 33, 47  # M or N, and the other: K is the first
VARIANTS = (
    (False, False),
    (True, False),
    (False, True),
)  # of special data: with scalars, and with changed elements
CHANGED = 3  # most of these elements
WHOLE = 48, 64, 32
SIDES = 256, 512, 1024  # until there are more blocks than a GPU runs at once
RESIDENT = 132 * 2048  # threads, of an H200


def edge_shapes(domain: Domain) -> list[Shape]:
    """Small shapes inside the domain, none with M = N; for a kernel that takes only whole tiles larger than FINE, one
    to five tiles per side in different mixes, wide and tall, one K step included.
    """
    shapes: list[Shape] = []
    if domain.m > FINE and domain.n > FINE:
        wide = max(2, domain.m // domain.n + 1)
        tall = max(2, domain.n // domain.m + 1)
        mixes = ((1, wide, 3), (tall, 1, 1), (3, 2, 5), (2, 3, 2))
        for (m, n, k), free in zip(mixes, FREE_K, strict=True):
            terms = free if domain.k <= FINE else k * domain.k
            shapes.append(domain.padded(Shape(m * domain.m, n * domain.n, terms)))
    else:
        steps = domain.m, domain.n, domain.k
        for index, sizes in enumerate(ANY_SIZES):
            tiles = 1 + index % 3
            fine = [
                size if step <= FINE else step * tiles
                for step, size in zip(steps, sizes, strict=True)
            ]
            shapes.append(domain.padded(Shape(*fine)))
    return [shape for shape in dict.fromkeys(shapes) if domain.square or shape.m != shape.n]


def require_blocks(kernel: Kernel) -> None:
    """Raise BadSetting for more blocks than products of elements, or of one number at all shapes than run at once."""
    small = edge_shapes(kernel.domain)[-1]
    for part in kernel.at(small).passes:
        blocks = math.prod(part.blocks(small))
        grows = re.search(r"\b[MNK]\b", part.grid)
        if blocks > (MOST_BLOCKS + small.m * small.n * small.k if grows else MOST_AT_ONCE):
            than = (
                "there are products of elements" if grows else "a GPU runs at once, at every shape"
            )
            grid = f"the grid {part.grid} has {blocks:,} blocks at {small}, more than {than}"
            raise BadSetting(f"{grid}: give the right one, such as --grid {EXAMPLE_GRID}")


def drawn_shapes(domain: Domain, rng: np.random.Generator, *, live: bool = False) -> list[Shape]:
    """More shapes at random: a few rows and columns with each number of steps along K, and with a long K; whole tiles
    along each side, each with its own size; many rows and columns; and a square, if the domain has a small one. live:
    a few large ones, too. The last two are long, one each way, with a short K: more tiles than a group of a swizzle or
    a table of blocks holds.
    """
    if domain.square:
        sides = (*SQUARES, *[LARGE] * LARGE_DRAWN) if live else SQUARES
        return [domain.padded(Shape.of(int(rng.integers(1, side + 1)))) for side in sides]

    def log_uniform(least: int, most: int) -> int:
        return int(np.exp(rng.uniform(np.log(least), np.log(most + 1))))

    terms = [STRATUM * step + int(rng.integers(1, STRATUM + 1)) for step in range(STEPS)] + [
        log_uniform(*LONG_K)
    ]
    sizes: list[tuple[int, ...]] = [(*rng.integers(1, PARTNER, 2).tolist(), k) for k in terms]
    for most in (128, 96, int(rng.choice(TILES))):  # the first are whole tiles of most sizes
        m = most
        n = int(rng.choice(TILES)) if most < 96 else most
        k = int(rng.choice((32, 64, 128)))
        room = max(1, MOST_TERMS // (m * n * k))
        times = rng.permutation([int(rng.integers(1, min(3, room) + 1)), 1, 1]).tolist()
        sizes.append((m * times[0], n * times[1], k * times[2]))
    sizes.append((128, 256, 2 * int(rng.integers(10, 30)) + 1))  # whole tiles above an odd K
    short = domain.k if domain.k > 4 else domain.k * int(rng.integers(2, 6))
    sizes.append((*rng.integers(*ROWS, 2).tolist(), short))
    few_columns, few_rows = rng.integers(*ACROSS, 2).tolist()
    side = replace(domain, square=True).padded(Shape.of(few_columns)).m
    sizes += [(260, 8, 260), (8, 260, 260)]  # offsets in A and B beyond 16 bits
    sizes += [(side, side, side)] * (side < ROWS[0])
    sizes += [
        tuple(log_uniform(1, LARGE) for _ in range(3)) for _ in range(LARGE_DRAWN if live else 0)
    ]
    tall, wide = rng.integers(*LONG, 2).tolist()
    sizes += [(tall, few_columns, short), (few_rows, wide, short)]
    return [domain.padded(Shape(*three)) for three in sizes]


def check_edge_shapes(subject: Runnable, memory: Memory) -> Stage:
    """Run the kernel on every edge shape, and stop at the first mistake. Inputs alternate between the exact families,
    stretched by powers of two, and C starts with even integers where beta is not 0, so nothing rounds: each element is
    compared with the FP64 product. Raises LaunchFailed.
    """
    domain = subject.domain
    claimed = subject.claimed
    rng = memory.rng
    listed = edge_shapes(domain)
    drawn = drawn_shapes(domain, rng, live=memory.device.source == "live")
    cases = [
        (shape, scalars) for n, shape in enumerate(listed) for scalars in _scalars(rng, n, domain)
    ]
    for shape in drawn:
        alpha = float(rng.choice((1.0, -1.0, 2.0)))
        beta = float(rng.choice((1.0, -1.0)))
        cases.append((shape, (alpha if domain.alpha else 1.0, beta if domain.beta else 0.0)))
    names = exact.families(claimed)
    cases += [(listed[0], USUAL)] * (len(names) * RANGES - len(cases))
    decks = {name: (exact.exponents(rng), exact.exponents(rng)) for name in names}

    def problem_of(name: str, shape: Shape, scalars: Scalars) -> ExactProblem:
        a, b = exact.family(name, shape, rng, claimed, 0 if scalars == USUAL else exact.HEADROOM)
        of_a, of_b = exact.stretch(a, b, decks[name], claimed)
        before = _old(shape, rng) * np.float32(of_a * of_b) if scalars[1] else None
        return ExactProblem(name, a, b, (of_a, of_b), *scalars, before)

    launches = 0
    tried = set[Shape]()
    # Beyond its limit of terms, a family has zeros, and E1 none.
    named = zip(cycle(names), cases)
    ordinary = (problem_of("E1" if case[0].k > LONG_K[0] else name, *case) for name, case in named)
    for problem in chain(ordinary, rare_problems(domain, claimed, rng)):
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
    return passed(
        EDGE_SHAPES, f"{len(tried)} shapes, {launches} launches with {which}, no element wrong"
    )


def _scalars(rng: np.random.Generator, index: int, domain: Domain) -> tuple[Scalars, ...]:
    """Pairs for one shape: the usual one, alpha alone, beta alone or with the usual alpha, and both; of these, the ones
    that the kernel takes.
    """
    x, y, z = (float(rng.choice(HALVES)) for _ in range(3))
    pairs: tuple[Scalars, ...] = (
        USUAL,
        (x, 0.0),
        ((0.0, y), (1.0, 1.0), (1.0, y))[index % 3],
        (x, z),
    )
    taken = (
        (alpha if domain.alpha else 1.0, beta if domain.beta else 0.0) for alpha, beta in pairs
    )
    return tuple(dict.fromkeys(taken))


def _old(shape: Shape, rng: np.random.Generator) -> Float32:
    """What C holds where it is read: even integers of 17 bits, half of which a shorter format doesn't hold."""
    return (2 * rng.integers(-(2**16), 2**16, (shape.m, shape.n))).astype(np.float32)


def rare_problems(domain: Domain, claimed: str, rng: np.random.Generator) -> Iterator[ExactProblem]:
    """A or B with a structure, also with alpha and beta, and but for a few elements anywhere; a matrix that may be the
    identity is square. Tiny shapes with all pairs of 0, 1 and -1 as alpha and beta, and with alpha of few bits, or
    nearly 1. And with beta = 0, a C of zeros, or of the right result of a problem that differs in one row of A.
    """

    def integers(rows: int, columns: int, most: int) -> Float32:
        return rng.integers(-most, most, (rows, columns)).astype(np.float32)

    for kind, operand, (with_scalars, changed) in product(exact.STRUCTURES, range(2), VARIANTS):
        shape = domain.padded(Shape(*(SPECIAL if operand == 0 else SPECIAL[::-1]), SPECIAL[0]))
        both = exact.family("E1", shape, rng, claimed, exact.HEADROOM)
        matrix = both[operand]
        drawn = both[operand].copy()
        but = ""
        exact.structured(kind, matrix, rng)
        if changed:
            places = rng.permutation(matrix.size)[: int(rng.integers(1, CHANGED + 1))]
            matrix.reshape(-1)[places] = -drawn.reshape(-1)[places]
            but = f" but for {len(places)} elements"
        alpha, beta = _scalars(rng, 0, domain)[-1] if with_scalars else USUAL
        before = _old(shape, rng) if beta else None
        yield ExactProblem(
            f"E1 with {'AB'[operand]} {kind}{but}", *both, (1.0, 1.0), alpha, beta, before
        )
    shape = domain.padded(Shape(*rng.integers(1, 20, 3).tolist()))
    pairs = [pair for pair in product(ONES, ONES) if pair != USUAL]
    if claimed not in exact.OPERAND_BITS:  # which may round alpha A
        pairs += [*((alpha, 1.0) for alpha in FEW_BITS), (LARGE_ALPHA, 0.0)]
    for alpha, beta in pairs:
        if (alpha == 1 or domain.alpha) and (beta == 0 or domain.beta):
            a = integers(shape.m, shape.k, 4)
            b = integers(shape.k, shape.n, 4)
            a[:, FEW_TERMS:] = 0
            before = integers(shape.m, shape.n, 8) if beta else None
            yield ExactProblem("small integers", a, b, alpha=alpha, beta=beta, before=before)
    shape = domain.padded(Shape(*SPECIAL, 16))
    a, b = exact.family("E1", shape, rng, claimed)
    yield ExactProblem("E1 over a C of zeros", a, b, before=0.0)
    other = a.copy()
    other[
        8 * int(rng.integers(shape.m // 8)) + int(rng.integers(2, 6))
    ] *= -1  # no row at an edge of a tile
    old = (other.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    yield ExactProblem("E1 over the result of another problem", a, b, before=old)


def _failure(problem: ExactProblem, mistake: ErrorMap | str, also: str = "") -> Stage:
    m = problem.shape.m
    n = problem.shape.n
    k = problem.shape.k
    launch = f"at {m} x {n} x {k} with alpha = {problem.alpha:g}, beta = {problem.beta:g}"
    for name, scale in zip("AB", problem.stretched, strict=True):
        launch += f", {name} times {scale:.0e}" if scale != 1 else ""
    if problem.family not in exact.FAMILIES:
        launch += f", {problem.family}"
    if isinstance(mistake, str):
        return failed(EDGE_SHAPES, f"{launch}: {mistake}")
    return failed(EDGE_SHAPES, f"{launch}{also}: {mistake}", mistake.wrong, mistake)


def check_alignment(subject: Runnable, memory: Memory) -> Stage:
    """Launches with one matrix that begins 16 bytes behind an allocation's start, and on the emulator 4 bytes, as far
    as the domain takes that: whole tiles, so that paths with vectors run. An access that is misaligned then is a note
    with the domain that it implies. Raises LaunchFailed for other errors.
    """
    domain = subject.domain
    needed = [*subject.domain.bytes_of]
    shape = domain.padded(Shape(*WHOLE))
    emulated = memory.device.source == "emulated"
    for place, words in product(range(3), (1, 2, 4) if emulated else (4,)):
        if 4 * words % needed[place] or (
            words == 2 and needed[place] < 8
        ):  # in between, only to know how many bytes
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
        return passed(
            ALIGNMENT,
            detail,
            note=f"the domain is inferred: {stated}; state it, as in --domain '{stated}'",
        )
    also = "4 and " if emulated and 4 in needed else ""
    return passed(ALIGNMENT, f"right with each matrix {also}16 bytes behind an allocation's start")


def check_old_c(subject: Runnable, memory: Memory) -> Stage:
    """A launch with beta = 0 over a C of NaN, which BLAS and the rungs don't read. A kernel that computes with it is
    right for every finite C: it passes with a note, unless its domain has any data. Raises LaunchFailed.
    """
    shape = subject.domain.padded(Shape(*SPECIAL, 16))
    a, b = exact.family("E1", shape, memory.rng, subject.claimed)
    zeros = (0.0, -0.0) if subject.domain.beta else (0.0,)
    problems = (ExactProblem("E1", a, b, beta=beta, before=math.nan) for beta in zeros)
    if all(mistake_in(subject, memory, problem) is None for problem in problems):
        return passed(OLD_C, f"doesn't reach the result at {shape}")
    said = "C is read where beta is 0: NaN or infinity in it reaches the result"
    if subject.domain.any_data:
        return failed(OLD_C, f"at {shape}: {said}")
    return passed(OLD_C, said, note=said)


def check_state(subject: Loaded, memory: Memory) -> Stage:
    """A kernel that keeps variables between launches: loaded again, its first launch has more blocks than run at once,
    since they may wait for each other, where its grid grows with C; many tiny launches follow, in which a counter
    passes 2^8, and on a GPU 2^12; and the first one is repeated, whose blocks may have left marks. Raises LaunchFailed.
    """
    device = memory.device
    listed = edge_shapes(subject.domain)
    domain = subject.domain
    for shape in [domain.padded(Shape(side, side, 1)) for side in SIDES if not domain.square]:
        launches, _ = subject.launches_at(shape)
        crowd = any(math.prod(grid) * part.thread_count > RESIDENT for part, _, grid, _ in launches)
        if crowd and shape.m * shape.n * shape.k <= MOST_TERMS:
            listed.append(shape)
            break
    subject.relocate()
    several, tiny = (
        ExactProblem("E1", *exact.family("E1", shape, memory.rng, subject.claimed))
        for shape in (listed[-1], listed[0])
    )
    if (mistake := mistake_in(subject, memory, several)) is not None:
        return failed(STATE, f"in the first launch after loading, at {several.shape}: {mistake}")
    buffers = Buffers(memory, tiny.a, tiny.b)
    right = (tiny.a @ tiny.b).ravel()
    count = KEPT_LAUNCHES[0]
    if device.source == "emulated":
        count = KEPT_LAUNCHES[1]
    memory.lend(subject, tiny.shape)
    a, b, c = buffers.abc
    for number in range(2, count + 1):
        device.fill(c, float(memory.sentinel()))
        subject.enqueue(
            tiny.shape, 1.0, a, b, 0.0, c
        )  # not memory.launch, which writes to all of a GPU's registers
        if wrong := int((device.download(c) != right).sum()):
            where = f"in launch {number} after loading, at {tiny.shape}"
            return failed(STATE, f"{where}: {wrong} elements are wrong", wrong)
    if (mistake := mistake_in(subject, memory, several)) is not None:
        return failed(
            STATE, f"in launch {count + 1}, {count} after the last at {several.shape}: {mistake}"
        )
    said = f"keeps {', '.join(subject.variables(listed[-1]))} between launches"
    return passed(STATE, f"{said}: right in the first {count + 1} after loading", note=said)


def mistake_in(
    subject: Runnable,
    memory: Memory,
    problem: ExactProblem,
    shifts: Mapping[str, int] = MappingProxyType({}),
) -> ErrorMap | str | None:
    """What is wrong with the kernel's result, or None. shifts: as for Buffers."""
    coverage = getattr(memory.device, "coverage", {})
    for known in coverage.values():
        known.tell()
    result = Buffers(memory, problem.a, problem.b, shifts).run(
        subject, problem.alpha, problem.beta, problem.before
    )
    if result.trespass:
        return result.trespass
    right = problem.a.astype(np.float64) @ problem.b.astype(np.float64)
    expected = problem.result(right)
    if (result.c == expected).all():
        scalars = (problem.alpha, subject.domain.alpha), (problem.beta, subject.domain.beta)
        short = (
            exact.families(subject.claimed) == exact.FAMILIES[:1]
        )  # its operands are as long as the class has them
        shows = [
            problem.alpha != 0 and (short or np.abs(x).max() > exact.LONGER * scale)
            for x, scale in zip((problem.a, problem.b), problem.stretched, strict=True)
        ]
        for known in coverage.values():
            known.tell(
                all(abs(value) not in (0, 1) or not taken for value, taken in scalars), *shows
            )
        return None
    factors = (
        None if problem.alpha == 0 else (problem.alpha * problem.a.astype(np.float64), problem.b)
    )
    where = error_map(result.c, expected, result.sentinel, factors)
    notes: list[str] = []
    cause = apart(
        "the search for its cause",
        lambda: _cause(subject, memory, problem, shifts, result, right),
        "",
        notes,
    )
    return replace(where, guess=cause or " ".join(filter(None, (where.guess, *notes))))


def is_exact(
    subject: Runnable,
    memory: Memory,
    problem: ExactProblem,
    shifts: Mapping[str, int] = MappingProxyType({}),
) -> bool:
    """Return whether the kernel's result is right. Raises LaunchFailed.

    shifts: as for Buffers
    """
    result = Buffers(memory, problem.a, problem.b, shifts).run(
        subject, problem.alpha, problem.beta, problem.before
    )
    expected = problem.result(problem.a.astype(np.float64) @ problem.b.astype(np.float64))
    return not result.trespass and bool((result.c == expected).all())


def _cause(
    subject: Runnable,
    memory: Memory,
    problem: ExactProblem,
    shifts: Mapping[str, int],
    result: Result,
    right: Float64,
) -> str:
    """Return the usual mistake that gives exactly this wrong result, or "". Raises LaunchFailed.

    shifts: as for Buffers
    right: A B in float64
    """
    if mistake := problem.wrong_scalar(result.c, right) or _wrong_layout(problem, result.c):
        return f"This is the result if {mistake}."
    if names := subject.variables(problem.shape):
        subject.relocate()  # which sets them to their first values
        if is_exact(subject, memory, problem, shifts):
            kept = f"{' and '.join(names)} {'keeps its value' if len(names) == 1 else 'keep their values'}"
            return (
                f"Right in the first launch after loading, and wrong in a later launch: {kept} "
                "between launches. Set the first value again at the end of each launch."
            )
    # In other buffers, so that a late launch into the first ones isn't mistaken for this one.
    is_unwritten = problem.before is None and (result.c == result.sentinel).all()
    if is_unwritten and is_exact(subject, memory, replace(problem, before=0.0), shifts):
        return OLD_C_ADDED
    if problem.stretched != (1.0, 1.0) and is_exact(subject, memory, problem.around_1, shifts):
        return "Right for numbers around 1, wrong for large or small ones: parts in FP16? The class fp16 is exempt."
    return ""


def _wrong_layout(problem: ExactProblem, c: Float32) -> str:
    """Which matrices a kernel that gives this C takes as transposed, or whether it computes B A; "" for none."""
    a = problem.a.astype(np.float64)
    b = problem.b.astype(np.float64)
    old = np.broadcast_to(
        np.asarray(problem.before if problem.before is not None else 0.0, np.float64), c.shape
    )

    def other(matrix: Float64) -> Float64:
        """The same memory, read by columns."""
        return matrix.reshape(matrix.shape[::-1]).T

    for of_a, of_b, of_c in product((False, True), repeat=3):
        values = problem.alpha * ((other(a) if of_a else a) @ (other(b) if of_b else b))
        values += problem.beta * (other(old.copy()) if of_c else old)
        stored = values.T.reshape(c.shape) if of_c else values
        if not np.array_equal(c, stored.astype(np.float32)):
            continue
        if of_a and of_b and of_c:
            advice = "to pass row-major ones, exchange M and N in --args and --grid, and A and B in --args"
            return f"all matrices are column-major: {advice}"
        names = " and ".join(name for name, transposed in (("A", of_a), ("B", of_b)) if transposed)
        read = f"{names} {'are' if of_a and of_b else 'is'} read transposed" if names else ""
        return " and ".join(filter(None, (read, "C is written transposed" if of_c else "")))
    if a.shape == b.shape and np.array_equal(
        c, (problem.alpha * (b @ a) + problem.beta * old).astype(np.float32)
    ):
        return "it computes B A"
    return ""
