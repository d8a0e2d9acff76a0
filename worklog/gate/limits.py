"""What a kernel can't take beyond the sizes of its verdict.

An index of 32 bits, a shared array with an element for each term and the grid's own limits show at
sizes that no check launches in full. So the blocks at the grid's corners are launched there, on the
emulator and with matrices whose values don't matter: an access outside of them is a limit. An index
that wraps around to another element of its matrix isn't found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

from worklog.emulator.flow import Flow
from worklog.emulator.launching import MAX_GRID, launch
from worklog.emulator.limits import SMS
from worklog.emulator.memory import Pointer
from worklog.emulator.program import program_of
from worklog.emulator.ptx import TIMES
from worklog.errors import BadSetting, WorklogError, apart
from worklog.kernel import Kernel, Loaded
from worklog.kernel.emulated import EmulatedKernel, with_maps
from worklog.kernel.prediction import operands_without_values
from worklog.problem import FLOAT_BYTES, Shape
from worklog.runs import Stage, failed, passed

LIMITS = "limits"
MULTIPROCESSORS = "%nsmid"  # a kernel that reads it may be right on some GPUs only
AXES = "MNK"
SIZES = (65536, 16384, 4096)
TINY = (5, 5, 2)  # the other sizes
# The axes of each matrix, and the products of its sizes from which an index of elements or of bytes
# overflows. One size is long.
PAIRS = ((0, 2), (1, 2), (0, 1))
EXPONENTS = (29, 31)
LONG = 2**20
PER_WARP = 3 * 10**5  # instructions that a launch may take
MOST_UNTRIED = 4  # launches that take more, after which there are no others


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
        for axis, blocks, max_blocks in zip(
            "xyz", part.blocks_at(*shape.sizes), MAX_GRID, strict=False
        ):
            if blocks > max_blocks:
                raise BadSetting(
                    f"the grid {part.grid} has {blocks:,} blocks along {axis} at {shape}, and a "
                    f"GPU allows {max_blocks:,}: use a smaller size, or change the grid"
                )


def check_limits(subject: Loaded, largest: tuple[int, int, int], *, quick: bool) -> Stage:
    """Name the sizes beyond the largest ones at which the kernel can't be right.

    An access outside of memory at the largest ones themselves is a failure. The clause says for
    which number of multiprocessors a kernel that reads it ran, and that it reads a clock.

    quick: whether to look no further than the grid and the largest sizes
    """
    launches = _Launches(subject)
    notes = list[str]()
    sentences = [*_grid_limits(subject, largest)]
    blocks_run_alone = not (subject.kernel.follows_shape or _waits(subject))
    if blocks_run_alone:
        box = subject.domain.padded(Shape(*largest))
        fault = launches.fault(dict(enumerate(box.sizes)))
        if fault is not None and _is_outside(fault):
            return failed(LIMITS, f"at {box}: {fault.kind} in line {fault.line}")
    else:
        notes.append("M, N and K weren't launched at their largest together")
    is_launched = blocks_run_alone and not quick
    if is_launched:
        nothing = list[str]()
        sentences += apart(
            "the search for limits", lambda: _memory_limits(launches, largest), nothing, notes
        )
    clauses = []
    specials = set[str]().union(*(flow.specials for flow in flows(subject)))
    if MULTIPROCESSORS in specials:
        clauses.append(f"tested where {MULTIPROCESSORS} is {SMS}")
    for name in sorted(specials & set(TIMES)):
        clauses.append(f"reads {name}, which tells no time on the emulator")
    note = "; ".join(sentences + notes)
    none_found = f"the grid allows M, N and K up to {SIZES[0]:,}"
    if not is_launched:
        none_found += "; nothing was launched there"
    elif launches.untried:
        none_found += f"; {launches.untried} launches there were too long for the emulator"
    else:
        none_found += ", and no access there was outside of memory"
    return passed(LIMITS, note or none_found, note=note, clause="; ".join(clauses))


def _memory_limits(launches: _Launches, largest: tuple[int, int, int]) -> list[str]:
    """Return the sizes and products from which an access is outside of memory."""
    return [*_axis_limits(launches, largest), *_product_limits(launches)]


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
    if subject.kernel.follows_shape:
        return
    for part, axis in product(subject.kernel.passes, range(3)):
        for place, max_blocks in enumerate(MAX_GRID):
            exceeds = partial(_exceeds, subject, part, axis, place)
            if exceeds(SIZES[0]):
                size = _largest_right(largest[axis], SIZES[0], exceeds)
                blocks = f"{max_blocks:,} blocks along {'xyz'[place]}"
                yield f"{AXES[axis]} ≤ {size:,}: a grid has {blocks}"


def _exceeds(subject: Loaded, part: Kernel, axis: int, place: int, size: int) -> bool:
    """Return whether a size of an axis gives more blocks than a GPU allows.

    place: of the blocks, 0 to 2 for x to z
    """
    blocks = part.blocks_at(*_shape(subject, {axis: size}).sizes)
    return len(blocks) > place and bool(blocks[place] > MAX_GRID[place])


def _waits(subject: Loaded) -> bool:
    """Return whether a block may wait for another block, so that some can't run alone."""
    return any(flow.may_wait for flow in flows(subject))


