"""Checks of accesses to shared memory: races between threads, and values used that no thread wrote.

Between two barriers the accesses of a block are only logged. At the barrier they are compared; an interval with the
same accesses at the same addresses as an earlier one (the next iteration of a loop) has the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    """Two unordered accesses, in program order, with a lane of each. count: how many pairs of lanes clash."""

    first: Visit
    second: Visit
    lanes: tuple[int, int]
    count: int
    same_warp: bool


@dataclass(frozen=True)
class Access:
    """One logged access. mask: its lanes, None for all. epoch: per lane, how often its warp had synchronised before, or
    None for never.
    """

    visit: Visit
    mask: Array | None
    epoch: Array | None


class Interval:
    """Accesses since the last barrier. The log has visits, or (visit, epoch, mask) where more must be known."""

    def __init__(self, recorder: Recorder, batch: Batch, grain: int) -> None:
        self.recorder, self.batch, self.grain = recorder, batch, grain
        self.log: list[Any] = []
        self.epoch: Array | None = None
        self.clean: set[tuple[Any, ...]] = set()

    def start(self) -> None:
        """Begin a new batch."""
        self.log = []
        self.epoch = None

    def synchronise_warps(self, lanes: Array) -> None:
        """__syncwarp of these lanes: their warps' later accesses are ordered after the earlier ones."""
        self._stamp()
        before = np.zeros(len(lanes), np.int64) if self.epoch is None else self.epoch
        self.epoch = before + lanes

    def _stamp(self) -> None:
        """Add the epoch to the accesses logged so far, before it changes."""
        self.log = [entry if isinstance(entry, tuple) else (entry, self.epoch, None) for entry in self.log]

    def close(self, memory_size: int, lanes: Array | None, carried: Sequence[Any]) -> None:
        """A barrier of all blocks (lanes None) or of the blocks of these lanes. carried: entries of copies."""
        if self.epoch is not None or lanes is not None:
            self._stamp()
        log, rest = self.log, []
        if lanes is not None:
            rest = [self._limited(entry, ~lanes) for entry in log]
            log = [self._limited(entry, lanes) for entry in log]
        key = tuple(map(self._key, log)) if lanes is None and self.epoch is None else ()
        if not key or key not in self.clean:
            # An access that a loop repeats between two barriers is compared once.
            accesses = [self._access(entry) for entry in {self._key(entry): entry for entry in log}.values()]
            if self._conflicts(accesses, memory_size):
                self._explain(accesses, memory_size)
            elif key:
                if len(self.clean) > KEPT_INTERVALS:
                    self.clean.clear()
                self.clean.add(key)
        self.epoch = None if lanes is None else self.epoch
        self.log = [*carried, *(entry for entry in rest if entry[2].any())]

    @staticmethod
    def _key(entry: Any) -> Any:
        """Equal for equal accesses. Visits live as long as `clean`, so their identity is enough."""
        if not isinstance(entry, tuple):
            return id(entry)
        visit, epoch, mask = entry
        return id(visit), id(visit) if epoch is None else epoch.tobytes(), mask is None or mask.tobytes()

    @staticmethod
    def _limited(entry: tuple[Any, Any, Any], lanes: Array) -> tuple[Any, Any, Any]:
        visit, epoch, mask = entry
        active = visit.places.active & lanes
        return visit, epoch, active if mask is None else active & mask

    @staticmethod
    def _access(entry: Any) -> Access:
        visit, epoch, mask = entry if isinstance(entry, tuple) else (entry, None, None)
        if visit.mask is not None:
            mask = visit.mask if mask is None else mask & visit.mask
        return Access(visit, mask, epoch)

    def _cells(self, access: Access) -> list[tuple[Array, Array]]:
        """Cells (bytes of the batch's memory) and lanes of an access, one pair per grain."""
        visit = access.visit
        lane = np.arange(len(visit.index))
        start = visit.index * visit.site.size + visit.shift
        if access.mask is not None:
            start, lane = start[access.mask], lane[access.mask]
        return [(start + offset, lane) for offset in range(0, visit.site.width, self.grain)]

    def _conflicts(self, accesses: Sequence[Access], memory_size: int) -> bool:
        """Whether any cell is written by one lane and accessed by another, ordered or not."""
        writes = [access for access in accesses if access.visit.site.writes]
        if not writes:
            return False
        owner = np.full(memory_size, -1, np.int32)
        for access in (*writes, *(access for access in accesses if not access.visit.site.writes)):
            for cell, lane in self._cells(access):
                before = owner[cell]
                if ((before >= 0) & (before != lane)).any():
                    return True
                if access.visit.site.writes:
                    owner[cell] = lane
        return False

    def _explain(self, accesses: Sequence[Access], memory_size: int) -> None:
        """Compare each write with every other access, and report pairs that neither a barrier nor __syncwarp orders."""
        owner = np.full(memory_size, -1, np.int64)
        clashes: list[Clash] = []
        for i, write in enumerate(accesses):
            if not write.visit.site.writes:
                continue
            written = self._cells(write)
            for cell, lane in written:
                owner[cell] = lane
            for j, other in enumerate(accesses):
                if (
                    j == i
                    or (other.visit.site.writes and j < i)
                    or write.visit.site.op == other.visit.site.op == "atom"
                ):
                    continue
                clash = self._compare(owner, write, other, i < j)
                if clash:
                    clashes.append(clash)
            for cell, _ in written:
                owner[cell] = -1
        # A __syncthreads() that one pair needs orders the other pairs of the interval too.
        warps_only = all(clash.same_warp for clash in clashes)
        for clash in clashes:
            self._report(clash, warps_only)

    def _compare(self, owner: Array, write: Access, other: Access, write_first: bool) -> Clash | None:
        for cell, lane in self._cells(other):
            before = owner[cell]
            clash = (before >= 0) & (before != lane)
            if clash.any():
                clash &= ~self._ordered(write, before, other, lane)
            if clash.any():
                apart = clash & (before // 32 != lane // 32)
                k = int((apart if apart.any() else clash).argmax())
                pair = (int(before[k]), int(lane[k]))
                count, same_warp = int(clash.sum()), not apart.any()
                if write_first:
                    return Clash(write.visit, other.visit, pair, count, same_warp)
                return Clash(other.visit, write.visit, pair[::-1], count, same_warp)
        return None

    @staticmethod
    def _ordered(write: Access, write_lane: Array, other: Access, lane: Array) -> Array:
        """Whether the two lanes are of one warp with a __syncwarp between the accesses."""
        if write.epoch is None and other.epoch is None:
            return np.zeros(len(lane), bool)
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
            f"{second.verb} (line {second.line}{second.called}) {_what(first)}, with no {fix} between them"
        )
        callers = (second.caller, first.caller)
        if not self.recorder.has("missing-wait", second.line, first.line, callers):
            self.recorder.add(kind, second.line, message, block, (one, two), first.line, clash.count, callers)

    def report_twice(self, site: Site, lanes: tuple[int, int], count: int) -> None:
        """Two lanes of one store write different values to one address."""
        (block, one), (_, two) = map(self.batch.locate, lanes)
        what = f"{_what(site)} with one store{site.called}"
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


def _what(site: Site) -> str:
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
        self.recorder.add_lanes("uninitialised-shared", site.line, lanes, what, site.caller)
