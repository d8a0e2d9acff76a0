"""Launches for the values that two sizes decide at once, such as a factor M * N / 630000.

Each size by itself beside tiny ones (worklog.gate.sweeps) doesn't reach them, and no branch shows
them. But they are computed before a launch (worklog.emulator.sizes): so many shapes are drawn in
the box of the verdict, and a shape is launched for each value that no launch had. If the effort
ends before the values, half of the launches are the cheapest ones, and half are spread at random.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from worklog.emulator.coverage import UNKNOWN_FLOAT
from worklog.emulator.reports import TooLarge
from worklog.gate import exact
from worklog.gate.edges import HALVES, failure, mistake_in, old_c
from worklog.gate.exact import ExactProblem
from worklog.gate.guarded_buffer import Memory
from worklog.gate.search import (
    BLOCKS,
    FEW_SHAPES,
    LAUNCHED,
    MOST_INT,
    PER_WORK,
    PLACES,
    SIZES,
    THREADS,
    Rows,
    Search,
)
from worklog.gate.words import Values
from worklog.kernel.emulated import EmulatedDevice
from worklog.problem import Shape
from worklog.runs import NeverRan, Stage, passed

SIZE_VALUES = "values of sizes"
TINY = (5, 5, 2)  # the sizes that no value depends on
SHORT = 0.3  # share of the sizes that are tiny, though a value depends on them
FIRST = 0.5  # share of the rows with the first block and the first thread
PLACES_OF_SHAPE = 4  # blocks and threads of each shape that was launched
# The effort of the launches, in instructions of warps, and the rows that are drawn.
EFFORT = 4e7
QUICK_EFFORT = 6e6
DRAWN = 2**18
QUICK_DRAWN = 2**15
NEAR = 0.25  # share of the rows whose sum or product of two sizes is near a number of the code
# The share of the effort that one launch may take, until values of less work have been launched.
FIRST_SHARE = 0.1
USUAL_SCALARS = {"alpha": 2.0, "beta": -2.0}
Sizes = tuple[int, int, int]


@dataclass(eq=False)
class _Unseen:
    """The values of one kernel in the rows that were drawn.

    search: the kernel's
    rows: M, N and K of each row, (3, rows)
    work: of each row
    values, is_computed: as Coverage.sized returns them
    launched: of each value, the bits that a launch had
    """

    search: Search
    rows: Values
    work: Values
    values: Values
    is_computed: Values
    launched: list[set[int]]
    drawn: list[set[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for values, is_computed in zip(self.values, self.is_computed, strict=True):
            self.drawn.append(set(values[is_computed].tolist()))

    def is_new(self, number: int, row: int) -> bool:
        """Return whether no launch had a row's value of this number."""
        return int(self.values[number, row]) not in self.launched[number]

    def see(self, sizes: Sizes) -> None:
        """Note the values of a shape that was launched."""
        rows = np.flatnonzero(np.all(self.rows == np.array(sizes)[:, None], axis=0))
        for number, values in enumerate(self.values):
            computed = rows[self.is_computed[number, rows]]
            self.launched[number] |= set(values[computed].tolist())

    def queues(self, rng: np.random.Generator) -> list[list[tuple[int, int]]]:
        """Return the number and the cheapest row of each value that was drawn.

        A queue for each value: the cheapest one, a random one, and so on.
        """
        order = np.argsort(self.work, kind="stable")
        queues = list[list[tuple[int, int]]]()
        for number, values in enumerate(self.values):
            computed = order[self.is_computed[number, order] & np.isfinite(self.work[order])]
            _, first = np.unique(values[computed], return_index=True)
            rows = computed[np.sort(first)].tolist()
            queues.append([(number, row) for row in _interleaved(rows, rng)])
        return queues


def _interleaved(rows: list[int], rng: np.random.Generator) -> Iterator[int]:
    """Yield the rows, each once: the first one that is left, a random one, and so on."""
    yielded = set[int]()
    for pair in zip(rows, rng.permutation(rows).tolist(), strict=True):
        for row in pair:
            if row not in yielded:
                yielded.add(row)
                yield row


