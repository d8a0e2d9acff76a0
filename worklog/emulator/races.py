"""Finds two threads that use one piece of shared memory, one of them writing, with nothing between them that orders
the two.

Between two barriers the accesses of a block are only noted. At the barrier they are compared; an interval that has
the same accesses at the same addresses as one before (the next turn of a loop) is known to be as clean as that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator.findings import Place, Recorder, plain_name

if TYPE_CHECKING:
    from worklog.emulator.shared import Visit
    from worklog.emulator.sites import Site

Array = NDArray[Any]
KEPT_INTERVALS = 4096


@dataclass(frozen=True)
class Clash:
    """Two accesses that nothing orders: in program order, with a lane of each; count: how many such pairs of lanes
    there are.
    """

    first: Visit
    second: Visit
    lanes: tuple[int, int]
    count: int
    same_warp: bool


@dataclass(frozen=True)
class Access:
    """One noted access: cells of its lanes (bytes of the batch's memory), how often each lane's warp had
    synchronised before it.
    """

    visit: Visit
    mask: Array | None
    epoch: Array | None


class Interval:
    """Accesses since the last barrier. Entries of the log are visits, or (visit, epoch, mask) where more must be
    known.
    """

    def __init__(self, recorder: Recorder, place: Place, grain: int) -> None:
        self.recorder, self.place, self.grain = recorder, place, grain
        self.log: list[Any] = []
        self.blocks: Sequence[int] = ()
        self.epoch: Array | None = None
        self.clean: set[tuple[Any, ...]] = set()

    def start(self, blocks: Sequence[int]) -> None:
        """A new batch: nothing noted."""
        self.blocks = blocks
        self.log = []
        self.epoch = None

    def forget(self) -> None:
        """Visits are gone, and with them what is known about intervals made of them."""
        self.clean.clear()

    def synchronise_warps(self, lanes: Array) -> None:
        """__syncwarp of these lanes: their warps' later accesses are ordered after the earlier ones."""
        self._stamp()
        before = np.zeros(len(lanes), np.int64) if self.epoch is None else self.epoch
        self.epoch = before + lanes

    def _stamp(self) -> None:
        """Write the epoch beside the accesses noted so far, before it changes."""
        self.log = [entry if isinstance(entry, tuple) else (entry, self.epoch, None) for entry in self.log]

    def close(self, memory_size: int, lanes: Array | None, carried: Sequence[Visit]) -> None:
        """A barrier of all blocks (lanes None) or of those with these lanes. carried: writes of copies that are
        still in flight.
        """
        if self.epoch is not None or lanes is not None:
            self._stamp()
        log, rest = self.log, []
        if lanes is not None:
            rest = [self._limited(entry, ~lanes) for entry in log]
            log = [self._limited(entry, lanes) for entry in log]
        key = tuple(map(self._key, log)) if lanes is None and self.epoch is None else ()
        if not key or key not in self.clean:
            if self._conflicts(log, memory_size):
                self._explain(log, memory_size)
            elif key:
                if len(self.clean) > KEPT_INTERVALS:
                    self.clean.clear()
                self.clean.add(key)
        self.epoch = None if lanes is None else self.epoch
        self.log = [*carried, *(entry for entry in rest if entry[2].any())]

    @staticmethod
    def _key(entry: Any) -> Any:
        """Equal for equal accesses. Visits live as long as what is known of them, so their identity will do."""
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
        if isinstance(entry, tuple):
            visit, epoch, mask = entry
            if visit.mask is not None:
                mask = visit.mask if mask is None else mask & visit.mask
            return Access(visit, mask, epoch)
        return Access(entry, entry.mask, None)

    def _cells(self, access: Access, offset: int) -> tuple[Array, Array]:
        """Cells and lanes of an access, its byte number `offset`."""
        visit = access.visit
        lane = np.arange(len(visit.index))
        cell = visit.index * visit.site.size + visit.shift + offset
        if access.mask is not None:
            return cell[access.mask], lane[access.mask]
        return cell, lane

    def _conflicts(self, log: Sequence[Any], memory_size: int) -> bool:
        """Whether any cell was written by one lane and touched by another; order and warps are not looked at yet."""
        # An access that a loop repeats between two barriers is compared once.
        accesses = [self._access(entry) for entry in {self._key(entry): entry for entry in log}.values()]
        if not any(a.visit.site.writes for a in accesses):
            return False
        owner = np.full(memory_size, -1, np.int32)
        for access in accesses:
            if access.visit.site.writes:
                for offset in range(0, access.visit.site.width, self.grain):
                    cell, lane = self._cells(access, offset)
                    before = owner[cell]
                    if ((before >= 0) & (before != lane)).any():
                        return True
                    owner[cell] = lane
        for access in accesses:
            if not access.visit.site.writes:
                for offset in range(0, access.visit.site.width, self.grain):
                    cell, lane = self._cells(access, offset)
                    before = owner[cell]
                    if ((before >= 0) & (before != lane)).any():
                        return True
        return False

    def _explain(self, log: Sequence[Any], memory_size: int) -> None:
        """Compare each write with every other access, and report pairs that neither a barrier nor __syncwarp orders."""
        accesses = [self._access(entry) for entry in {self._key(entry): entry for entry in log}.values()]
        owner = np.full(memory_size, -1, np.int64)
        clashes: list[Clash] = []
        for i, write in enumerate(accesses):
            if not write.visit.site.writes:
                continue
            touched = []
            for offset in range(0, write.visit.site.width, self.grain):
                cell, lane = self._cells(write, offset)
                owner[cell] = lane
                touched.append(cell)
            for j, other in enumerate(accesses):
                if j == i or (other.visit.site.writes and j < i):
                    continue
                if write.visit.site.op == other.visit.site.op == "atom":
                    continue
                clash = self._compare(owner, write, other, i < j)
                if clash:
                    clashes.append(clash)
            for cell in touched:
                owner[cell] = -1
        # Where one pair needs __syncthreads(), that will part the others of the interval too.
        warps_only = all(clash.same_warp for clash in clashes)
        for clash in clashes:
            self._report(clash, warps_only)

    def _compare(self, owner: Array, write: Access, other: Access, write_first: bool) -> Clash | None:
        for offset in range(0, other.visit.site.width, self.grain):
            cell, lane = self._cells(other, offset)
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
        """Same warp, and a __syncwarp between the two."""
        if write.epoch is None and other.epoch is None:
            return np.zeros(len(lane), bool)
        zero = np.zeros(len(write.visit.index), np.int64)
        first, second = (zero if epoch is None else epoch for epoch in (write.epoch, other.epoch))
        out: Array = (write_lane // 32 == lane // 32) & (first[write_lane] != second[lane])
        return out

    # Reports.

    def _report(self, clash: Clash, warps_only: bool) -> None:
        first, second = clash.first.site, clash.second.site
        kind, fix = ("missing-syncwarp", "__syncwarp()") if warps_only else ("shared-race", "__syncthreads()")
        block, one, two = self._who(clash.lanes)
        verbs = ["writes" if site.writes else "reads" for site in (first, second)]
        message = (
            f"thread {one} of block {block} {verbs[0]} (line {first.line}{first.called}) and thread {two} "
            f"{verbs[1]} (line {second.line}{second.called}) {_what(first)}, with no {fix} between them"
        )
        callers = (second.caller, first.caller)
        if not self.recorder.has("missing-wait", second.line, first.line, callers):
            self.recorder.add(kind, second.line, message, block, (one, two), first.line, clash.count, callers)

    def report_twice(self, visit: Visit, lanes: tuple[int, int], count: int) -> None:
        """Two lanes of one store that put different values in one place."""
        block, one, two = self._who(lanes)
        site = visit.site
        what = f"{_what(site)} with one store{site.called}"
        message = f"threads {one} and {two} of block {block} write different values to {what}"
        self.recorder.add("shared-race", site.line, message, block, (one, two), site.line, count, (site.caller,))

    def _who(self, lanes: tuple[int, int]) -> tuple[tuple[int, int, int], int, int]:
        """Block, and the two threads in it."""
        size = self.place.lanes
        return self.place.block_at(self.blocks[lanes[0] // size]), lanes[0] % size, lanes[1] % size

    def report_early(self, visit: Visit, copy: Site, lane: int, count: int) -> None:
        """An access to bytes that an asynchronous copy is still writing."""
        block = self.place.block_at(self.blocks[lane // self.place.lanes])
        thread = lane % self.place.lanes
        site = visit.site
        verb = f"{'overwrites' if site.writes else 'reads'}{site.called}"
        message = (
            f"thread {thread} of block {block} {verb} what the cp.async of line {copy.line}{copy.called} is still "
            "bringing: wait for it first"
        )
        callers = (site.caller, copy.caller)
        self.recorder.add("missing-wait", site.line, message, block, (thread,), copy.line, count, callers)


def _what(site: Site) -> str:
    return f"the same bytes of {plain_name(site.array.name)}" if site.array else "the same shared bytes"
