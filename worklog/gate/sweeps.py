"""Launches at the ends of what a verdict states: the corners of the box, and each size of an axis.

A table by M / 64, a product that overflows and scratch memory of a fixed size are right on a sample
of shapes. So one axis at its least and the others at their most are launched, and each value of an
axis beside tiny ones of the others. An order of tiles can be wrong in a part of the grids that have
several rows and columns of tiles, and neither shows it: so pairs of M and N are drawn, too. What
depends on two sizes at once at few shapes is left to the search.

Where C is large and K at its least, matrices also have NaN and lie behind aligned addresses: other
stages launch those at small shapes.

Sweeps end by their effort, counted as the search counts its own, and never by a clock: so a seed
repeats a verdict on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from worklog.errors import LaunchFailed
from worklog.gate import exact
from worklog.gate.edges import (
    HALVES,
    SPECIAL,
    Scalars,
    detectable_errors,
    failure,
    log_uniform,
    mistake_in,
    old_c,
)
from worklog.gate.exact import ExactProblem
from worklog.gate.guarded_buffer import Buffers, Memory
from worklog.kernel import Loaded, Runnable
from worklog.problem import FLOAT_BYTES, Domain, Float32, Float64, Shape
from worklog.runs import Stage, failed, passed

CORNERS = "corners"
EACH_SIZE = "each size"
AXES = "MNK"
TINY = Shape(5, 5, 2)  # the other sizes of a sweep
BUDGETS = 16  # at a corner a thread may compute a row of all columns, with the longest K
# The effort of all sweeps, and the part of it that one launch takes in Python, in instructions of
# warps.
EFFORT = 1.5e8
LAUNCHED = 1.2e4
# The largest size that is tried for a second block, beside which each K is launched.
LARGEST_TILE = 512
WHOLE_VECTOR = 16  # bytes
SHARE_BESIDE = 0.5  # of the instructions that are left, where their number is limited
PAIRS = 18  # of M and N
PAIR_TERMS = 16  # the largest K beside a pair
PAIR_ELEMENTS = 2**21  # of C, at most
WHOLE_TILE = 128  # a multiple of the sides of most tiles


def corners(domain: Domain, largest: tuple[int, int, int]) -> list[Shape]:
    """Return the shapes with one size at its least and the others at their most."""
    if domain.square:
        return []
    smallest = domain.padded(Shape.of(1)).sizes
    shapes = list[Shape]()
    for axis in range(3):
        sizes = [*largest]
        sizes[axis] = smallest[axis]
        shapes.append(Shape(*sizes))
    return shapes


def check_corners(
    subject: Runnable, memory: Memory, launch_corner: Callable[[Shape], Stage | None]
) -> Stage:
    """Launch at the corners of the sizes that were launched. Raises LaunchFailed.

    launch_corner: launches at a shape, and returns the failed stage; None if the result is right
    """
    assert memory.largest is not None
    shapes = corners(subject.domain, memory.largest)
    with _larger_budget(memory.device):
        for shape in shapes:
            if shape in memory.shapes:
                continue
            wrong = launch_corner(shape)
            if wrong is not None:
                return wrong
    places = ", ".join(map(str, shapes)) or "no other shape"
    return passed(CORNERS, f"at {places}, no element wrong")


@contextmanager
def _larger_budget(device: Any) -> Iterator[None]:
    """Allow a warp on the emulator BUDGETS times the instructions."""
    budget = getattr(device, "budget", None)
    if budget is not None:
        device.budget = BUDGETS * budget
    try:
        yield
    finally:
        if budget is not None:
            device.budget = budget


def corner_failure(subject: Runnable, memory: Memory, shape: Shape) -> Stage | None:
    """Return the failed stage of exact integers at a shape, if any. Raises LaunchFailed."""
    alpha, beta = _scalars(subject, memory.rng)
    a, b = exact.family("E1", shape, memory.rng, subject.claim, headroom=exact.HEADROOM)
    initial_c = old_c(shape, memory.rng, subject.claim) if beta else None
    problem = ExactProblem("E1", a, b, alpha=alpha, beta=beta, initial_c=initial_c)
    mistake = mistake_in(subject, memory, problem)
    return None if mistake is None else failure(CORNERS, problem, mistake)


@dataclass(frozen=True)
class _Corner:
    """What matrices of a launch with beta = 0 have.

    description: for messages
    """

    description: str
    has_nan: bool = False  # in a row of A and a column of B
    has_nan_in_c: bool = False
    is_shifted: bool = False  # by as little as the domain allows, on a GPU by a vector at least


EACH_CORNER = (
    _Corner("with NaN in a row of A and a column of B", has_nan=True),
    _Corner("with beta = 0 and a C of NaN", has_nan_in_c=True),
    _Corner("with each matrix behind an aligned address", is_shifted=True),
)


def special_corner_failure(
    subject: Runnable, memory: Memory, shape: Shape, *, with_nan: bool
) -> Stage | None:
    """Return the failed stage of a launch with NaN and shifted matrices, if any.

    What is wrong at a small shape, too, was judged by another stage: C may be read where beta is 0,
    and vectors need aligned addresses.

    with_nan: also in A and B; not where NaN reaches other rows, as with Strassen's algorithm
    Raises LaunchFailed.
    """
    together = _Corner("", has_nan=with_nan, has_nan_in_c=True, is_shifted=True)
    if not _mistake_with(subject, memory, shape, together):
        return None
    stage = corner_failure(subject, memory, shape)
    if stage is not None:
        return stage
    small = subject.domain.padded(Shape(*SPECIAL, shape.k))
    for special in EACH_CORNER:
        if special.has_nan and not with_nan:
            continue
        mistake = _mistake_with(subject, memory, shape, special)
        if mistake and not _mistake_with(subject, memory, small, special):
            return failed(
                CORNERS, f"at {shape} {special.description}, though not at {small}: {mistake}"
            )
    return None


def _mistake_with(subject: Runnable, memory: Memory, shape: Shape, special: _Corner) -> str:
    """Return what is wrong in a launch, or "". Raises LaunchFailed."""
    rng = memory.rng
    a, b = exact.family("E1", shape, rng, subject.claim, headroom=exact.HEADROOM)
    expected = _product(a, b).astype(np.float32)
    if special.has_nan:
        row = int(rng.integers(shape.m))
        column = int(rng.integers(shape.n))
        a[row] = np.nan
        b[:, column] = np.nan
        expected[row] = np.nan
        expected[:, column] = np.nan
    shifts = dict[str, int]()
    if special.is_shifted:
        # After a misaligned access, a GPU takes no more launches of this process.
        least_bytes = WHOLE_VECTOR if memory.device.source == "live" else FLOAT_BYTES
        for name, alignment in zip("ABC", subject.domain.bytes_of, strict=True):
            shifts[name] = max(least_bytes, alignment) // FLOAT_BYTES
    initial_c = subject.types.c.poison if special.has_nan_in_c else None
    for coverage in getattr(memory.device, "coverage", {}).values():
        coverage.tell()
    try:
        result = Buffers(memory, a, b, shifts).run(subject, initial_c=initial_c)
    except LaunchFailed as error:
        if shifts and "misaligned" in error.kinds:
            return str(error)
        raise
    if result.trespass:
        return result.trespass
    is_equal = (result.c == expected) | (np.isnan(result.c) & np.isnan(expected))
    wrong_count = int((~is_equal).sum())
    return f"{wrong_count} of {is_equal.size} elements are wrong" if wrong_count else ""


def check_each_size(subject: Runnable, memory: Memory) -> Stage:
    """Launch each size of each axis that the verdict states, and pairs of sizes.

    The largest size of an axis comes first, and predicts what the others take, which have a random
    order. Of the pairs, the smallest comes first. What is predicted to be cheapest is launched
    first. Sizes are left out when the effort is spent. Raises LaunchFailed.
    """
    effort = _Effort(memory.device)
    sweeps = list[_Sweep]()
    for axis in _axes(subject.domain):
        sweeps.append(_Sweep(subject, memory, _along(subject, memory, AXES.index(axis))))
    kinds = "with each size"
    if not subject.domain.square:
        sweeps.append(_Sweep(subject, memory, _pairs(subject.domain, memory)))
        kinds += " of one axis and with pairs"
    predictions = list[float]()
    for sweep in sweeps:
        spent_before = effort.spent()
        wrong = sweep.failure(sweep.shapes[0])
        if wrong is not None:
            return wrong
        predictions.append((effort.spent() - spent_before) * len(sweep.shapes))
    order = np.argsort(predictions).tolist()
    for number, index in enumerate(order):
        share = (effort.limit - effort.spent()) / (len(order) - number)
        wrong = _first_failure(sweeps[index], effort, effort.spent() + share)
        if wrong is not None:
            return wrong
    launches = sum(sweep.launches for sweep in sweeps)
    detail = f"{launches:,} launches {kinds}, no element wrong"
    left_out = sum(len(sweep.shapes) for sweep in sweeps) - launches
    if left_out:
        detail += f"; {left_out:,} sizes were left out: they take too many instructions"
    return passed(EACH_SIZE, detail)


def _first_failure(sweep: _Sweep, effort: _Effort, limit: float) -> Stage | None:
    """Launch the sizes of a sweep, from the second on, until one fails or the limit is reached."""
    for shape in sweep.shapes[1:]:
        if effort.spent() > limit:
            break
        effort.launches += 1
        wrong = sweep.failure(shape)
        if wrong is not None:
            return wrong
    return None


class _Effort:
    """Counts what sweeps take, in instructions of warps.

    limit: what they may take
    launches: their number so far
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self.launches = 0
        self.limit = EFFORT
        self._instructions_before = getattr(device, "instructions", 0)
        most_instructions = getattr(device, "most_instructions", math.inf)
        if math.isfinite(most_instructions):
            left = max(0.0, most_instructions - self._instructions_before)
            self.limit = min(EFFORT, SHARE_BESIDE * left)

    def spent(self) -> float:
        """Return the effort so far."""
        counted = getattr(self.device, "instructions", 0) - self._instructions_before
        return float(counted + LAUNCHED * self.launches)