def check_size_values(
    subject: Any, memory: Memory, *, quick: bool
) -> tuple[Stage | None, tuple[NeverRan, ...]]:
    """Launch the values that sizes decide and that no launch had.

    Return the stage, and the values that weren't launched; None if the kernel has no such values.

    subject: a worklog.kernel.device.Loaded
    quick: whether to launch fewer
    Raises LaunchFailed.
    """
    device = memory.device
    assert isinstance(device, EmulatedDevice)
    assert memory.largest is not None
    stated_shapes = set(memory.shapes)
    drawn_rows = QUICK_DRAWN if quick else DRAWN
    kernels = list[_Unseen]()
    for (key, _), coverage in device.coverage.items():
        if key in subject.programs and coverage.size_values:
            search = Search(subject, key, coverage, memory.rng)
            kernels.append(_draw(search, memory.largest, stated_shapes, drawn_rows))
    if not kernels:
        return None, ()
    effort = QUICK_EFFORT if quick else EFFORT
    launches = _ValueLaunches(subject, memory, kernels, effort)
    wrong = launches.failure()
    # The verdict states the sizes that were launched for them, not for what two sizes decide.
    memory.shapes = stated_shapes
    if wrong is not None:
        return wrong, ()
    drawn = 0
    for kernel in kernels:
        drawn += sum(map(len, kernel.drawn))
    detail = f"{launches.count:,} launches for {drawn:,} values, no element wrong"
    return passed(SIZE_VALUES, detail), _untried(kernels)


def _untried(kernels: list[_Unseen]) -> tuple[NeverRan, ...]:
    """Return the values that no launch had, with the lines that use them.

    The entries of a table are named as such (worklog.gate.tables).
    """
    parts = list[NeverRan]()
    for kernel in kernels:
        coverage = kernel.search.coverage
        tables = {table.variable.name for table in coverage.tables}
        for number, value in enumerate(coverage.size_values):
            drawn = kernel.drawn[number]
            left_out = drawn - kernel.launched[number]
            line = coverage.kernel.instructions[value.readers[0]].line
            if not left_out or (value.arrays and value.arrays <= tables):
                continue
            names = " and ".join(name for name in SIZES if name in value.inputs) or "the grid"
            counts = f"{len(left_out):,} of {len(drawn):,}"
            text = f"no launch had {counts} values that {names} decide"
            part = NeverRan(line, line, file=kernel.search.file, untried=text)
            if part not in parts:
                parts.append(part)
    return tuple(parts)


def _draw(search: Search, largest: Sizes, launched: set[Shape], count: int) -> _Unseen:
    """Draw rows of a kernel, and note the values in the shapes that were launched."""
    shapes = np.array([(shape.m, shape.n, shape.k) for shape in launched], np.int64).T
    axes = _axes(search)
    sizes = _random_sizes(search, largest, axes, count)
    if not search.subject.passes:
        shapes = shapes[:, search.rng.permutation(shapes.shape[1])[:FEW_SHAPES]]
        chosen = search.rng.integers(0, min(FEW_SHAPES, count), count)
        sizes = sizes[:, chosen]
    stated = _evaluated(search, np.repeat(shapes, PLACES_OF_SHAPE, axis=1))
    drawn = _evaluated(search, sizes)
    drawn.launched = [
        set(values[is_computed].tolist())
        for values, is_computed in zip(stated.values, stated.is_computed, strict=True)
    ]
    return drawn


def _axes(search: Search) -> list[int]:
    """Return the axes that some value depends on. A grid may depend on each of them."""
    if search.domain.square:
        return [0]
    names = set[str]()
    for value in search.coverage.size_values:
        names |= value.inputs
    if not names <= set(SIZES):
        return [0, 1, 2]
    return [axis for axis, name in enumerate(SIZES) if name in names]