def corner_blocks(grid: tuple[int, ...]) -> list[int]:
    """Return the numbers of the blocks at the corners of a grid, and of the last one."""
    columns, rows = (*grid, 1)[:2]
    return sorted({0, columns - 1, columns * (rows - 1), math.prod(grid) - 1})


def flows(subject: Loaded) -> Iterator[Flow]:
    """Yield what is known of each kernel of a subject before it runs."""
    for _, loaded in subject.passes:
        assert isinstance(loaded, EmulatedKernel)
        yield program_of(loaded.kernel, loaded.program.shared).flow


class _Launches:
    """Launches of a few blocks at large sizes.

    untried: how many the emulator couldn't run
    """

    def __init__(self, subject: Loaded) -> None:
        self.subject = subject
        self.untried = 0

    def fault(self, sizes: dict[int, int]) -> _Fault | None:
        """Return the first access outside of memory, with these sizes of some axes.

        None without such an access, UNTRIED for launches that the emulator can't run.
        """
        if self.untried == MOST_UNTRIED:
            return UNTRIED
        try:
            return _first_fault(self.subject, _shape(self.subject, sizes))
        except WorklogError:
            self.untried += 1
            return UNTRIED

    def fails_at(self, axis: int, size: int) -> bool:
        """Return whether an access is known to be outside of memory."""
        return _is_outside(self.fault({axis: size}))


def _axis_limits(launches: _Launches, largest: tuple[int, int, int]) -> Iterator[str]:
    """Yield the sizes of one axis beyond which an access is outside of memory."""
    domain = launches.subject.domain
    for axis, name in enumerate(AXES[:1] if domain.square else AXES):
        for size in SIZES:
            fault = launches.fault({axis: size})
            if fault is UNTRIED:
                continue
            if size > largest[axis] and fault is not None:
                limit = _largest_right(largest[axis], size, partial(launches.fails_at, axis))
                limit -= limit % domain.padded(Shape.of(1)).sizes[axis]
                yield f"{name} ≤ {limit:,}: {fault.kind} in line {fault.line}"
            break


def _product_limits(launches: _Launches) -> Iterator[str]:
    """Yield the products of two sizes from which an index overflows."""
    if launches.subject.domain.square:
        return
    for first, second in PAIRS:
        for exponent in EXPONENTS:
            short = 2**exponent // LONG
            fault = launches.fault({first: LONG, second: short + 1})
            if fault is None or fault is UNTRIED:
                continue
            if launches.fault({first: LONG * 7 // 8, second: short}) is None:
                text = f"a 32-bit index overflows from {AXES[first]}·{AXES[second]}"
                yield f"{text} = 2^{exponent} on, in line {fault.line}"
            break


def _is_outside(fault: _Fault | None) -> bool:
    """Return whether an access is known to be outside of memory."""
    return fault is not None and fault is not UNTRIED


def _first_fault(subject: Loaded, shape: Shape) -> _Fault | None:
    """Return the first access outside of memory in the blocks at the grid's corners.

    Raises WorklogError for a launch that the emulator can't run.
    """
    launches, workspace_elements = subject.launches_at(shape)
    a, b, c = (Pointer(None, nbytes) for nbytes in subject.types.nbytes(shape.elements))
    workspace = Pointer(None, FLOAT_BYTES * workspace_elements)
    operands = operands_without_values(subject.kernel, shape)
    arguments = with_maps(launches[0][0].bind(shape, 1.0, a, b, 0.0, c, workspace, operands))
    for _, loaded, grid, threads in launches:
        result = launch(
            loaded.kernel,
            grid,
            threads,
            arguments,
            shared_bytes=loaded.program.shared,
            races=False,
            count=False,
            only_blocks=corner_blocks(grid),
            budget=PER_WARP,
            registers=loaded.compiled.registers,
        )
        for finding in result.findings:
            if finding.is_error and "out-of-bounds" in finding.kind:
                return _Fault(finding.kind, finding.line)
    return None
