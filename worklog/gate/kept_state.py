"""Stages for what a kernel keeps between launches: variables in device memory, and results.

A kernel that keeps a counter can be right until it has wrapped around. A kernel that keeps C can
return it for other inputs, if it compares only their addresses or some samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from worklog.gate import exact
from worklog.gate.edges import CLOSE, FEW_TERMS, MOST_TERMS, SPECIAL, edge_shapes, mistake_in
from worklog.gate.exact import ExactProblem, Projection
from worklog.gate.guarded_buffer import Buffers, Memory
from worklog.kernel import Loaded, Runnable
from worklog.problem import Float32, Shape
from worklog.problem.epilogues import activated
from worklog.runs import Stage, failed, passed

STATE = "kept state"
REPLAY = "changed inputs at the same addresses"
# Launches after which a counter of fewer bits has wrapped around. The emulator makes the first
# number of them if they execute at most so many instructions of warps, else the second.
KEPT_LAUNCHES = (4096, 256)
MOST_INSTRUCTIONS = 2**23
SIDES = 256, 512, 1024  # until there are more blocks than a GPU runs at once
RESIDENT = 132 * 2048  # threads, of an H200
# Launches on the same inputs, after which a kernel may keep its result.
UNCHANGED = 3
SINGLE = 3  # times that one element of A changes, and one of B; once where that takes long


def check_state(subject: Loaded, memory: Memory) -> Stage:
    """Check a kernel that keeps variables between launches. Raises LaunchFailed.

    Loaded again, its first launch has more blocks than run at once, since they may wait for each
    other, if its grid grows with C. Many tiny launches follow, in which a counter passes 2^12, or
    2^8 on the emulator if they are long. Then the first shape is launched again, whose blocks may
    have left marks: with other inputs, so that a part of the first result can't pass for a new one.
    """
    small = edge_shapes(subject.domain)
    large_shape = _crowded_shape(subject) or small[-1]
    subject.relocate()
    large, tiny, large_again = (
        ExactProblem("E1", *exact.family("E1", shape, memory.rng, subject.claim))
        for shape in (large_shape, small[0], large_shape)
    )
    if (mistake := mistake_in(subject, memory, large)) is not None:
        return failed(STATE, f"in the first launch after loading, at {large.shape}: {mistake}")
    repeated = _Repeated(subject, memory, tiny)
    failure = repeated.failure()
    if failure is not None:
        return failure
    count = repeated.launches
    if (mistake := mistake_in(subject, memory, large_again)) is not None:
        launch = f"in launch {count + 1}, {count} after the last at {large.shape}"
        return failed(STATE, f"{launch}: {mistake}")
    names = subject.variables(large_shape)
    summary = f"keeps {', '.join(names)} between launches"
    return passed(
        STATE,
        f"{summary}: right in the first {count + 1:,} after loading",
        note=summary,
        clause=f"{summary}, tested in {count + 1:,} launches",
    )


def _crowded_shape(subject: Loaded) -> Shape | None:
    """Return a shape at which more threads are launched than run at once, if it is small."""
    domain = subject.domain
    if domain.square:
        return None
    for side in SIDES:
        shape = domain.padded(Shape(side, side, min(FEW_TERMS, MOST_TERMS // side**2)))
        if shape.m * shape.n * shape.k > MOST_TERMS:
            continue
        launches, _ = subject.launches_at(shape)
        for part, _, grid, _ in launches:
            if math.prod(grid) * part.thread_count > RESIDENT:
                return shape
    return None


class _Repeated:
    """One problem, launched from the second launch after loading on.

    launches: the number of the last launch so far
    """

    def __init__(self, subject: Loaded, memory: Memory, problem: ExactProblem) -> None:
        self.memory = memory
        self.shape = problem.shape
        self.buffers = Buffers(memory, problem.a, problem.b)
        product = (problem.a @ problem.b).ravel().astype(np.float64)
        self.expected = activated(memory.types.epilogue, product)
        self.is_rounded = memory.types.has_gelu
        self.launches = 1
        memory.lend(subject, problem.shape)
        a, b, self.c = self.buffers.abc
        # Not memory.launch, which writes to all of a GPU's registers.
        self._launch = subject.repeated(problem.shape, 1.0, a, b, 0.0, self.c)

    def failure(self) -> Stage | None:
        """Launch as often as the instructions of the first launch allow.

        Return the stage of the first wrong result.
        """
        count = KEPT_LAUNCHES[0]
        while self.launches < count:
            wrong_count = self._wrong_elements()
            if wrong_count:
                launch = f"in launch {self.launches} after loading, at {self.shape}"
                return failed(STATE, f"{launch}: {wrong_count} elements are wrong", wrong_count)
            if self.launches == 2 and self._instructions * count > MOST_INSTRUCTIONS:
                count = KEPT_LAUNCHES[1]
        return None

    def _wrong_elements(self) -> int:
        """Launch once more, and return the number of wrong elements."""
        device = self.memory.device
        start = getattr(device, "instructions", 0)
        device.fill(self.c, float(self.memory.sentinel(self.memory.types.c)))
        self._launch()
        self.launches += 1
        result = device.download(self.c)
        self._instructions = getattr(device, "instructions", 0) - start  # the emulator counts them
        if self.is_rounded:
            return int((~np.isclose(result, self.expected, rtol=CLOSE, atol=CLOSE)).sum())
        return int((result != self.expected).sum())


def check_replay(subject: Runnable, checked: Buffers) -> Stage:
    """Change A and B at the same addresses, shape and scalars. Raises LaunchFailed.

    First in single elements, then in the order of rows and columns, and at last in all elements, so
    that neither samples nor sums of them tell all inputs apart. A function may keep results from
    some size on, so that the checked shape is launched too, unless the emulator would take long.

    checked: of the checked shape; restore them afterwards
    """
    memory = checked.memory
    small_shape = subject.domain.padded(Shape(*SPECIAL, SPECIAL[0]))
    a, b = exact.family("E1", small_shape, memory.rng, subject.claim)
    changes = _changed_inputs(a, b, memory.rng, singles=SINGLE)
    launches, stage = _replay(subject, Buffers(memory, a, b), changes)
    if stage is not None:
        return stage
    places = str(small_shape)
    shape = checked.shape
    is_long = shape.m * shape.n * shape.k > MOST_TERMS
    if shape != small_shape and not (is_long and memory.device.source == "emulated"):
        a, b = exact.family("E1", shape, memory.rng, subject.claim)
        singles = 1 if is_long else SINGLE
        changes = _changed_inputs(a, b, memory.rng, singles=singles)
        launches_there, stage = _replay(subject, checked, changes)
        if stage is not None:
            return stage
        launches += launches_there
        places += f" and {shape}"
    return passed(REPLAY, f"{launches} launches at {places}, no row wrong")


def _replay(
    subject: Runnable, buffers: Buffers, changes: Iterator[tuple[str, Float32, Float32]]
) -> tuple[int, Stage | None]:
    """Launch on each of the inputs. Return the number of launches, and the stage of a failure."""
    launches = 0
    former: Float32 | None = None
    for change, a, b in changes:
        launches += 1
        buffers.restore(a, b)
        result = buffers.run(subject)
        if result.trespass:
            return launches, failed(REPLAY, f"at {buffers.shape}: {result.trespass}")
        projection = Projection(ExactProblem("E1", a, b), buffers.memory.rng)
        wrong_rows = projection.wrong_rows(result.c)
        if len(wrong_rows):
            count = f"{len(wrong_rows)} of {len(result.c)} rows are wrong"
            detail = f"at {buffers.shape}, {change}: {count}"
            if former is not None and np.array_equal(result.c, former):
                detail += ": C is the result of the launch before, kept and returned"
            return launches, failed(REPLAY, detail, len(wrong_rows))
        former = result.c
    return launches, None


def _changed_inputs(
    a: Float32, b: Float32, rng: np.random.Generator, *, singles: int
) -> Iterator[tuple[str, Float32, Float32]]:
    """Yield A and B with the change since the launch before, in words.

    singles: times that one element of A changes, and one of B
    """
    for _ in range(UNCHANGED):
        yield "with inputs that are as before", a, b
    matrices = {"A": a, "B": b}
    for name in "AB" * singles:
        changed = matrices[name].copy()
        changed.reshape(-1)[int(rng.integers(changed.size))] *= -1
        matrices[name] = changed
        yield f"with one element of {name} changed", matrices["A"], matrices["B"]
    for name in "AB":
        for axis, lines in enumerate(("rows", "columns")):
            size = matrices[name].shape[axis]
            if size < 2:
                continue
            pair = rng.permutation(size)[:2]
            order = np.arange(size)
            order[pair] = pair[::-1]
            matrices[name] = np.take(matrices[name], order, axis)
            yield f"with two {lines} of {name} exchanged", matrices["A"], matrices["B"]
    for name in "AB":
        matrices[name] = -matrices[name]
        yield f"with all of {name} changed", matrices["A"], matrices["B"]
