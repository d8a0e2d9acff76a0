"""The counts of a block that show the idea of a kernel, each with the line that adds most to it.

One block runs on the emulator with a trace of its accesses. Counts are per multiply-add that the
product needs, so redundant multiply-adds don't make them smaller.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator.limits import WARP
from worklog.emulator.memory import FIRST_ADDRESS, SPACING
from worklog.emulator.reports import Counts
from worklog.kernel import Kernel
from worklog.kernel.emulated import CHIP
from worklog.problem import FLOAT_BYTES, Shape
from worklog.viewer.trace import Executed, executed, step_of

# K has several tiles even if they are deep: a barrier before the first one weighs little.
COUNTED = Shape(128, 128, 256)
BARRIERS = ("bar", "barrier")  # instructions
SHARED = "shared"
COSTS = (
    "requests",
    "sectors",
    "wavefronts",
    "conflicts",
    "bytes",
    "lookups",
)  # of a trace's record


@dataclass(frozen=True)
class BlockCount:
    """A count of a block, and the source line that adds most to it."""

    value: float
    line: int = 0  # 0 if no line adds to it


@dataclass(frozen=True)
class _MemoryAccess:
    """The accesses of a block to one memory, by one instruction."""

    line: int
    memory: str  # "A", "B", "C", "workspace", "memory" (unknown), or SHARED
    is_write: bool
    sectors: int
    wavefronts: int
    conflicts: int  # wavefronts that bank conflicts add
    bytes: int
    lookups: int  # of lines in L1

    @property
    def needed_wavefronts(self) -> int:
        """The wavefronts without bank conflicts."""
        return self.wavefronts - self.conflicts


@dataclass(frozen=True)
class BlockCounts:
    """The counts of a kernel's first block."""

    by_name: Mapping[str, BlockCount]
    # Whether the accesses to shared memory are those of the machine code. Otherwise they are those
    # of the PTX, and the assembler may have joined them.
    is_assembled: bool


@lru_cache(maxsize=64)
def block_counts(kernel: Kernel) -> BlockCounts:
    """Return the counts of a kernel's first block. Their names:

    multiply-adds: executed for each that is needed
    sectors of A, sectors of B, lookups: of loads, per multiply-add of a warp
    sectors of C: of stores, per 32 elements of C
    floats: read from shared memory by a thread, per multiply-add
    wavefronts, barriers, local accesses: per multiply-add of a warp
    reads, writes: wavefronts of shared memory for each that is needed without bank conflicts
    barriers per tile: as _barriers_and_tiles() counts them

    The product has the size COUNTED, or the smallest size above it in the kernel's domain.
    Raises what worklog.viewer.trace.executed raises.
    """
    kernel = kernel.at(COUNTED, CHIP)
    shape = kernel.domain.padded(COUNTED)
    run = executed(kernel, shape)
    block_elements = shape.m * shape.n / WARP / math.prod(kernel.blocks(shape))
    by_name = _memory_counts(_accesses(kernel, run), block_elements, shape.k)
    by_name |= _instruction_counts(run, block_elements * shape.k)
    return BlockCounts(by_name, run.code.assembled is True)


def _memory_counts(
    accesses: Sequence[_MemoryAccess], block_elements: float, k: int
) -> dict[str, BlockCount]:
    """Return the counts of accesses to global and shared memory.

    block_elements: of C that a block computes, in units of 32
    """
    needed = block_elements * k  # multiply-adds of a warp
    loads = [a for a in accesses if not a.is_write and a.memory != SHARED]
    from_a = [a for a in loads if a.memory == "A"]
    from_b = [a for a in loads if a.memory == "B"]
    to_c = [a for a in accesses if a.is_write and a.memory == "C"]
    shared = [a for a in accesses if a.memory == SHARED]
    reads = [a for a in shared if not a.is_write]
    writes = [a for a in shared if a.is_write]
    return {
        "sectors of A": _sum(from_a, lambda a: a.sectors, needed),
        "sectors of B": _sum(from_b, lambda a: a.sectors, needed),
        "lookups": _sum(loads, lambda a: a.lookups, needed),
        "sectors of C": _sum(to_c, lambda a: a.sectors, block_elements),
        "floats": _sum(reads, lambda a: a.bytes, needed * WARP * FLOAT_BYTES),
        "wavefronts": _sum(shared, lambda a: a.wavefronts, needed),
        "reads": _passes(reads),
        "writes": _passes(writes),
    }


def _instruction_counts(run: Executed, block_needed: float) -> dict[str, BlockCount]:
    """Return the counts of instructions and barriers.

    block_needed: multiply-adds of a warp that a block's elements need
    """
    # Several blocks ran if they wait for each other.
    needed = block_needed * run.result.blocks
    lines = run.result.lines
    barriers, tiles = _barriers_and_tiles(run)
    return {
        "multiply-adds": _by_line(lines, lambda c: c.instructions.get("fma", 0), needed),
        "barriers": _by_line(lines, lambda c: c.instructions.get("barrier", 0), needed),
        "barriers per tile": BlockCount(barriers / max(tiles, 1)),
        "local accesses": _local_accesses(run, needed),
    }


