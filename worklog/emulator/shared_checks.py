"""Checks of accesses to shared memory: races between threads, and values used that no thread wrote.

Between two barriers the accesses of a block are only logged. At the barrier they are compared; an interval with the
same accesses at the same addresses as an earlier one (the next iteration of a loop) has the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from worklog.emulator.codegen import Program
from worklog.emulator.counts import Site
from worklog.emulator.findings import Batch, Recorder, plain_name
from worklog.emulator.flow import Block, defined, reads

if TYPE_CHECKING:
    from worklog.emulator.shared import Visit

Array = NDArray[Any]
KEPT_INTERVALS = 4096
BIT = np.uint32(1)


@dataclass(frozen=True)
class Clash:
    """Two unordered accesses, in program order, with one lane of each. count: number of pairs of lanes that clash."""

    first: Visit
    second: Visit
    lanes: tuple[int, int]
    count: int
    same_warp: bool


class Access(NamedTuple):
    """One logged access. before: number of the interval's events before it. lanes: None for all."""

    visit: Visit
    before: int
    lanes: Array | None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal accesses. Visits live as long as `Interval.clean`, so their identity is enough."""
        lanes = None if self.lanes is self.visit.mask or self.lanes is None else self.lanes.tobytes()
        return id(self.visit), self.before, lanes

    def limited(self, lanes: Array) -> Access:
        """Only these lanes of it."""
        return self._replace(lanes=lanes & (self.visit.places.active if self.lanes is None else self.lanes))


class Event(NamedTuple):
    """Lanes of a warp, or at a barrier of a block. What the lanes in `arrived` did before comes before what those in
    `released` do next, at this event and later ones of the barrier, which has this number.
    """

    arrived: Array
    released: Array
    number: int | None


class Order:
    """What the events order: each lane's access at `at` before the others' later ones, or after their earlier ones.

    in_warp: by lane of the other access, the lanes of its warp of which that holds, as a mask; in_block: the warps.
    """

    def __init__(self, events: Sequence[Event], at: int, batch: Batch) -> None:
        self.events, self.at, self.width = events, at, batch.block_lanes
        own = np.arange(batch.lanes)
        self.own_warp = BIT << (own % self.width // 32).astype(np.uint32)
        self.in_warp, self.in_block = BIT << (own % 32).astype(np.uint32), np.zeros(batch.lanes, np.uint32)
        self.at_barriers: dict[int, Array] = {}  # by number, as in_block

    def holds(self, at: int, lane: Array, other: Array) -> Array:
        """Whether `lane` is ordered with the access of lane `other` with `at` events before it. Call it in one
        direction, forwards or backwards.
        """
        while self.at < at:
            arrived, released, number = self.events[self.at]
            self._pass(arrived, released, number)
            self.at += 1
        while self.at > at:
            self.at -= 1
            arrived, released, number = self.events[self.at]
            self._pass(released, arrived, number)
        warp = self.in_block[other] >> (lane % self.width // 32).astype(np.uint32)
        own = np.where(lane // 32 == other // 32, self.in_warp[other] >> (lane % 32).astype(np.uint32), np.uint32(0))
        out: Array = (lane // self.width == other // self.width) & ((warp | own) & BIT > 0)
        return out

    def _pass(self, given: Array, taken: Array, number: int | None) -> None:
        """What the given lanes of a warp or block are ordered with, the taken ones are, too."""
        if number is None:
            self.in_block = np.where(taken, self.in_block | _joined(self.in_block, given, 32), self.in_block)
            self.in_warp = np.where(taken, self.in_warp | _joined(self.in_warp, given, 32), self.in_warp)
            return
        known = _joined(self.in_block | self.own_warp, given, self.width)
        known = self.at_barriers[number] = known | self.at_barriers.get(number, np.uint32(0))
        self.in_block = np.where(taken, self.in_block | known, self.in_block)


def _joined(masks: Array, lanes: Array, width: int) -> Array:
    """The masks of these lanes together, for each of the `width` lanes of their warp or block."""
    together = np.bitwise_or.reduce(np.where(lanes, masks, np.uint32(0)).reshape(-1, width), axis=1)
    return np.repeat(together, width)


class Interval:
    """Accesses since the last barrier of a whole block, and the events among them that order some lanes."""

    def __init__(self, recorder: Recorder, batch: Batch) -> None:
        self.recorder, self.batch = recorder, batch
        self.clean: set[tuple[Any, ...]] = set()
        self.start()

    def start(self) -> None:
        """Begin a new batch."""
        self.log: list[Access] = []
        self.events: list[Event] = []

    def add(self, visit: Visit, lanes: Array | None) -> None:
        """Log an access of these lanes."""
        self.log.append(Access(visit, len(self.events), lanes))

    def synchronise_warps(self, lanes: Array) -> None:
        """__syncwarp of these lanes of each warp."""
        self.events.append(Event(lanes, lanes, None))

    def between_threads(self, lanes: Array) -> None:
        """A fence of these lanes; it orders nothing where no flags are read."""

    def synchronise_blocks(self, number: int, arrived: Array, released: Array) -> None:
        """Whole warps at the barrier of this number, which not all warps of their blocks wait for."""
        self.events.append(Event(arrived, released, number))

    def close(self, memory_size: int, lanes: Array | None, carried: Sequence[Access]) -> None:
        """A barrier of all blocks (lanes None) or of the blocks of these lanes. carried: copies in flight."""
        log, rest = self.log, list[Access]()
        if lanes is not None:
            rest = [access.limited(~lanes) for access in log]
            log = [access.limited(lanes) for access in log]
        # An access that a loop repeats between two barriers is compared once.
        accesses = {access.key: access for access in log}
        key = tuple(accesses) if lanes is None and not self.events else ()
        if not key or key not in self.clean:
            if self._conflicts(list(accesses.values()), memory_size):
                self._explain(list(accesses.values()))
            elif key:
                if len(self.clean) > KEPT_INTERVALS:
                    self.clean.clear()
                self.clean.add(key)
        self.log = [access for access in rest if access.lanes is not None and access.lanes.any()]
        self.events = self.events if self.log else []
        self.log += [access._replace(before=len(self.events)) for access in carried]

    def _conflicts(self, accesses: Sequence[Access], memory_size: int) -> bool:
        """Whether any cell is written by one lane and accessed by another, ordered or not."""
        if not any(access.visit.site.writes for access in accesses):
            return False
        self.owner = np.full(memory_size, -1, np.int64)
        for visit, _, lanes in sorted(accesses, key=lambda access: not access.visit.site.writes):
            for cell, lane in visit.cells(lanes):
                before = self.owner[cell]
                if ((before >= 0) & (before != lane)).any():
                    return True
                if visit.site.writes:
                    self.owner[cell] = lane
        return False

    def _explain(self, accesses: Sequence[Access]) -> None:
        """Compare each write with every other access, and report pairs that neither a barrier nor __syncwarp orders."""
        clashes: list[Clash] = []
        for i, write in enumerate(accesses):
            if not write.visit.site.writes:
                continue
            self.owner[:] = -1
            for cell, lane in write.visit.cells(write.lanes):
                self.owner[cell] = lane
            later, earlier = (Order(self.events, write.before, self.batch) for _ in range(2))
            for other in accesses[i + 1 :]:
                clashes += self._compare(write, other, later, True)
            for other in accesses[:i][::-1]:
                if not other.visit.site.writes:
                    clashes += self._compare(write, other, earlier, False)
        # A __syncthreads() that one pair needs orders the other pairs of the interval too.
        warps_only = all(clash.same_warp for clash in clashes)
        for clash in clashes:
            self._report(clash, warps_only)

    def _compare(self, write: Access, other: Access, order: Order, write_first: bool) -> list[Clash]:
        """The first clash of a write, whose lanes own the cells, with another access."""
        if write.visit.site.strong and other.visit.site.strong:
            return []
        for cell, lane in other.visit.cells(other.lanes):
            before = self.owner[cell]
            clash = (before >= 0) & (before != lane)
            if clash.any():
                clash &= ~order.holds(other.before, before, lane)
            if clash.any():
                apart = clash & (before // 32 != lane // 32)
                k = int((apart if apart.any() else clash).argmax())
                pair = (int(before[k]), int(lane[k]))
                count, same_warp = int(clash.sum()), not apart.any()
                if write_first:
                    return [Clash(write.visit, other.visit, pair, count, same_warp)]
                return [Clash(other.visit, write.visit, pair[::-1], count, same_warp)]
        return []

    def _report(self, clash: Clash, warps_only: bool) -> None:
        first, second = clash.first.site, clash.second.site
        kind, fix = ("missing-syncwarp", "__syncwarp()") if warps_only else ("shared-race", "__syncthreads()")
        (block, one), (_, two) = map(self.batch.locate, clash.lanes)
        message = (
            f"thread {one} of block {block} {first.verb} (line {first.line}{first.called}) and thread {two} "
            f"{second.verb} (line {second.line}{second.called}) {what_is_shared(first)}, with no {fix} between them"
        )
        callers = (second.caller, first.caller)
        if ("missing-wait", second.line, first.line, tuple(filter(None, callers))) not in self.recorder.found:
            self.recorder.add(kind, second.line, message, block, (one, two), first.line, clash.count, callers)

    def report_twice(self, site: Site, lanes: tuple[int, int], count: int) -> None:
        """Two lanes of one store write different values to one address."""
        (block, one), (_, two) = map(self.batch.locate, lanes)
        what = f"{what_is_shared(site)} with one store{site.called}"
        message = f"threads {one} and {two} of block {block} write different values to {what}"
        self.recorder.add("shared-race", site.line, message, block, (one, two), site.line, count, (site.caller,))

    def report_early(self, site: Site, copy: Site, lane: int, count: int) -> None:
        """An access to bytes that an asynchronous copy is still writing."""
        block, thread = self.batch.locate(lane)
        message = (
            f"thread {thread} of block {block} {'overwrites' if site.writes else 'reads'}{site.called} bytes that the "
            f"cp.async of line {copy.line}{copy.called} is still writing: wait for the copy first"
        )
        callers = (site.caller, copy.caller)
        self.recorder.add("missing-wait", site.line, message, block, (thread,), copy.line, count, callers)


def what_is_shared(site: Site) -> str:
    """The bytes of an access, for messages."""
    return f"the same bytes of {plain_name(site.array.name)}" if site.array else "the same shared bytes"


class Unwritten:
    """Registers of the running batch that were loaded from shared memory before it was written.

    Loading such a value and discarding it is harmless, and prefetching loops do so in their last iteration. So a load
    only marks its registers; it is a finding when a marked one is an operand of anything but a register copy.
    """

    def __init__(self, program: Program, recorder: Recorder) -> None:
        self.program, self.recorder = program, recorder
        self.marked: dict[str, tuple[Site, Array]] = {}  # by register: the load and the lanes
        self.fresh: dict[int, tuple[Site, Array]] = {}  # by pc: loads of the block that is running

    def start(self) -> None:
        """Begin a new batch."""
        self.marked, self.fresh = {}, {}

    def loaded(self, site: Site, lanes: Array) -> None:
        """Record that a load of the running block read unwritten words in these lanes."""
        self.fresh[site.pc] = (site, lanes)

    def follow(self, block: Block, lanes: Array) -> None:
        """Follow marked registers through the block that just ran."""
        for instruction in self.program.kernel.instructions[block.start : block.stop]:
            mark = self.fresh.get(instruction.pc)
            carried: tuple[Site, Array] | None = None
            for register in reads(instruction):
                known = self.marked.get(register.name)
                if known is None or not (known[1] & lanes).any():
                    continue
                if instruction.parts[0] == "mov":
                    carried = known
                else:
                    self._report(known[0], known[1] & lanes, instruction.line)
                    del self.marked[register.name]
            for register in defined(instruction):
                old = self.marked.pop(register.name, None)
                left = old[1] & ~lanes if old is not None else None
                new = mark or (carried and (carried[0], carried[1] & lanes))
                if new is not None:
                    self.marked[register.name] = (new[0], new[1] if left is None else new[1] | left)
                elif old is not None and left is not None and left.any():
                    self.marked[register.name] = (old[0], left)
        self.fresh = {}
        live = self.program.flow.live_out[block.index]
        self.marked = {name: known for name, known in self.marked.items() if name in live or (known[1] & ~lanes).any()}

    def _report(self, site: Site, lanes: Array, line: int) -> None:
        array = plain_name(site.array.name) if site.array else "shared memory"
        what = f"reads {array} before any thread writes there, and line {line} uses the value"
        self.recorder.add_lanes("uninitialised-shared", site, lanes, what)