def _random_sizes(search: Search, largest: Sizes, axes: list[int], count: int) -> Values:
    """Return random M, N and K up to the largest ones, (3, count)."""
    rng = search.rng
    sizes = np.tile(np.array(TINY, np.int64)[:, None], count)
    for axis in axes:
        uniform = rng.integers(1, largest[axis] + 1, count)
        small = np.exp(rng.uniform(0, np.log(largest[axis] + 1), count)).astype(np.int64)
        mixed = np.where(rng.random(count) < 0.5, uniform, small)
        is_short = rng.random(count) < SHORT
        sizes[axis] = np.where(is_short, sizes[axis], mixed)
    if len(axes) > 1:
        _move_near_numbers(search, sizes, axes)
    step = np.array([*search.steps.values()])[:, None]
    steps = np.maximum(np.array(largest)[:, None] // step, 1)  # of the largest sizes
    return np.asarray(np.clip(-(-sizes // step), 1, steps) * step)


def _move_near_numbers(search: Search, sizes: Values, axes: list[int]) -> None:
    """Change a size in some columns so that its sum or product with another is near a number.

    The number is one of the code, or a small multiple of it.
    """
    rng = search.rng
    columns = np.flatnonzero(rng.random(sizes.shape[1]) < NEAR)
    numbers = np.array([1, *(number for number in search.coverage.constants if number >= 1)])
    targets = rng.choice(numbers, len(columns)) * rng.choice((1, 1, 2, 3), len(columns))
    for axis in axes:
        is_changed = rng.integers(0, len(axes), len(columns)) == 0
        changed = columns[is_changed]
        partners = [partner for partner in axes if partner != axis]
        partner = sizes[rng.choice(partners, len(changed)), changed]
        target = targets[is_changed]
        is_sum = rng.random(len(changed)) < 0.5
        solved = np.where(is_sum, target - partner, target / partner)
        solved += rng.integers(-1, 2, len(changed))
        sizes[axis, changed] = np.clip(solved, 1, MOST_INT)


def _evaluated(search: Search, sizes: Values) -> _Unseen:
    """Return the values at these sizes."""
    count = sizes.shape[1]
    rows = Rows(zip(SIZES, sizes, strict=True))
    for name, value in USUAL_SCALARS.items():
        rows[name] = np.full(count, value, np.float32)
    for name, address in PLACES.items():
        rows[name] = np.full(count, address, np.int64)
    is_first = search.rng.random(count) < FIRST
    is_first[::PLACES_OF_SHAPE] = True
    for name in (*BLOCKS, *THREADS):
        rows[name] = np.where(is_first, 0, search.rng.integers(0, 2**20, count))
    rows[UNKNOWN_FLOAT] = np.ones(count, np.float32)
    rows = search.clip_to_domain(rows)
    values, is_computed = search.sized(rows)
    is_launched = rows["%nctaid.x"] * rows["%nctaid.y"] > 0
    return _Unseen(
        search,
        np.stack([rows[name] for name in SIZES]),
        search.work_of(rows),
        values,
        is_computed & is_launched,
        [],
    )


class _ValueLaunches:
    """Launches of values that no launch had, up to an effort.

    count: their number so far
    """

    def __init__(self, subject: Any, memory: Memory, kernels: list[_Unseen], effort: float) -> None:
        assert isinstance(memory.device, EmulatedDevice)
        self.subject = subject
        self.memory = memory
        self.device = memory.device
        self.kernels = kernels
        self.effort = effort
        self.count = 0
        self._per_work = PER_WORK
        self._instructions_before = self.device.instructions

    def left(self) -> float:
        """Return the effort that is left."""
        spent = self.device.instructions - self._instructions_before + LAUNCHED * self.count
        return self.effort - spent

    def failure(self) -> Stage | None:
        """Launch each new value while effort is left; return the failed stage."""
        in_turn = [*_in_turn(self.kernels, self.memory.rng)]
        wrong = self._first_failure(in_turn, FIRST_SHARE * self.effort)
        if wrong is not None:
            return wrong
        by_work = sorted(in_turn, key=lambda value: value[0].work[value[2]])
        return self._first_failure(by_work, self.effort)

    def _first_failure(
        self, values: Iterable[tuple[_Unseen, int, int]], effort_limit: float
    ) -> Stage | None:
        """Launch values that are new and fit, until one fails; return the failed stage.

        values: the kernel, the number and the row of each
        effort_limit: of one launch
        """
        for kernel, number, row in values:
            work = float(kernel.work[row])
            is_long = work * self._per_work > min(effort_limit, self.left())
            if is_long or not kernel.is_new(number, row):
                continue
            sizes: Sizes = tuple(kernel.rows[:, row].tolist())
            wrong = self._launch(Shape(*sizes), work)
            if wrong is not None:
                return wrong
            for other in self.kernels:
                other.see(sizes)
        return None

    def _launch(self, shape: Shape, work: float) -> Stage | None:
        """Launch a shape, and return the failed stage. Raises LaunchFailed."""
        domain = self.subject.domain
        rng = self.memory.rng
        halves = self.subject.types.scalars(HALVES)
        alpha = float(rng.choice(halves)) if domain.alpha else 1.0
        beta = float(rng.choice(halves)) if domain.beta else 0.0
        claim = self.subject.claim
        a, b = exact.family("E1", shape, rng, claim, headroom=exact.HEADROOM)
        initial_c = old_c(shape, rng, claim) if beta else None
        problem = ExactProblem("E1", a, b, alpha=alpha, beta=beta, initial_c=initial_c)
        instructions_before = self.device.instructions
        self.count += 1
        try:
            mistake = mistake_in(self.subject, self.memory, problem)
        except TooLarge:
            return None
        instructions = self.device.instructions - instructions_before
        self._per_work = instructions / work
        return None if mistake is None else failure(SIZE_VALUES, problem, mistake)


def _in_turn(
    kernels: list[_Unseen], rng: np.random.Generator
) -> Iterator[tuple[_Unseen, int, int]]:
    """Yield the kernel, the number and the row of each value, one of each queue in turn."""
    queues = list[tuple[_Unseen, list[tuple[int, int]]]]()
    for kernel in kernels:
        queues += [(kernel, queue) for queue in kernel.queues(rng)]
    longest = max((len(queue) for _, queue in queues), default=0)
    for place in range(longest):
        for kernel, queue in queues:
            if place < len(queue):
                yield kernel, *queue[place]