def _accesses(kernel: Kernel, run: Executed) -> list[_MemoryAccess]:
    """Return the accesses of a block, one for each instruction and memory."""
    trace = run.trace
    keys = np.stack([trace["pc"], trace["space"], _buffers(trace)])
    _, first, group = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    costs = np.zeros((len(first), len(COSTS)), np.int64)
    np.add.at(costs, group.ravel(), trace["costs"])
    accesses = []
    for place, cost in zip(first, costs.tolist(), strict=True):
        step = step_of(kernel, run.result, trace[place])
        if step is not None:
            memory = SHARED if step.in_shared else step.memory
            numbers = dict(zip(COSTS, cost, strict=True))
            del numbers["requests"]
            accesses.append(_MemoryAccess(step.site.line, memory, step.site.writes, **numbers))
    return accesses


def _buffers(trace: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of the global buffer that each record of a trace accesses.

    It is that of the first active lane; -1 for shared memory.
    """
    lanes = _first_lanes(trace["mask"])
    addresses = trace["address"][np.arange(len(trace)), lanes].astype(np.int64)
    return np.where(trace["space"] == 0, (addresses - FIRST_ADDRESS) // SPACING, -1)


def _first_lanes(masks: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the first active lane of each mask; 0 for an empty mask."""
    is_active = masks[:, None] >> np.arange(WARP, dtype=np.uint32) & 1
    lanes: NDArray[np.int64] = is_active.argmax(axis=1)
    return lanes


def _sum(
    accesses: Iterable[_MemoryAccess], number: Callable[[_MemoryAccess], int], needed: float
) -> BlockCount:
    """Return the sum of a number over accesses, divided by what the product needs."""
    by_line = Counter[int]()
    for access in accesses:
        by_line[access.line] += number(access)
    return _largest(by_line, needed)


def _by_line(
    lines: Mapping[int, Counts], number: Callable[[Counts], int], needed: float
) -> BlockCount:
    """Return the sum of a number over the lines, divided by what the product needs."""
    by_line = Counter({line: number(counts) for line, counts in lines.items()})
    return _largest(by_line, needed)


def _local_accesses(run: Executed, needed: float) -> BlockCount:
    """Return how often warps of 32 active threads access local memory.

    needed: multiply-adds of a warp, of all blocks that ran
    """
    by_line = Counter[int]()
    for instruction, threads in zip(run.code.instructions, run.result.executed, strict=True):
        if instruction.parts[0] in ("ld", "st") and "local" in instruction.parts:
            by_line[instruction.line] += threads
    return _largest(by_line, needed * WARP)


def _largest(by_line: Counter[int], needed: float) -> BlockCount:
    """Return the total of a count, and the line that adds most to it."""
    total = by_line.total()
    if not total:
        return BlockCount(0.0)
    return BlockCount(total / needed, by_line.most_common(1)[0][0])


def _passes(accesses: Iterable[_MemoryAccess]) -> BlockCount:
    """Return the wavefronts for each needed one, and the line with most bank conflicts."""
    accesses = list(accesses)
    needed = sum(access.needed_wavefronts for access in accesses)
    if not needed:
        return BlockCount(0.0)
    conflicts = _sum(accesses, lambda a: a.conflicts, needed)
    return BlockCount(1 + conflicts.value, conflicts.line)


def _barriers_and_tiles(run: Executed) -> tuple[int, int]:
    """Return the number of a block's barriers, and of the tiles that it reads between them.

    A tile begins with the first interval between two barriers in which a warp reads shared memory
    that was written in an earlier interval. So a second barrier per tile is found even if tiles
    are deep, and a barrier among the reads of a tile doesn't make two tiles of it.
    """
    passed, reading, writing = _intervals(run)
    tiles = 0
    is_written = False
    for interval in range(passed + 1):
        if is_written and interval in reading:
            tiles += 1
            is_written = False
        if interval in writing:
            is_written = True
    return passed, tiles


def _intervals(run: Executed) -> tuple[int, set[int], set[int]]:
    """Return the number of a block's barriers, and the intervals with accesses to shared memory.

    The first set has the intervals in which a warp reads, the second set those in which a warp
    writes. Interval 0 ends at the first barrier.
    """
    trace = run.trace
    passed = Counter[int]()  # barriers, by warp
    reading = set[int]()
    writing = set[int]()
    records = (trace["pc"].tolist(), trace["warp"].tolist(), trace["space"].tolist())
    for pc, warp, space in zip(*records, strict=True):
        if run.code.instructions[pc].parts[0] in BARRIERS:
            passed[warp] += 1
            continue
        site = run.result.sites.get(pc)
        if site is None or space == 0:
            continue
        intervals = writing if site.writes else reading
        intervals.add(passed[warp])
    return max(passed.values(), default=0), reading, writing
