"""Stages on small shapes: exact integers, less aligned addresses, and a C that isn't read.

The shapes lie around warps and tiles. Squares of a power of two hide most mistakes: M and N
swapped, a wrong leading dimension, a K tail that is dropped, a bound that is off by one. So M, N
and K are all different. Others are drawn anew in each check, for paths that no list reaches: a fast
path for whole tiles, a pipeline with as many steps as stages, a separate update for alpha = -1 and
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
from worklog.gate import exact, integers
from worklog.gate.exact import OLD_C_ADDED, ExactProblem, error_map
from worklog.gate.guarded_buffer import Buffers, LaunchResult, Memory
from worklog.kernel import EXAMPLE_GRID, Kernel, Runnable
from worklog.problem import FLOAT_BYTES, Domain, Float32, Float64, Shape
from worklog.problem.epilogues import EPILOGUES, activated
from worklog.problem.formats import FLOAT32, ClaimedResult, Format, Types
from worklog.runs import ErrorMap, Stage, failed, passed

EDGE_SHAPES = "exact on edge shapes"
ALIGNMENT = "alignment"
OLD_C = "C of NaN, beta = 0"
UNREAD = "A and B of NaN, alpha = 0"
OLD_C_ROOM = 7  # bits by which C is shorter than sums, for a beta of up to 7 halves
# With an even C, all is exact.
HALVES = tuple(halves / 2 for halves in range(-7, 8) if halves not in (0, 2))
Scalars = tuple[float, float]  # alpha, beta
USUAL = 1.0, 0.0
ONES = (0.0, 1.0, -1.0)  # alpha and beta, all pairs
FEW_TERMS = 8
# Of a grid that depends on the shape, and of a grid that doesn't.
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
# K is drawn once from each of so many ranges of this length.
STEPS = 10
STRATUM = 32
PARTNER = 33  # M and N beside a long K are smaller
TILES = 16, 24, 32, 48, 64, 96, 128  # sides of whole tiles
MOST_TERMS = 2**21  # M N K of whole tiles
# Sides beyond what is small for many a library, and of nine large tiles.
ROWS = (257, 300)
# The largest M, N and K. The range is short: what a verdict states hardly depends on the seed.
LONG = (1100, 1200)
# The other side: at least four small tiles, because a single column of tiles has no order.
ACROSS = (49, 97)
# Sides for a kernel for squares only: a longer K would take the emulator minutes.
SQUARES = (80, 139, 139, 200, 260, 320)
# The largest side of the large problems on a GPU, and their number.
LARGE = 1500
LARGE_DRAWN = 2
RANGES = -(-(2 * exact.FARTHEST + 1) // exact.RANGE)
SPECIAL = 33, 47  # M or N, and the other: K is the first
# Special data: with scalars or not, and with changed elements or not.
VARIANTS = ((False, False), (True, False), (False, True))
CLOSE = 1e-5  # to a result with an activation
CHANGED = 3  # elements, at most
WHOLE = 48, 64, 32


def edge_shapes(domain: Domain) -> list[Shape]:
    """Return small shapes inside the domain, none with M = N.

    A kernel that takes only whole tiles larger than FINE gets one to five tiles per side in
    different mixes: wide and tall, and a single K step.
    """
    is_coarse = domain.m > FINE and domain.n > FINE
    sizes = _tile_mixes(domain) if is_coarse else _any_sizes(domain)
    shapes = dict.fromkeys(domain.padded(Shape(*size)) for size in sizes)
    return [shape for shape in shapes if domain.square or shape.m != shape.n]


def _tile_mixes(domain: Domain) -> Iterator[tuple[int, int, int]]:
    """Yield sizes of whole tiles."""
    wide = max(2, domain.m // domain.n + 1)
    tall = max(2, domain.n // domain.m + 1)
    mixes = ((1, wide, 3), (tall, 1, 1), (3, 2, 5), (2, 3, 2))
    for (m, n, k), free_k in zip(mixes, FREE_K, strict=True):
        terms = free_k if domain.k <= FINE else k * domain.k
        yield m * domain.m, n * domain.n, terms


def _any_sizes(domain: Domain) -> Iterator[list[int]]:
    """Yield ANY_SIZES, but one to three steps of the domain along an axis of large steps."""
    steps = (domain.m, domain.n, domain.k)
    for index, sizes in enumerate(ANY_SIZES):
        step_count = 1 + index % 3
        yield [
            size if step <= FINE else step * step_count
            for step, size in zip(steps, sizes, strict=True)
        ]


def require_blocks(kernel: Kernel) -> None:
    """Raise BadSetting for more blocks than there can be work for.

    A grid that depends on the shape may have as many blocks as there are products of elements.
    A grid that doesn't may have as many as run at once.
    """
    small = edge_shapes(kernel.domain)[-1]
    for part in kernel.at(small).passes:
        blocks = math.prod(part.blocks(small))
        limit = MOST_AT_ONCE
        meaning = "a GPU runs at once, at every shape"
        if re.search(r"\b[MNK]\b", part.grid):
            limit = MOST_BLOCKS + small.m * small.n * small.k
            meaning = "there are products of elements"
        if blocks > limit:
            grid = f"the grid {part.grid} has {blocks:,} blocks at {small}, more than {meaning}"
            raise BadSetting(f"{grid}: give the right one, such as --grid {EXAMPLE_GRID}")


def drawn_shapes(domain: Domain, rng: np.random.Generator, *, live: bool = False) -> list[Shape]:
    """Return random shapes in the domain.

    They have a few rows and columns with each number of steps along K, and with a long K; whole
    tiles along each side, each with its own size; many rows and columns; and they include a square,
    if the domain has a small one. The last two are long, one each way, with a short K: more tiles
    than a group of a swizzle or a table of blocks holds.

    live: whether to add a few large ones
    """
    if domain.square:
        sides = (*SQUARES, *[LARGE] * LARGE_DRAWN) if live else SQUARES
        return [domain.padded(Shape.of(int(rng.integers(1, side + 1)))) for side in sides]
    sizes = [*_thin_sizes(rng), *_tile_sizes(rng)]
    sizes.append((128, 256, 2 * int(rng.integers(10, 30)) + 1))  # whole tiles above an odd K
    short_k = domain.k if domain.k > 4 else domain.k * int(rng.integers(2, 6))
    sizes.append((*rng.integers(*ROWS, 2).tolist(), short_k))
    few_columns, few_rows = rng.integers(*ACROSS, 2).tolist()
    sizes += [(260, 8, 260), (8, 260, 260)]  # offsets in A and B beyond 16 bits
    side = replace(domain, square=True).padded(Shape.of(few_columns)).m
    if side < ROWS[0]:
        sizes.append((side, side, side))
    for _ in range(LARGE_DRAWN if live else 0):
        sizes.append(tuple(log_uniform(rng, 1, LARGE) for _ in range(3)))
    tall, wide = rng.integers(*LONG, 2).tolist()
    sizes += [(tall, few_columns, short_k), (few_rows, wide, short_k)]
    return [domain.padded(Shape(*size)) for size in sizes]


def log_uniform(rng: np.random.Generator, smallest: int, largest: int) -> int:
    """Return a random integer whose logarithm is uniform."""
    return int(np.exp(rng.uniform(np.log(smallest), np.log(largest + 1))))


def _thin_sizes(rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Return sizes of a few rows and columns with K of each length, and with a long K."""
    terms = [STRATUM * step + int(rng.integers(1, STRATUM + 1)) for step in range(STEPS)]
    terms.append(int(rng.integers(*LONG)))
    return [(*rng.integers(1, PARTNER, 2).tolist(), k) for k in terms]


