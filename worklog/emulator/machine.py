"""Runs one batch of blocks: which lanes are where, who waits at a barrier, what is loaded and stored for them.

Lanes that took different ways are run lowest block first, so that those behind catch up and meet the others again
where the ways join. A lane that left the kernel stays in the arrays and is masked out of everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator import warp
from worklog.emulator.asynccopy import Copies
from worklog.emulator.errors import BudgetExceeded, UnsupportedInstruction
from worklog.emulator.findings import Place, Recorder
from worklog.emulator.flow import Block
from worklog.emulator.globalmem import GlobalMemory, LocalMemory
from worklog.emulator.program import Program, unwritten
from worklog.emulator.shared import SharedMemory
from worklog.emulator.sites import Site
from worklog.emulator.specials import special
from worklog.emulator.unwritten import Unwritten

Array = NDArray[Any]
Mask = Any
SHARED_WINDOW, LOCAL_WINDOW = 1 << 60, 1 << 61
EXIT = -2


@dataclass
class Executed:
    """How often a block of instructions ran: warps (each instruction once a warp) and threads."""

    warps: int = 0
    threads: int = 0


class Machine:
    """Everything of one launch that generated code calls, as `S`."""

    def __init__(
        self,
        program: Program,
        place: Place,
        memory: GlobalMemory,
        shared: SharedMemory,
        local: LocalMemory,
        params: dict[str, bytes],
        recorder: Recorder,
        budget: int,
        dynamic_bytes: int,
    ) -> None:
        self.program, self.place, self.recorder = program, place, recorder
        self.memory, self.shared, self.local_memory, self.params = memory, shared, local, params
        self.budget, self.dynamic_bytes = budget, dynamic_bytes
        self.executed = [Executed() for _ in program.blocks]
        self.copies = Copies(self)
        self.unwritten = Unwritten(program.context, recorder, place)
        shared.on_unwritten = self.unwritten.loaded
        self.lines = {i.pc: i.line for i in program.context.kernel.instructions}
        self.groups: dict[int, Array] = {}
        self.waiting: list[tuple[Array, int, int]] = []
        self.census: dict[int, tuple[Array, int, int]] = {}

    # Running.

    def run(self, blocks: Sequence[int]) -> None:
        """Run these blocks, by number, from start to end. Raises BudgetExceeded."""
        count, lanes, threads = len(blocks), self.place.lanes, self.place.threads
        self.block_numbers = np.asarray(blocks, dtype=np.int64)
        self.lanes = count * lanes
        real = np.tile(np.arange(lanes) < threads, count)
        self.live: Array = real
        self.started = real
        self.everyone = bool(real.all())
        self.specials: dict[str, Array] = {}
        self.census = {}
        for part in (self.memory, self.local_memory):
            part.blocks = blocks
        self.shared.start(blocks)
        if self.local_memory.size:
            self.local_memory.start(blocks)
        self.copies.start(self.lanes)
        self.unwritten.start(blocks)
        registers = [unwritten(dtype) for dtype in self.program.registers.values()]
        self.groups = {0: real}
        self.waiting = []
        with np.errstate(divide="ignore", over="ignore", invalid="ignore", under="raise"):
            self._loop(registers)
        self.shared.interval.close(len(self.shared.bytes), None, ())

    def _loop(self, registers: list[Array]) -> None:
        steps, blocks, function = 0, self.program.blocks, self.program.function
        while self.groups:
            number = min(self.groups)
            lanes = self.groups.pop(number)
            mask, covers = self._mask(lanes)
            while True:
                warps, threads = self._census(lanes)
                self.executed[number].warps += warps
                self.executed[number].threads += threads
                block = blocks[number]
                steps += block.stop - block.start
                if steps > self.budget:
                    self._exhausted(block, lanes)
                follow = function(number, not covers)(self, registers, mask)
                if self.unwritten.busy:
                    self.unwritten.follow(block, lanes)
                if follow < 0:
                    break
                if self.groups and min(self.groups) <= follow:
                    self.push(follow, lanes)
                    break
                number = follow

    def _mask(self, lanes: Array) -> tuple[Mask, bool]:
        """The mask for generated code (None for every lane there is), and whether no other lane is alive."""
        _, threads = self._census(lanes)
        return (None if threads == self.lanes else lanes), threads == self._census(self.live)[1]

    def _census(self, lanes: Array) -> tuple[int, int]:
        known = self.census.get(id(lanes))
        if known is not None and known[0] is lanes:
            return known[1], known[2]
        if len(self.census) > 1000:
            self.census.clear()
        warps, threads = int(lanes.reshape(-1, 32).any(axis=1).sum()), int(lanes.sum())
        self.census[id(lanes)] = (lanes, warps, threads)
        return warps, threads

    def _exhausted(self, block: Block, lanes: Array) -> None:
        lane = int(lanes.argmax())
        where = self.place.block_at(int(self.block_numbers[lane // self.place.lanes]))
        lines = [self.lines[pc] for pc in range(block.start, block.stop) if self.lines[pc]]
        at = f"near line {lines[-1]}: {self.recorder.text(lines[-1])}" if lines else f"near instruction {block.stop}"
        raise BudgetExceeded(
            f"after {self.budget:,} instructions, thread {lane % self.place.lanes} of block {where} is still {at}\n"
            "Most likely a loop that does not end. If it does, take a smaller size, or worklog.emulator.launch with a "
            "larger budget"
        )

    def push(self, number: int, lanes: Array) -> None:
        """Let lanes go on at a block."""
        if number == EXIT:
            self.leave(lanes)
        elif number in self.groups:
            self.groups[number] = self.groups[number] | lanes
        else:
            self.groups[number] = lanes

    # What generated code calls: control.

    def lanes_of(self, mask: Mask) -> Array:
        """A mask as a bool array."""
        return self.live if mask is None else mask

    def branch(self, predicate: Array, mask: Mask, yes: int, no: int) -> int:
        """Where all lanes go, or -1 after parting them."""
        if len(predicate) == 1:
            return self._all(yes if predicate[0] else no, mask)
        lanes = self.lanes_of(mask)
        taken = lanes & predicate
        count, total = int(np.count_nonzero(taken)), self._census(lanes)[1]
        if count in (0, total):
            return self._all(yes if count else no, mask)
        for number, part in ((no, lanes & ~predicate), (yes, taken)):
            self.push(number, part)
        return -1

    def _all(self, number: int, mask: Mask) -> int:
        return self.exit(mask) if number == EXIT else number

    def exit(self, mask: Mask) -> int:
        """Lanes leave the kernel."""
        self.leave(self.lanes_of(mask))
        return -1

    def leave(self, lanes: Array) -> None:
        """Take lanes out; blocks that waited only for them go on."""
        self.live = self.live & ~lanes
        if self.waiting:
            self._release()

    def guard(self, mask: Mask, predicate: Array) -> Mask:
        """The lanes of the mask for which the predicate holds; False for none."""
        if len(predicate) == 1:
            return mask if predicate[0] else False
        lanes = predicate if mask is None else mask & predicate
        if not lanes.any():
            return False
        return None if mask is None and lanes.all() else lanes

    def barrier(self, mask: Mask, pc: int, follow: int) -> int:
        """__syncthreads: go on at once where everybody is here, else wait."""
        lanes = self.lanes_of(mask)
        if follow < 0:
            return self.exit(mask)
        if self._census(lanes)[1] == self._census(self.live)[1]:
            self._check_gone(lanes, pc)
            self._close(None)
            return follow
        self.waiting.append((lanes, pc, follow))
        self._release()
        return -1

    def _close(self, lanes: Array | None) -> None:
        if self.shared.checking:
            self.shared.interval.close(len(self.shared.bytes), lanes, self.copies.in_flight())

    def _release(self) -> None:
        """Let go on every block whose living threads all wait."""
        arrived = np.logical_or.reduce([lanes for lanes, _, _ in self.waiting])
        by_block = (self.live & ~arrived).reshape(-1, self.place.lanes).any(axis=1)
        ready = arrived.reshape(-1, self.place.lanes).any(axis=1) & ~by_block
        if not ready.any():
            return
        released = np.repeat(ready, self.place.lanes) & arrived
        for block in np.flatnonzero(ready):
            self._check_same_barrier(int(block))
        self._check_gone(released, self.waiting[0][1])
        self._close(released)
        waiting, self.waiting = self.waiting, []
        for lanes, pc, follow in waiting:
            going, staying = lanes & released, lanes & ~released
            if going.any():
                self.push(follow, going)
            if staying.any():
                self.waiting.append((staying, pc, follow))

    def _check_same_barrier(self, block: int) -> None:
        own = slice(block * self.place.lanes, (block + 1) * self.place.lanes)
        here = [(lanes[own], pc) for lanes, pc, _ in self.waiting if lanes[own].any()]
        if len({pc for _, pc in here}) < 2:
            return
        (first, first_pc), (second, second_pc) = here[0], next(entry for entry in here if entry[1] != here[0][1])
        where = self.place.block_at(int(self.block_numbers[block]))
        message = (
            f"{int(first.sum())} threads of block {where} wait at line {self.lines[first_pc]} while "
            f"{int(second.sum())} wait at line {self.lines[second_pc]}: all must reach the same __syncthreads()"
        )
        threads = (int(first.argmax()), int(second.argmax()))
        self.recorder.add("divergent-barrier", self.lines[first_pc], message, where, threads, self.lines[second_pc])

    def _check_gone(self, lanes: Array, pc: int) -> None:
        """Threads that left before a barrier which others of their block reach."""
        if self._census(self.live)[1] == self._census(self.started)[1]:
            return
        blocks = np.flatnonzero(lanes.reshape(-1, self.place.lanes).any(axis=1))
        gone = (self.started & ~self.live).reshape(-1, self.place.lanes)
        touched = [int(block) for block in blocks if gone[block].any()]
        if touched:
            block = touched[0]
            where = self.place.block_at(int(self.block_numbers[block]))
            count, thread = int(gone[block].sum()), int(gone[block].argmax())
            message = (
                f"{count} of {self.place.threads} threads of block {where}, thread {thread} the first, "
                "have left the kernel before this barrier"
            )
            self.recorder.add(
                "barrier-after-exit", self.lines[pc], message, where, np.flatnonzero(gone[block])[:32].tolist()
            )

    # What generated code calls: values.

    def special(self, name: str) -> Array:
        """A special register, uint32."""
        if name not in self.specials:
            self.specials[name] = special(name, self.place, self.block_numbers, self.dynamic_bytes)
        return self.specials[name]

    def param(self, name: str, offset: int, dtype: str) -> Array:
        """A kernel argument's bytes as one element."""
        size = np.dtype(dtype).itemsize
        return np.frombuffer(self.params[name][offset : offset + size], dtype)

    def window(self, space: str) -> Any:
        """Where a state space starts among generic addresses."""
        return np.uint64({"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space, 0))

    # What generated code calls: memory.

    def _place(self, site: Site, base: Array, mask: Mask) -> tuple[Any, Array]:
        """The memory of an access, and the address in it; a generic address says by its window which."""
        if site.space in ("global", "const"):
            return self.memory, base
        if site.space == "shared":
            return self.shared, base
        if site.space == "local":
            return self.local_memory, base
        chosen = base if mask is None or mask is False or len(base) == 1 else base[mask]
        windows = {int(w) for w in np.unique(chosen >> np.uint64(60))}
        if windows == {1}:
            return self.shared, base - np.uint64(SHARED_WINDOW)
        if windows == {2}:
            return self.local_memory, base - np.uint64(LOCAL_WINDOW)
        if windows & {1, 2}:
            raise UnsupportedInstruction(f"line {site.line}: {site.text}: lanes of one access go to different memories")
        return self.memory, base

    def load(self, site: Site, base: Array, mask: Mask) -> tuple[Array, ...]:
        """ld: one array an element."""
        memory, address = self._place(site, base, mask)
        out: tuple[Array, ...] = memory.load(site, address, mask)
        return out

    def store(self, site: Site, base: Array, mask: Mask, values: Sequence[Array]) -> None:
        """st."""
        memory, address = self._place(site, base, mask)
        memory.store(site, address, mask, values)

    def atomic(self, site: Site, base: Array, mask: Mask, operation: str, values: Sequence[Array]) -> list[Array]:
        """atom and red: the old values, one array an element."""
        old = [np.zeros(self.lanes, site.dtype) for _ in range(site.count)]
        if mask is False:
            return old
        memory, address = self._place(site, base, mask)
        operands = [np.broadcast_to(value, (self.lanes,)) for value in values]
        combine = warp.ATOMICS[operation]

        def apply(elements: Array, index: int, lane: int) -> None:
            for k, before in enumerate(old):
                own = operands if site.count == 1 else operands[k : k + 1]
                values = [operand[lane : lane + 1] for operand in own]
                place = slice(index + k, index + k + 1)
                before[lane] = elements[index + k]
                elements[place] = combine(elements[place], *values)

        if not isinstance(memory, GlobalMemory | SharedMemory):
            raise UnsupportedInstruction(f"line {site.line}: {site.text}: atomics on local memory")
        memory.atomic(site, address, mask, apply)
        return old

    def copy(self, site: Site, target: Array, source: Array, offset: int, size: Array | None, mask: Mask) -> None:
        """cp.async."""
        self.copies.issue(site, target, source, offset, size, mask)

    def commit(self, mask: Mask) -> None:
        """cp.async.commit_group."""
        self.copies.commit(mask)

    def wait(self, mask: Mask, count: int) -> None:
        """cp.async.wait_group, or wait_all for -1."""
        self.copies.wait(mask, count)

    # What generated code calls: warps.

    def _members(self, pc: int, members: Array, mask: Mask) -> Array:
        """The active lanes, after a look whether all that the instruction names are among them."""
        lanes = np.zeros(self.lanes, bool) if mask is False else self.lanes_of(mask)
        lacking = warp.lacking(np.broadcast_to(members, (self.lanes,)), lanes, self.started)
        if lacking.any():
            lane = int(lacking.argmax())
            where = self.place.block_at(int(self.block_numbers[lane // self.place.lanes]))
            thread = lane % self.place.lanes
            message = f"thread {thread} of block {where} is named by the instruction's mask, but is not there"
            self.recorder.add("divergent-warp", self.lines[pc], message, where, [thread], count=int(lacking.sum()))
        return lanes

    def shuffle(
        self, pc: int, mode: str, a: Array, b: Array, c: Array, members: Array, mask: Mask
    ) -> tuple[Array, Array]:
        """shfl.sync: value and whether its source lane was in range."""
        lanes = self._members(pc, members, mask)
        a, b, c = (np.broadcast_to(x, (self.lanes,)) for x in (a, b, c))
        return warp.shuffle(mode, a, b, c, lanes)

    def vote(self, pc: int, mode: str, predicate: Array, members: Array, mask: Mask) -> Array:
        """vote.sync."""
        lanes = self._members(pc, members, mask)
        return warp.vote(mode, np.broadcast_to(predicate, (self.lanes,)), lanes)

    def reduce(self, pc: int, operation: str, a: Array, members: Array, mask: Mask) -> Array:
        """redux.sync."""
        return warp.reduce(operation, np.broadcast_to(a, (self.lanes,)), self._members(pc, members, mask))

    def match(self, pc: int, mode: str, a: Array, members: Array, mask: Mask) -> tuple[Array, Array]:
        """match.sync: mask of lanes, and whether all agree."""
        return warp.match(mode, np.broadcast_to(a, (self.lanes,)), self._members(pc, members, mask))

    def elect(self, pc: int, members: Array, mask: Mask) -> tuple[Array, Array]:
        """elect.sync: the chosen lane, and whether it is this one."""
        return warp.elect(self._members(pc, members, mask))

    def active(self, mask: Mask) -> Array:
        """activemask."""
        lanes = np.zeros(self.lanes, bool) if mask is False else self.lanes_of(mask)
        return warp.vote("ballot", lanes, lanes)

    def warp_barrier(self, pc: int, members: Array, mask: Mask) -> None:
        """bar.warp.sync."""
        lanes = self._members(pc, members, mask)
        if self.shared.checking:
            self.shared.interval.synchronise_warps(lanes)
