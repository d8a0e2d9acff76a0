"""What a kernel can't take beyond the sizes of its verdict.

An index of 32 bits, a shared array with an element for each term and the grid's own limits show at
sizes that no check launches in full. So the blocks at the grid's corners are launched there, on the
emulator and with matrices whose values don't matter: an access outside of them is a limit. An index
that wraps around to another element of its matrix isn't found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from functools import partial
from itertools import product

from worklog.emulator.launching import MAX_GRID, launch
from worklog.emulator.memory import Pointer
from worklog.emulator.program import program_of
from worklog.errors import BadSetting, WorklogError
from worklog.kernel import Kernel, Loaded
from worklog.kernel.emulated import EmulatedKernel
from worklog.problem import Shape
from worklog.runs import Stage, passed

LIMITS = "limits"
AXES = "MNK"
SIZES = (65536, 16384, 4096)
TINY = (5, 5, 2)  # the other sizes
# The axes of each matrix, and the products of its sizes from which an index of elements or of bytes
# overflows. One size is long.
PAIRS = ((0, 2), (1, 2), (0, 1))
EXPONENTS = (29, 31)
LONG = 2**20
PER_WARP = 3 * 10**5  # instructions: a launch of more isn't tried


@dataclass(frozen=True)
class _Fault:
    """An access outside of memory."""

    kind: str
    line: int


UNTRIED = _Fault("", 0)  # the emulator can't run the launch


def require_grid(kernel: Kernel, shape: Shape) -> None:
    """Raise BadSetting for a grid that no GPU accepts.

    kernel: that a shape doesn't choose
    """
    for part in kernel.passes:
        for axis, blocks, most in zip(
            "xyz", part.blocks_at(*astuple(shape)), MAX_GRID, strict=False
        ):
            if blocks > most:
                raise BadSetting(
                    f"the grid {part.grid} has {blocks:,} blocks along {axis} at {shape}, and a "
                    f"GPU allows {most:,}: use a smaller size, or change the grid"
                )


def check_limits(subject: Loaded, largest: tuple[int, int, int], *, quick: bool) -> Stage:
    """Name the sizes beyond the largest ones at which the kernel can't be right.

    quick: whether to look at the grid alone
    """
    found = [*_grid_limits(subject, largest)]
    is_launched = not quick and subject.kernel.choose is None and not _waits(subject)
    if is_launched:
        found += _axis_limits(subject, largest)
        found += _product_limits(subject)
    tried = f"M, N and K up to {SIZES[0]:,}"
    if not found:
        return passed(LIMITS, f"none for {tried}")
    note = "; ".join(found)
    return passed(LIMITS, note, note=note)


def _shape(subject: Loaded, sizes: dict[int, int]) -> Shape:
    """Return the smallest shape of the domain with these sizes of some axes, by their number."""
    tiny = [*TINY]
    for axis, size in sizes.items():
        tiny[axis] = size
    return subject.domain.padded(Shape(*tiny))


def _largest_right(lowest: int, highest: int, fails_at: Callable[[int], bool]) -> int:
    """Return the largest size that is right, between one that is and one that isn't."""
    while highest - lowest > 1:
        middle = (lowest + highest) // 2
        if fails_at(middle):
            highest = middle
        else:
            lowest = middle
    return lowest


def _grid_limits(subject: Loaded, largest: tuple[int, int, int]) -> Iterator[str]:
    """Yield the sizes beyond which the grid has more blocks than a GPU allows."""
    if subject.kernel.choose is not None:
        return
    for part, axis in product(subject.kernel.passes, range(3)):
        for place, most in enumerate(MAX_GRID):
            exceeds = partial(_exceeds, subject, part, axis, place)
            if exceeds(SIZES[0]):
                size = _largest_right(largest[axis], SIZES[0], exceeds)
                yield f"{AXES[axis]} ≤ {size:,}: a grid has {most:,} blocks along {'xyz'[place]}"


def _exceeds(subject: Loaded, part: Kernel, axis: int, place: int, size: int) -> bool:
    """Return whether a size of an axis gives more blocks than a GPU allows.

    place: of the blocks, 0 to 2 for x to z
    """
    blocks = part.blocks_at(*astuple(_shape(subject, {axis: size})))
    return len(blocks) > place and bool(blocks[place] > MAX_GRID[place])


def _waits(subject: Loaded) -> bool:
    """Return whether a block may wait for another block, so that some can't run alone."""
    for _, loaded in subject.passes:
        assert isinstance(loaded, EmulatedKernel)
        if program_of(loaded.kernel, loaded.program.shared).flow.may_wait:
            return True
    return False


def _axis_limits(subject: Loaded, largest: tuple[int, int, int]) -> Iterator[str]:
    """Yield the sizes of one axis beyond which an access is outside of memory."""
    axes = AXES[:1] if subject.domain.square else AXES
    for axis, name in enumerate(axes):

        def fault_at(size: int, axis: int = axis) -> _Fault | None:
            return _fault(subject, _shape(subject, {axis: size}))

        def fails_at(size: int) -> bool:
            return _is_outside(fault_at(size))

        for size in SIZES:
            fault = fault_at(size)
            if fault is UNTRIED:
                continue
            if size > largest[axis] and fault is not None:
                limit = _largest_right(largest[axis], size, fails_at)
                limit -= limit % astuple(subject.domain.padded(Shape.of(1)))[axis]
                yield f"{name} ≤ {limit:,}: {fault.kind} in line {fault.line}"
            break


def _product_limits(subject: Loaded) -> Iterator[str]:
    """Yield the products of two sizes from which an index overflows."""
    if subject.domain.square:
        return
    for (first, second), exponent in product(PAIRS, EXPONENTS):
        short = 2**exponent // LONG
        fault = _fault(subject, _shape(subject, {first: LONG, second: short + 1}))
        below = _shape(subject, {first: LONG * 7 // 8, second: short})
        if _is_outside(fault) and _fault(subject, below) is None:
            assert fault is not None
            sizes = f"{AXES[first]}·{AXES[second]}"
            yield f"a 32-bit index overflows from {sizes} = 2^{exponent} on, in line {fault.line}"


def _is_outside(fault: _Fault | None) -> bool:
    """Return whether an access is known to be outside of memory."""
    return fault is not None and fault is not UNTRIED


def _fault(subject: Loaded, shape: Shape) -> _Fault | None:
    """Return the first access outside of memory in the blocks at the grid's corners.

    None without such an access, UNTRIED for launches that the emulator can't run.
    """
    launches, workspace_elements = subject.launches_at(shape)
    sizes = (shape.m * shape.k, shape.k * shape.n, shape.m * shape.n, workspace_elements)
    a, b, c, workspace = (Pointer(None, 4 * size) for size in sizes)
    arguments = launches[0][0].bind(shape, 1.0, a, b, 0.0, c, workspace)
    for _, loaded, grid, threads in launches:
        columns, rows = (*grid, 1)[:2]
        last = math.prod(grid) - 1
        blocks = sorted({0, columns - 1, columns * (rows - 1), last})
        try:
            result = launch(
                loaded.kernel,
                grid,
                threads,
                arguments,
                shared_bytes=loaded.program.shared,
                races=False,
                count=False,
                only_blocks=blocks,
                budget=PER_WARP,
                registers=loaded.compiled.registers,
            )
        except WorklogError:
            return UNTRIED
        for finding in result.findings:
            if finding.is_error and "out-of-bounds" in finding.kind:
                return _Fault(finding.kind, finding.line)
    return None