def _tile_sizes(rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Return sizes of one to three whole tiles along each side."""
    sizes = list[tuple[int, ...]]()
    for side in (128, 96, int(rng.choice(TILES))):  # the first are whole tiles of most sizes
        n = int(rng.choice(TILES)) if side < 96 else side
        k = int(rng.choice((32, 64, 128)))
        most_tiles = max(1, MOST_TERMS // (side * n * k))
        tiles = rng.permutation([int(rng.integers(1, min(3, most_tiles) + 1)), 1, 1]).tolist()
        sizes.append((side * tiles[0], n * tiles[1], k * tiles[2]))
    return sizes


def check_edge_shapes(subject: Runnable, memory: Memory) -> Stage:
    """Run the kernel on every edge shape, and stop at the first mistake.

    Inputs alternate between the exact families, stretched by powers of two, and C starts with even
    integers if beta isn't 0, so nothing rounds: each element is compared with the FP64 product.
    Raises LaunchFailed.
    """
    problems = _Problems(subject, memory)
    launches = 0
    launched = set[Shape]()
    rare = rare_problems(subject.domain, subject.claim, memory.rng)
    for problem in chain(problems.ordinary(), rare):
        launches += 1
        launched.add(problem.shape)
        mistake = mistake_in(subject, memory, problem)
        if isinstance(mistake, ErrorMap) and problem.family in exact.FAMILIES:
            larger = problems.at_last_shape(problem)
            larger_map = mistake_in(subject, memory, larger)
            if isinstance(larger_map, ErrorMap) and larger.shape != problem.shape:
                # It shows more.
                return failure(EDGE_SHAPES, larger, larger_map, f" (and at {problem.shape})")
        if mistake is not None:
            return failure(EDGE_SHAPES, problem, mistake)
    counts = f"{len(launched)} shapes, {launches} launches"
    scalars = _scalars_in_words(subject.domain)
    return passed(EDGE_SHAPES, f"{counts} with {scalars}, no element wrong")


class _Problems:
    """The ordinary problems of one subject, with random inputs.

    names: of the exact families
    cases: shapes and scalars
    decks: of exponents, by family
    """

    def __init__(self, subject: Runnable, memory: Memory) -> None:
        self.rng = memory.rng
        self.claim = subject.claim
        self.names = exact.families(subject.claim)
        self.shapes = edge_shapes(subject.domain)
        is_live = memory.device.source == "live"
        self.cases = _cases(subject.domain, self.rng, subject.types, live=is_live)
        self.cases += [(self.shapes[0], USUAL)] * (len(self.names) * RANGES - len(self.cases))
        self.decks = {
            name: (exact.exponents(self.rng), exact.exponents(self.rng)) for name in self.names
        }

    def ordinary(self) -> Iterator[ExactProblem]:
        """Yield a problem for each case, of one family after the other."""
        for name, (shape, scalars) in zip(cycle(self.names), self.cases, strict=False):
            # Beyond its limit of terms, a family has zeros, but E1 has none.
            yield self._problem("E1" if shape.k >= LONG[0] else name, shape, scalars)

    def at_last_shape(self, problem: ExactProblem) -> ExactProblem:
        """Return a problem of the same family at the last shape, without powers of two."""
        scalars = (problem.alpha, problem.beta)
        return self._problem(problem.family, self.shapes[-1], scalars).around_1

    def _problem(self, name: str, shape: Shape, scalars: Scalars) -> ExactProblem:
        """Return a problem of one family."""
        headroom = 0 if scalars == USUAL else exact.HEADROOM
        a, b = exact.family(name, shape, self.rng, self.claim, headroom=headroom)
        scale_a, scale_b = exact.stretch(a, b, self.decks[name], self.claim)
        initial_c = None
        if scalars[1]:
            initial_c = old_c(shape, self.rng, self.claim) * np.float32(scale_a * scale_b)
        return ExactProblem(name, a, b, (scale_a, scale_b), *scalars, initial_c)


def _scalars_in_words(domain: Domain) -> str:
    """Return which scalars a kernel of this domain was launched with."""
    various = [name for name in ("alpha", "beta") if getattr(domain, name)]
    return f"various {' and '.join(various)}" if various else "alpha = 1, beta = 0"


def _cases(
    domain: Domain, rng: np.random.Generator, types: Types, *, live: bool
) -> list[tuple[Shape, Scalars]]:
    """Return the shapes of this module and random ones, with scalars that the kernel takes."""
    drawn = drawn_shapes(domain, rng, live=live)
    cases = list[tuple[Shape, Scalars]]()
    for index, shape in enumerate(edge_shapes(domain)):
        cases += [(shape, scalars) for scalars in _scalars(rng, index, domain, types)]
    for shape in drawn:
        alpha = float(rng.choice((1.0, -1.0, 2.0)))
        beta = float(rng.choice((1.0, -1.0)))
        cases.append((shape, _accepted(alpha, beta, domain)))
    return cases


def _scalars(
    rng: np.random.Generator, index: int, domain: Domain, types: Types
) -> tuple[Scalars, ...]:
    """Return pairs of alpha and beta for one shape, as far as the kernel takes them.

    They are the usual pair, alpha alone, beta alone or with the usual alpha, and both.
    """
    halves = types.scalars(HALVES)
    alpha, beta_alone, beta = (float(rng.choice(halves)) for _ in range(3))
    with_beta = ((0.0, beta_alone), (1.0, 1.0), (1.0, beta_alone))[index % 3]
    pairs: tuple[Scalars, ...] = (USUAL, (alpha, 0.0), with_beta, (alpha, beta))
    return tuple(dict.fromkeys(_accepted(*pair, domain) for pair in pairs))


def _accepted(alpha: float, beta: float, domain: Domain) -> Scalars:
    """Return alpha and beta, or 1 and 0 if the kernel doesn't take them."""
    return alpha if domain.alpha else 1.0, beta if domain.beta else 0.0


def old_c(shape: Shape, rng: np.random.Generator, claim: ClaimedResult) -> Float32:
    """Return a C that is read: even integers of 17 bits, or fewer if C has 16 bits.

    A shorter format doesn't hold half of them.
    """
    limit = 1 << exact.sum_bits(claim) - OLD_C_ROOM - 1
    return (2 * rng.integers(-limit, limit, (shape.m, shape.n))).astype(np.float32)


def small_old_c(subject: Runnable, shape: Shape, rng: np.random.Generator) -> Float32:
    """Return a C of small integers for beta = 1; zeros if the kernel takes no beta."""
    if not subject.domain.beta:
        return np.zeros((shape.m, shape.n), np.float32)
    limit = 1 << min(6, exact.sum_bits(subject.claim) - OLD_C_ROOM)
    return rng.integers(-limit, limit, (shape.m, shape.n)).astype(np.float32)


def rare_problems(
    domain: Domain, claim: ClaimedResult, rng: np.random.Generator
) -> Iterator[ExactProblem]:
    """Yield small problems with special data, scalars and contents of C."""
    yield from _structured_problems(domain, claim, rng)
    yield from _scalar_problems(domain, claim, rng)
    yield from _old_c_problems(domain, claim, rng)


def _structured_problems(
    domain: Domain, claim: ClaimedResult, rng: np.random.Generator
) -> Iterator[ExactProblem]:
    """Yield problems whose A or B has a structure, also with alpha and beta.

    Some have a structure but for a few elements anywhere. A matrix that may be the identity is
    square.
    """
    for kind, operand, (with_scalars, is_changed) in product(exact.STRUCTURES, range(2), VARIANTS):
        shape = domain.padded(Shape(*(SPECIAL if operand == 0 else SPECIAL[::-1]), SPECIAL[0]))
        matrices = exact.family("E1", shape, rng, claim, headroom=exact.HEADROOM)
        matrix = matrices[operand]
        drawn = matrix.copy()
        exact.structured(kind, matrix, rng)
        family = f"E1 with {'AB'[operand]} {kind}"
        if is_changed:
            places = rng.permutation(matrix.size)[: int(rng.integers(1, CHANGED + 1))]
            matrix.reshape(-1)[places] = -drawn.reshape(-1)[places]
            family += f" but for {len(places)} elements"
        alpha, beta = _scalars(rng, 0, domain, claim.types)[-1] if with_scalars else USUAL
        initial_c = old_c(shape, rng, claim) if beta else None
        yield ExactProblem(family, *matrices, (1.0, 1.0), alpha, beta, initial_c)


def _scalar_problems(
    domain: Domain, claim: ClaimedResult, rng: np.random.Generator
) -> Iterator[ExactProblem]:
    """Yield tiny shapes with all pairs of 0, 1 and -1 as alpha and beta.

    Also with an alpha of few bits, or nearly 1.
    """

    def integers(rows: int, columns: int, limit: int) -> Float32:
        return rng.integers(-limit, limit, (rows, columns)).astype(np.float32)

    shape = domain.padded(Shape(*rng.integers(1, 20, 3).tolist()))
    pairs = [pair for pair in product(ONES, ONES) if pair != USUAL]
    # A shorter class may round alpha A, and a shorter format rounds C.
    if claim.precision not in exact.OPERAND_BITS and claim.types.c == FLOAT32:
        pairs += [(alpha, 1.0) for alpha in claim.types.scalars(FEW_BITS)]
        pairs += [(alpha, 0.0) for alpha in claim.types.scalars([LARGE_ALPHA])]
    for alpha, beta in pairs:
        if (alpha == 1 or domain.alpha) and (beta == 0 or domain.beta):
            a = integers(shape.m, shape.k, 4)
            b = integers(shape.k, shape.n, 4)
            a[:, FEW_TERMS:] = 0
            initial_c = integers(shape.m, shape.n, 8) if beta else None
            yield ExactProblem("small integers", a, b, alpha=alpha, beta=beta, initial_c=initial_c)


def _old_c_problems(
    domain: Domain, claim: ClaimedResult, rng: np.random.Generator
) -> Iterator[ExactProblem]:
    """Yield problems with beta = 0 over a C of zeros, and over the result of another problem.

    The other problem differs in one row of A.
    """
    shape = domain.padded(Shape(*SPECIAL, 16))
    a, b = exact.family("E1", shape, rng, claim)
    yield ExactProblem("E1 over a C of zeros", a, b, initial_c=0.0)
    other_a = a.copy()
    # No row at an edge of a tile.
    other_a[8 * int(rng.integers(shape.m // 8)) + int(rng.integers(2, 6))] *= -1
    other_c = (other_a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    yield ExactProblem("E1 over the result of another problem", a, b, initial_c=other_c)


def failure(name: str, problem: ExactProblem, mistake: ErrorMap | str, places: str = "") -> Stage:
    """Return the failed stage of a problem.

    name: of the stage
    places: other shapes with the same mistake, in words
    """
    shape = problem.shape
    launch = f"at {shape.m} x {shape.n} x {shape.k}"
    launch += f" with alpha = {problem.alpha:g}, beta = {problem.beta:g}"
    for operand, scale in zip("AB", problem.stretched, strict=True):
        if scale != 1:
            launch += f", {operand} times {scale:.0e}"
    if problem.family not in exact.FAMILIES:
        launch += f", {problem.family}"
    if isinstance(mistake, str):
        return failed(name, f"{launch}: {mistake}")
    return failed(name, f"{launch}{places}: {mistake}", mistake.wrong, mistake)


def check_alignment(subject: Runnable, memory: Memory) -> Stage:
    """Launch with one matrix that begins 16 bytes behind an allocation's start.

    On the emulator also 4 bytes behind it. All as far as the domain takes that: with whole tiles,
    so that paths with vectors run. An access that is misaligned then is a note with the domain that
    it implies. Raises LaunchFailed for other errors.
    """
    domain = subject.domain
    needed = [*domain.bytes_of]  # alignment of each matrix
    shape = domain.padded(Shape(*WHOLE))
    is_emulated = memory.device.source == "emulated"
    for place, shift in product(range(3), (1, 2, 4) if is_emulated else (4,)):
        if 4 * shift % needed[place]:
            continue
        if shift == 2 and needed[place] < 8:  # in between, only to know how many bytes
            continue
        problem = ExactProblem("E1", *exact.family("E1", shape, memory.rng, subject.claim))
        name = "ABC"[place]
        launch = f"with {name} at {4 * shift} bytes behind an allocation's start"
        try:
            mistake = mistake_in(subject, memory, problem, {name: shift})
        except LaunchFailed as error:
            if "misaligned" not in error.kinds:
                raise
            if domain.bytes_of[place] != FLOAT_BYTES:
                in_domain = f"which {name} % {domain.bytes_of[place]} bytes allows"
                return failed(ALIGNMENT, f"{launch}, {in_domain}: {error}")
            needed[place] = 8 * shift
            continue
        if mistake is not None:
            return failed(ALIGNMENT, f"{launch}: {mistake}")
    stated = replace(domain, bytes_of=(needed[0], needed[1], needed[2]))
    if stated != domain:
        detail = f"misaligned accesses, so addresses have a domain: {stated}"
        aligned = [
            f"{name} % {needed[place]} bytes"
            for place, name in enumerate("ABC")
            if needed[place] != domain.bytes_of[place]
        ]
        note = (
            f"alignment is inferred: {' and '.join(aligned)}; state it, as in --domain '{stated}'"
        )
        return passed(ALIGNMENT, detail, note=note)
    shifts = "4 and 16" if is_emulated and 4 in needed else "16"
    return passed(ALIGNMENT, f"right with each matrix {shifts} bytes behind an allocation's start")


def check_old_c(subject: Runnable, memory: Memory) -> Stage:
    """Launch with beta = 0 over a C of NaN, which BLAS and the rungs don't read.

    Also with alpha = 0, for which a kernel may have a separate path. A kernel that computes with it
    is right for every finite C: it passes with a note, unless its domain has any data. Raises
    LaunchFailed.
    """
    domain = subject.domain
    shape = domain.padded(Shape(*SPECIAL, 16))
    a, b = exact.family("E1", shape, memory.rng, subject.claim)
    pairs = [(1.0, 0.0)]
    if domain.beta:
        pairs.append((1.0, -0.0))
    if domain.alpha:
        pairs += [(0.0, beta) for _, beta in pairs]
    read = [
        (alpha, beta)
        for alpha, beta in pairs
        if mistake_in(
            subject,
            memory,
            ExactProblem("E1", a, b, alpha=alpha, beta=beta, initial_c=math.nan),
        )
        is not None
    ]
    if not read:
        return passed(OLD_C, f"doesn't reach the result at {shape}")
    note = "C is read where beta is 0: NaN or infinity in it reaches the result"
    if not domain.beta:
        note = (
            "C is read, though the kernel takes no beta: NaN or infinity in it reaches the result"
        )
    elif all(alpha == 0 for alpha, _ in read):
        note = "C is read where alpha and beta are 0: NaN or infinity in it reaches the result"
    if domain.any_data:
        return failed(OLD_C, f"at {shape}: {note}")
    return passed(OLD_C, note, note=note)


def check_unread_inputs(subject: Runnable, memory: Memory) -> Stage:
    """Launch with alpha = 0 and NaN in A and B, which BLAS doesn't read.

    The verdict's line names a kernel that multiplies them by 0, as FP32 does and most kernels do.
    A kernel whose results are neither BLAS' nor FP32's fails. Raises LaunchFailed.
    """
    shape = subject.domain.padded(Shape(*SPECIAL, 16))
    a = np.full((shape.m, shape.k), np.nan, np.float32)
    b = np.full((shape.k, shape.n), np.nan, np.float32)
    is_read = False
    for beta in (0.0, 2.0) if subject.domain.beta else (0.0,):
        initial_c = old_c(shape, memory.rng, subject.claim)
        result = Buffers(memory, a, b).run(subject, 0.0, beta, initial_c)
        if result.trespass:
            return failed(UNREAD, f"at {shape} with beta = {beta:g}: {result.trespass}")
        is_nan = np.isnan(result.c)
        if subject.types.epilogue:  # it may make NaN 0
            is_nan |= result.c == 0
        wrong = ~is_nan & (result.c != beta * initial_c)
        if wrong.any():
            detail = f"{wrong.sum()} of {wrong.size} elements are neither beta C nor NaN"
            return failed(UNREAD, f"at {shape} with beta = {beta:g}: {detail}", float(wrong.sum()))
        if is_nan.any():
            is_read = True
    if not is_read:
        return passed(UNREAD, f"don't reach the result at {shape}")
    clause = "reads A and B where alpha is 0"
    return passed(UNREAD, f"{clause}, which BLAS doesn't: NaN reaches the result", clause=clause)


def mistake_in(
    subject: Runnable,
    memory: Memory,
    problem: ExactProblem,
    shifts: Mapping[str, int] = MappingProxyType({}),
) -> ErrorMap | str | None:
    """Return what is wrong with the kernel's result, or None. Raises LaunchFailed.

    shifts: as for Buffers
    """
    coverages = getattr(memory.device, "coverage", {})
    for coverage in coverages.values():
        coverage.tell()
    result = Buffers(memory, problem.a, problem.b, shifts).run(
        subject, problem.alpha, problem.beta, problem.initial_c
    )
    if result.trespass:
        return result.trespass
    product_ab = problem.a.astype(np.float64) @ problem.b.astype(np.float64)
    expected = subject.types.c.rounded(problem.result(product_ab))
    if (result.c == expected).all():
        detectable = detectable_errors(subject, problem)
        for coverage in coverages.values():
            coverage.tell(*detectable)
        return None
    factors = None
    if problem.alpha != 0:
        factors = (problem.alpha * problem.a.astype(np.float64), problem.b)
    wrong_map = error_map(result.c, expected, result.sentinel, factors)
    notes: list[str] = []
    cause = apart(
        "the search for its cause",
        lambda: _cause(
            subject, memory, problem, shifts=shifts, result=result, product_ab=product_ab
        ),
        "",
        notes,
    )
    return replace(wrong_map, guess=cause or " ".join(filter(None, (wrong_map.guess, *notes))))


def detectable_errors(subject: Runnable, problem: ExactProblem) -> tuple[bool, ...]:
    """Return whether a right result shows that scalars, A and B aren't wrong.

    It shows the scalars if none of those that the kernel takes is 0, 1 or -1. It shows an operand
    if it has elements that a shorter format doesn't hold.
    """
    shows_scalars = True
    for scalar, is_taken in (
        (problem.alpha, subject.domain.alpha),
        (problem.beta, subject.domain.beta),
    ):
        if is_taken and abs(scalar) in (0, 1):
            shows_scalars = False
    if problem.alpha == 0:
        return shows_scalars, False, False
    if exact.families(subject.claim) == exact.FAMILIES[:1]:
        return shows_scalars, True, True  # operands are as long as the class has them
    types = subject.types
    return (
        shows_scalars,
        _is_long(problem.a, types.a, problem.stretched[0]),
        _is_long(problem.b, types.b, problem.stretched[1]),
    )


def _is_long(matrix: Float32, format_: Format, scale: float) -> bool:
    """Return whether some element of an operand loses bits in a shorter format."""
    shorter = 2.0 ** (exact.long_bits(format_) - 1)
    return bool(np.abs(matrix).max() > shorter * scale)


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
        subject, problem.alpha, problem.beta, problem.initial_c
    )
    product_ab = problem.a.astype(np.float64) @ problem.b.astype(np.float64)
    expected = subject.types.c.rounded(problem.result(product_ab))
    return not result.trespass and bool((result.c == expected).all())


def _cause(
    subject: Runnable,
    memory: Memory,
    problem: ExactProblem,
    *,
    shifts: Mapping[str, int],
    result: LaunchResult,
    product_ab: Float64,
) -> str:
    """Return the usual mistake that gives exactly this wrong result, or "". Raises LaunchFailed.

    shifts: as for Buffers
    product_ab: A B in float64
    """
    if mistake := problem.wrong_scalar(result.c, product_ab) or _wrong_layout(problem, result.c):
        turned = [name for name in "AB" if re.search(rf"\b{name}\b.* read transposed", mistake)]
        advice = f" If that is meant, state it: --by-columns {','.join(turned)}." if turned else ""
        return f"This is the result if {mistake}.{advice}"
    for epilogue in () if subject.types.epilogue else EPILOGUES:
        activated_result = activated(epilogue, problem.result(product_ab).astype(np.float64))
        if np.allclose(result.c, activated_result, rtol=CLOSE, atol=CLOSE):
            option = epilogue.replace(" ", "_")
            return f"This is the result with {epilogue}. If that is meant: --epilogue {option}."
    if subject.types.has_integers and np.isfinite(result.c).all():
        factors = integers.Factors.of_matrices(problem.a, problem.b, problem.initial_c)
        factors = replace(factors, alpha=int(problem.alpha), beta=int(problem.beta))
        mistake = integers.mistake(np.rint(result.c).astype(np.int64), factors, subject.types.a)
        if mistake:
            return f"This is the result if {mistake}."
    if names := subject.variables(problem.shape):
        subject.relocate()  # which sets them to their first values
        if is_exact(subject, memory, problem, shifts):
            clause = (
                f"{' and '.join(names)} "
                f"{'keeps its value' if len(names) == 1 else 'keep their values'}"
            )
            return (
                f"Right in the first launch after loading, and wrong in a later launch: {clause} "
                "between launches. Set the first value again at the end of each launch."
            )
    # In other buffers, so that a late launch into the first buffers isn't mistaken for this launch.
    is_unwritten = problem.initial_c is None and (result.c == result.sentinel).all()
    if is_unwritten and is_exact(subject, memory, replace(problem, initial_c=0.0), shifts):
        return OLD_C_ADDED
    if problem.stretched != (1.0, 1.0) and is_exact(subject, memory, problem.around_1, shifts):
        return (
            "Right for numbers around 1, wrong for large or small ones: parts in FP16? The "
            "class fp16 is exempt."
        )
    return ""


def _wrong_layout(problem: ExactProblem, c: Float32) -> str:
    """Return which matrices a kernel takes as transposed, or that it computes B A, by its C.

    "" if none of these gives this C.
    """
    a = problem.a.astype(np.float64)
    b = problem.b.astype(np.float64)
    initial_c = 0.0 if problem.initial_c is None else problem.initial_c
    old = np.broadcast_to(np.asarray(initial_c, np.float64), c.shape)

    def by_columns(matrix: Float64) -> Float64:
        """Return the same memory, read by columns."""
        return matrix.reshape(matrix.shape[::-1]).T

    for turns_a, turns_b, turns_c in product((False, True), repeat=3):
        left = by_columns(a) if turns_a else a
        right = by_columns(b) if turns_b else b
        values = problem.alpha * (left @ right)
        values += problem.beta * (by_columns(old.copy()) if turns_c else old)
        stored = values.T.reshape(c.shape) if turns_c else values
        if np.array_equal(c, stored.astype(np.float32)):
            return _layout_in_words(turns_a, turns_b, turns_c)
    if a.shape == b.shape:
        exchanged = problem.alpha * (b @ a) + problem.beta * old
        if np.array_equal(c, exchanged.astype(np.float32)):
            return "it computes B A"
    return ""


def _layout_in_words(turns_a: bool, turns_b: bool, turns_c: bool) -> str:
    """Return which matrices are transposed, in words; "" for none."""
    if turns_a and turns_b and turns_c:
        advice = (
            "to pass row-major ones, exchange M and N in --args and --grid, and A and B in --args"
        )
        return f"all matrices are column-major: {advice}"
    clauses = list[str]()
    if turns_a and turns_b:
        clauses.append("A and B are read transposed")
    elif turns_a or turns_b:
        clauses.append(f"{'A' if turns_a else 'B'} is read transposed")
    if turns_c:
        clauses.append("C is written transposed")
    return " and ".join(clauses)
