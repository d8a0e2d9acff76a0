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


@dataclass(frozen=True)
class Clash:
    """Two unordered accesses, in program order, with one lane of each. count: number of pairs of lanes that clash."""

    first: Visit
    second: Visit
    lanes: tuple[int, int]
    count: int
    same_warp: bool


class Access(NamedTuple):
    """One logged access. epoch: per lane, how often its warp had synchronised before, or None for never. lanes: None
    for all.
    """

    visit: Visit
    epoch: Array | None
    lanes: Array | None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal accesses. Visits live as long as `Interval.clean`, so their identity is enough."""
        lanes = None if self.lanes is self.visit.mask or self.lanes is None else self.lanes.tobytes()
        return id(self.visit), id(self.epoch), lanes

    def limited(self, lanes: Array) -> Access:
        """Only these lanes of it."""
        return self._replace(lanes=lanes & (self.visit.places.active if self.lanes is None else self.lanes))


class Interval:
    """Accesses since the last barrier."""

    def __init__(self, recorder: Recorder, batch: Batch) -> None:
        self.recorder, self.batch = recorder, batch
        self.clean: set[tuple[Any, ...]] = set()
        self.start()

    def start(self) -> None:
        """Begin a new batch."""
        self.log: list[Access] = []
        self.epoch: Array | None = None

    def add(self, visit: Visit, lanes: Array | None) -> None:
        """Log an access of these lanes."""
        self.log.append(Access(visit, self.epoch, lanes))

    def synchronise_warps(self, lanes: Array) -> None:
        """__syncwarp of these lanes: their warps' later accesses are ordered after the earlier ones."""
        self.epoch = lanes + (np.zeros(len(lanes), np.int64) if self.epoch is None else self.epoch)

    def close(self, memory_size: int, lanes: Array | None, carried: Sequence[Access]) -> None:
        """A barrier of all blocks (lanes None) or of the blocks of these lanes. carried: copies in flight."""
        log, rest = self.log, list[Access]()
        if lanes is not None:
            rest = [access.limited(~lanes) for access in log]
            log = [access.limited(lanes) for access in log]
        # An access that a loop repeats between two barriers is compared once.
        accesses = {access.key: access for access in log}
        key = tuple(accesses) if lanes is None and self.epoch is None else ()
        if not key or key not in self.clean:
            if self._conflicts(list(accesses.values()), memory_size):
                self._explain(list(accesses.values()))
            elif key:
                if len(self.clean) > KEPT_INTERVALS:
                    self.clean.clear()
                self.clean.add(key)
        self.epoch = None if lanes is None else self.epoch
        self.log = [*carried, *(access for access in rest if access.lanes is not None and access.lanes.any())]

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
            for j, other in enumerate(accesses):
                compared_before = other.visit.site.writes and j < i
                if j != i and not compared_before and not (write.visit.site.strong and other.visit.site.strong):
                    clashes += self._compare(write, other, i < j)
        # A __syncthreads() that one pair needs orders the other pairs of the interval too.
        warps_only = all(clash.same_warp for clash in clashes)
        for clash in clashes:
            self._report(clash, warps_only)

    def _compare(self, write: Access, other: Access, write_first: bool) -> list[Clash]:
        """The first clash of a write, whose lanes own the cells, with another access."""
        for cell, lane in other.visit.cells(other.lanes):
            before = self.owner[cell]
            clash = (before >= 0) & (before != lane)
            clash &= ~self._ordered(write, before, other, lane)
            if clash.any():
                apart = clash & (before // 32 != lane // 32)
                k = int((apart if apart.any() else clash).argmax())
                pair = (int(before[k]), int(lane[k]))
                count, same_warp = int(clash.sum()), not apart.any()
                if write_first:
                    return [Clash(write.visit, other.visit, pair, count, same_warp)]
                return [Clash(other.visit, write.visit, pair[::-1], count, same_warp)]
        return []

    @staticmethod
    def _ordered(write: Access, write_lane: Array, other: Access, lane: Array) -> Array:
        """Whether the two lanes are of one warp with a __syncwarp between the accesses."""
        zero = np.zeros(len(write.visit.index), np.int64)
        first, second = (zero if epoch is None else epoch for epoch in (write.epoch, other.epoch))
        out: Array = (write_lane // 32 == lane // 32) & (first[write_lane] != second[lane])
        return out

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