def _axes(domain: Domain) -> str:
    """Return the axes whose sizes vary by themselves."""
    return AXES[0] if domain.square else AXES


def _along(subject: Runnable, memory: Memory, axis: int) -> list[Shape]:
    """Return the shapes along an axis: the largest, and the others in a random order."""
    domain = subject.domain
    assert memory.largest is not None
    largest = memory.largest[axis]
    step = domain.padded(Shape.of(1)).sizes[axis]
    smaller = np.arange(step, largest, step)
    values = [largest, *memory.rng.permutation(smaller).tolist()]
    if domain.square:
        return [Shape.of(value) for value in values]
    neighbours = [TINY]
    if AXES[axis] == "K":
        neighbours = [_second_block(subject, place) for place in (0, 1)]
    shapes = list[Shape]()
    for number, value in enumerate(values):
        sizes = [*neighbours[number % len(neighbours)].sizes]
        sizes[axis] = value
        shapes.append(domain.padded(Shape(*sizes)))
    return shapes


def _pairs(domain: Domain, memory: Memory) -> list[Shape]:
    """Return shapes with random M and N up to the largest ones, and a short K.

    M and N are spread evenly in a third of the shapes, and their logarithms in another one. The
    others are whole tiles, which many kernels compute on a path of their own. The smallest C comes
    first: a large one may take the effort of all sizes, if a warp computes one element.
    """
    rng = memory.rng
    assert memory.largest is not None
    *largest, longest = memory.largest
    draws = (_uniform, log_uniform, _whole_tiles)
    shapes = list[Shape]()
    for number in range(PAIRS):
        draw = draws[number % 3]
        first = number // 3 % 2  # M or N: the other one is limited, where C would be too large
        sizes = [0, 0, log_uniform(rng, 1, min(longest, PAIR_TERMS))]
        sizes[first] = draw(rng, 1, min(largest[first], PAIR_ELEMENTS))
        size_limit = PAIR_ELEMENTS // sizes[first]
        sizes[1 - first] = draw(rng, 1, min(largest[1 - first], size_limit))
        shapes.append(domain.padded(Shape(*sizes)))
    return sorted(shapes, key=lambda shape: shape.m * shape.n)


