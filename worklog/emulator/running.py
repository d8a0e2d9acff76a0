"""What the parts of the machine share of the batch of blocks that runs: its lanes, where they are, and its memories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from worklog.emulator.findings import Batch
from worklog.emulator.floats import float_max, float_min
from worklog.emulator.forms import LOCAL_WINDOW, SHARED_WINDOW
from worklog.emulator.globalmem import GlobalMemory
from worklog.emulator.integers import turns
from worklog.emulator.isa import unsupported
from worklog.emulator.program import EXIT, Program, Site
from worklog.emulator.ptx import Array, Mask
from worklog.emulator.shared import LocalMemory, SharedMemory

DIFFERENT = "the emulator doesn't support lanes in different memories"
LOCAL = "the emulator doesn't support atomics on local memory"
# The new value from the old one and the operands, arrays of one element.
ATOMICS: dict[str, Callable[..., Any]] = {
    "add": lambda old, value: old + value,
    "min": lambda old, value: float_min(old, value) if old.dtype.kind == "f" else np.minimum(old, value),
    "max": lambda old, value: float_max(old, value) if old.dtype.kind == "f" else np.maximum(old, value),
    "and": lambda old, value: old & value,
    "or": lambda old, value: old | value,
    "xor": lambda old, value: old ^ value,
    "exch": lambda old, value: value,
    "cas": lambda old, compare, value: np.where(old == compare, value, old),
    "inc": lambda old, limit: np.where(old >= limit, old.dtype.type(0), np.add(old, old.dtype.type(1))),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)),
}


class Running:
    """live: the lanes that have not exited; groups: those that can run, by block of code. exited: called when lanes
    exit. executed: by block of code, how often it ran, in warps (each instruction once per warp) and threads; half:
    the former, when half of the budget was over. version: writes to global memory, and atomics on any memory, that
    changed something; stores: to shared and local memory; ticks: of the clock.
    """

    def __init__(self, program: Program, memory: GlobalMemory, shared: SharedMemory, local: LocalMemory) -> None:
        self.program, self.memory, self.shared, self.local_memory = program, memory, shared, local
        self.batch: Batch = memory.batch
        self.executed = [[0, 0] for _ in program.flow.blocks]
        self.version = self.stores = self.ticks = 0
        self.half: list[int] = []
        self.live: Array = np.zeros(0, bool)
        self.started: Array = self.live
        self.groups: dict[int, Array] = {}
        self.registers: dict[str, Array] = {}
        self.exited: Callable[[], None] = lambda: None

    def lanes_of(self, mask: Mask) -> Array:
        """A mask as a bool array."""
        if mask is False:
            return np.zeros(self.batch.lanes, bool)
        return self.live if mask is None else mask

    def census(self, lanes: Array) -> tuple[int, int]:
        """Number of warps and of lanes."""
        return int(np.count_nonzero(lanes.reshape(-1, 32).any(axis=1))), int(np.count_nonzero(lanes))

    def push(self, number: int, lanes: Array) -> None:
        """Continue lanes at a block of code, or end them; not those that diverged or wait."""
        if number >= 0:
            self.groups[number] = self.groups[number] | lanes if number in self.groups else lanes
        elif number == EXIT:
            self.live = self.live & ~lanes
            self.exited()

    def _memory(self, site: Site, base: Array, mask: Mask) -> tuple[GlobalMemory | SharedMemory, Site, Array]:
        """The memory of an access, its site, and the address in it. A generic address selects it by its window."""
        memories: dict[str, GlobalMemory | SharedMemory] = {"shared": self.shared, "local": self.local_memory}
        space, address = site.space, base
        if space == "generic":
            space = "global"
            chosen = base if mask is None or mask is False or len(base) == 1 else base[mask]
            windows = {int(w) << 60 for w in np.unique(chosen >> np.uint64(60))}
            for window, name in ((SHARED_WINDOW, "shared"), (LOCAL_WINDOW, "local")):
                if windows == {window}:
                    space, address = name, base - np.uint64(window)
                elif window in windows:
                    raise unsupported(self.program.kernel.instructions[site.pc], DIFFERENT)
        memory, site = memories.get(space, self.memory), site.at(space)
        if memory is self.shared and self.memory.checks is not None and site.strong:
            self.memory.checks.shared_flag(site, address, self.lanes_of(mask))
        return memory, site, address

    def load(self, site: Site, base: Array, mask: Mask) -> tuple[Array, ...]:
        """ld: one array per element."""
        memory, site, address = self._memory(site, base, mask)
        return memory.load(site, address, mask)

    def store(self, site: Site, base: Array, mask: Mask, values: Sequence[Array]) -> None:
        """st."""
        memory, site, address = self._memory(site, base, mask)
        memory.store(site, address, mask, values)
        if mask is not False:
            self.version += memory is self.memory
            self.stores += memory is not self.memory

    def atomic(self, site: Site, base: Array, mask: Mask, operation: str, values: Sequence[Array]) -> list[Array]:
        """atom and red: the old values, one array per element."""
        old = [np.zeros(self.batch.lanes, site.dtype) for _ in range(site.count)]
        if mask is False:
            return old
        memory, site, address = self._memory(site, base, mask)
        if memory is self.local_memory:
            raise unsupported(self.program.kernel.instructions[site.pc], LOCAL)
        operands = [np.broadcast_to(value, (self.batch.lanes,)) for value in values]
        for elements, index, lanes in memory.places(site, address, mask):
            for turn in turns(index, lanes):
                for k, before in enumerate(old):
                    place = index[turn] + k
                    own = operands if site.count == 1 else operands[k : k + 1]
                    before[turn] = elements[place]
                    elements[place] = ATOMICS[operation](elements[place], *(operand[turn] for operand in own))
                    self.version += before[turn].tobytes() != elements[place].tobytes()
        return old