def _uniform(rng: np.random.Generator, smallest: int, largest: int) -> int:
    """Return a random integer."""
    return int(rng.integers(smallest, largest, endpoint=True))


def _whole_tiles(rng: np.random.Generator, smallest: int, largest: int) -> int:
    """Return a random multiple of WHOLE_TILE, or the largest size if that is less."""
    tiles = _uniform(rng, smallest, max(smallest, largest // WHOLE_TILE))
    return min(tiles * WHOLE_TILE, largest)


class _Sweep:
    """The launches along one axis, or of pairs.

    shapes: in the order in which they are launched
    launches: their number so far
    """

    def __init__(self, subject: Runnable, memory: Memory, shapes: list[Shape]) -> None:
        self.subject = subject
        self.memory = memory
        self.launches = 0
        self.shapes = shapes
        largest = Shape(*np.max([shape.sizes for shape in self.shapes], axis=0).tolist())
        self.a, self.b = exact.family(
            "E1", largest, memory.rng, subject.claim, headroom=exact.HEADROOM
        )
        self.old_c = old_c(largest, memory.rng, subject.claim)
        self.product = _product(self.a, self.b)
        self.buffers = Buffers(memory, self.a, self.b)
        self.coverages = getattr(memory.device, "coverage", {})

    def failure(self, shape: Shape) -> Stage | None:
        """Launch at a shape, and return the failed stage. Raises LaunchFailed."""
        self.launches += 1
        problem = self._problem(shape)
        c, outside = self._launched(problem)
        expected = problem.result(self._product_of(problem))
        wrong_count = int((c != expected.ravel()).sum())
        if not wrong_count and not outside:
            for coverage in self.coverages.values():
                coverage.tell(*detectable_errors(self.subject, problem))
            return None
        mistake = mistake_in(self.subject, self.memory, problem)  # in memory of its own
        if mistake is None:
            mistake = outside or f"{wrong_count} elements are wrong"
        return failure(EACH_SIZE, problem, mistake)

    def _problem(self, shape: Shape) -> ExactProblem:
        """Return a problem with the first elements of the axis's matrices."""
        a = np.ascontiguousarray(self.a[: shape.m, : shape.k])
        b = np.ascontiguousarray(self.b[: shape.k, : shape.n])
        alpha, beta = _scalars(self.subject, self.memory.rng)
        initial_c = np.ascontiguousarray(self.old_c[: shape.m, : shape.n]) if beta else None
        return ExactProblem("E1", a, b, alpha=alpha, beta=beta, initial_c=initial_c)

    def _product_of(self, problem: ExactProblem) -> Float64:
        """Return A B: a part of the product of the axis's matrices if K is the same."""
        m, n, k = problem.shape.sizes
        if k == self.a.shape[1]:
            return self.product[:m, :n]
        return _product(problem.a, problem.b)

    def _launched(self, problem: ExactProblem) -> tuple[Float32, str]:
        """Return C of a launch, and what was written outside it, in words."""
        memory = self.memory
        device = memory.device
        for coverage in self.coverages.values():
            coverage.tell()
        self.buffers.poison()
        a, b, c = self.buffers.part(problem.shape)
        for buffer, host in zip((a, b), memory.types.laid_out(problem.a, problem.b), strict=True):
            device.overwrite(buffer, host)
        if problem.initial_c is not None:
            assert not isinstance(problem.initial_c, float)
            device.overwrite(c, problem.initial_c)
        memory.launch(self.subject, problem.shape, problem.alpha, a, b, problem.beta, c)
        written: Float32 = device.download(c)
        outside = ""
        if device.source == "live":  # the emulator reports an access out of bounds itself
            m, n, _ = problem.shape.sizes
            outside = self.buffers.wrote_outside(memory.types.c.nbytes(m * n))
        return written, outside


def _second_block(subject: Runnable, axis: int) -> Shape:
    """Return the least shape with a second block along M or N; a tiny one if that isn't known.

    A mistake that hangs on K can be in odd rows or columns of blocks only.
    """
    if not isinstance(subject, Loaded) or subject.kernel.follows_shape:
        return TINY
    fewest: int | None = None
    step = subject.domain.padded(Shape.of(1)).sizes[axis]
    for size in range(step, LARGEST_TILE + step + 1, step):
        sizes = [*TINY.sizes]
        sizes[axis] = size
        shape = subject.domain.padded(Shape(*sizes))
        blocks = sum(math.prod(part.blocks_at(*shape.sizes)) for part in subject.kernel.passes)
        if fewest is None:
            fewest = blocks
        if blocks > fewest:
            return shape
    return TINY


def _product(a: Float32, b: Float32) -> Float64:
    """Return A B of integers whose sums are exact in float32 (exact.family)."""
    product: Float64 = (a @ b).astype(np.float64)
    return product


def _scalars(subject: Runnable, rng: np.random.Generator) -> Scalars:
    """Return a random alpha and, in half of the launches, a beta that isn't 0."""
    domain = subject.domain
    halves = subject.types.scalars(HALVES)
    alpha = halves[rng.integers(len(halves))] if domain.alpha else 1.0
    beta = halves[rng.integers(len(halves))] if domain.beta and rng.integers(2) else 0.0
    return alpha, beta
