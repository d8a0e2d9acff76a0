"""Which accesses to shared memory happen before which: races, and copies that threads do not wait for.

Each thread has a vector clock (Mattern, "Virtual Time and Global States", 1989): for each thread of its block the time
up to which its accesses happened before, and for each mbarrier the phases that the thread has seen complete. A cell of
shared memory keeps its last write and each warp's last read since (as in FastTrack, Flanagan and Freund, 2009).
Asynchronous copies write on behalf of an mbarrier: what a phase brought is known to those that saw it complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from worklog.emulator.findings import Batch
from worklog.emulator.program import Program, Site, Visit, called
from worklog.emulator.ptx import Array

KEPT_VISITS = 512  # whose cells are kept
KEPT_INTERVALS = 4096
PROXY = "fence.proxy.async"


class Race(NamedTuple):
    """Two unordered accesses, in the order in which they ran, with one lane of each. pairs: of such cells and lanes."""

    first: Site
    second: Site
    one: int
    two: int
    pairs: int


class Ordering:
    """The accesses of a batch. Of a block with n threads, number i < n is thread i, and n + k its mbarrier k.

    Where only barriers order threads, accesses are logged and checked at the next barrier. Most intervals between two
    barriers of all blocks are not checked at all: one with the same accesses at the same addresses as an earlier one
    without races (the next iteration of a loop) has none either. eager: each access is checked when it runs.
    """

    def __init__(
        self, batch: Batch, program: Program, cells: int, grain: int, lane_base: Array, clean: set[tuple[Any, ...]]
    ) -> None:
        """cells: of shared memory, of `grain` bytes each. clean: intervals without races, kept from batch to batch."""
        self.batch, self.cells, self.grain, self.lane_base, self.clean = batch, cells, grain, lane_base, clean
        self.eager = program.flow.orders_more_than_barriers
        # Accesses since the last barrier, each once; whole: they are all since a barrier of all blocks.
        self.log: dict[tuple[int, bytes | None], tuple[Visit, Array | None]] = {}
        self.whole = True
        lanes, self.size = self.batch.lanes, self.batch.block_lanes
        self.known: Array = np.zeros((lanes, 0), np.int32)  # no columns before the first check
        self.named: dict[tuple[int, int], Array] = {}  # what those that came to each barrier of a block knew
        # What strong writes of each cell released, what strong reads have shown to a lane, and when it last fenced.
        self.flags: dict[int, Array] = {}
        self.shown: dict[int, Array] = {}
        self.fences, self.fenced = np.zeros((2, lanes), np.int32)  # the latter: fence.proxy.async
        self.clock, self.barrier = 1, 0  # the latter: of all blocks, before which everything is ordered
        self.sites: dict[int, Site] = program.sites
        self.strong = [pc for pc, site in program.sites.items() if site.strong]
        self.pairs: dict[int, tuple[Visit, Array, Array, Array, Array]] = {}
        self.repeated: set[int] = set()
        self.races: list[Race] = []
        if self.eager:
            self._allocate()

    def _allocate(self) -> None:
        """What checks keep of each lane and cell: not in __init__, since most batches are never checked."""
        cells, self.warps = self.cells, self.size // 32
        self.known = np.zeros((self.batch.lanes, self.size), np.int32)
        self.writer, self.write_site = np.full(cells, -1, np.int16), np.zeros(cells, np.int32)
        self.written = np.zeros(cells, np.int32)
        # If the thread of a copy that arrived at an mbarrier also waited for it itself: that thread, and when.
        self.waiter, self.landed = np.full(cells, -1, np.int16), np.zeros(cells, np.int32)
        shape = (cells, self.warps)
        self.read, self.readers = np.zeros(shape, np.int32), np.zeros(shape, np.uint32)
        self.read_site = np.zeros(shape, np.int32)
        self.leaving: Array = np.zeros(cells, np.int32)  # copies that still read a cell, and the site of one
        self.leaving_site = np.zeros(cells, np.int32)

    def make_room(self, barriers: int) -> None:
        """For this number of mbarriers per block."""
        missing = self.size + barriers - self.known.shape[1]
        if missing > 0:
            self.known = np.pad(self.known, ((0, 0), (0, missing + 8)))

    # What orders accesses.

    def synchronise_all(self, lanes: Array | None) -> None:
        """A barrier of all blocks (lanes None), or of the blocks of these lanes."""
        key, clean = tuple(self.log) if lanes is None and self.whole else None, self.clean
        if key is None or (key not in clean and any(visit.site.writes for visit, _ in self.log.values())):
            self._check_log()
            if not self.report() and key:
                if len(clean) > KEPT_INTERVALS:
                    clean.clear()
                clean.add(key)
        self.log.clear()
        self.whole = lanes is None
        rows = self.known.reshape(len(self.batch.blocks), self.size, self.known.shape[1])
        blocks = np.arange(len(rows)) if lanes is None else np.flatnonzero(lanes.reshape(-1, self.size).any(axis=1))
        rows[blocks, :, self.size :] = rows[blocks, :, self.size :].max(axis=1, keepdims=True)
        if lanes is None:
            self.barrier = self.clock
        else:
            rows[blocks, :, : self.size] = self.clock
        self.tick()

    def synchronise_warps(self, lanes: Array) -> None:
        """__syncwarp of these lanes."""
        self._check_log()
        own = np.flatnonzero(lanes)
        rows = np.where(lanes[:, None], self.known, 0).reshape(-1, 32, self.known.shape[1]).max(axis=1)
        rows[own // 32, own % self.size] = self.clock
        self.known[own] = rows[own // 32]
        self.tick()

    def synchronise_blocks(self, number: int, arrived: Array, released: Array) -> None:
        """Whole warps at the barrier of this number, which not all warps of their blocks wait for."""
        self._check_log()
        for block in np.flatnonzero(arrived.reshape(-1, self.size).any(axis=1)).tolist():
            lanes, before = slice(block * self.size, (block + 1) * self.size), self.named.get((block, number))
            row = self.joined(block * self.size + np.flatnonzero(arrived[lanes]))
            self.named[block, number] = row = row if before is None else latest(row, before)
            self.acquire(block * self.size + np.flatnonzero(released[lanes]), row)
        self.tick()

    def joined(self, lanes: Array) -> Array:
        """What these lanes of a block know together, and what they did themselves."""
        row: Array = self.known[lanes].max(axis=0)
        row[lanes % self.size] = self.clock
        return row

    def knows(self, lane: int, other: int, time: int) -> bool:
        """Whether what another thread of the lane's block did at a time is ordered before what the lane does now."""
        return bool(time <= max(self.known[lane, other % self.size], self.barrier))

    def acquire(self, lanes: Array, row: Array) -> None:
        """These lanes know what a phase of an mbarrier collected."""
        self.known[lanes] = np.maximum(self.known[lanes], row)
        self.repeated.clear()

    def fence(self, lanes: Array) -> None:
        """fence.proxy.async: earlier writes of these lanes are visible to asynchronous copies."""
        self.fenced[lanes] = self.clock
        self.tick()

    def tick(self) -> None:
        """Later accesses are not part of what a thread has just released."""
        self.clock += 1
        self.repeated.clear()

    # Accesses.

    def add(self, visit: Visit, lanes: Array | None) -> None:
        """An access of these lanes."""
        if self.eager:
            self._access(visit, lanes)
        else:
            self.log[id(visit), None if lanes is None or lanes is visit.mask else lanes.tobytes()] = visit, lanes

    def _check_log(self) -> None:
        """Check the accesses so far, before something else than a barrier of all blocks orders threads."""
        if not self.known.size:
            self._allocate()
        for visit, lanes in self.log.values():
            self._access(visit, lanes)
        self.log.clear()
        self.whole = False

    def _access(self, visit: Visit, lanes: Array | None) -> None:
        if id(visit) in self.repeated and lanes is visit.mask and not visit.site.strong:
            return
        known = self.pairs.get(id(visit))
        if known is None or lanes is not visit.mask:
            known = self._pairs(visit, lanes)
        _, cells, lane, keys, bits = known
        site = visit.site
        self._check_written(site, cells, lane)
        if not site.writes:
            same = self.read.reshape(-1)[keys] == self.clock
            self.readers.reshape(-1)[keys] = np.where(same, self.readers.reshape(-1)[keys] | bits, bits)
            self.read.reshape(-1)[keys] = self.clock
            self.read_site.reshape(-1)[keys] = site.pc
            self.repeated.add(id(visit))
        else:
            self._check_read(site, cells, lane)
            self._write(cells, lane % self.size, self.clock, site)
        if self.races and self.eager:
            self.report()
        if site.strong:
            words = len(cells) * visit.grain // site.width
            self._hand_over(site, cells[:words].tolist(), lane[:words].tolist())

    def _hand_over(self, site: Site, cells: Sequence[int], lanes: Sequence[int]) -> None:
        """PTX ISA, "Release and Acquire Patterns": a fence and a strong write release, a strong read and a fence
        acquire; and so do .release and .acquire alone.
        """
        releases, acquires = ({kind, "acq_rel"} & {*site.parts} for kind in ("release", "acquire"))
        for cell, lane in zip(cells, lanes, strict=True):
            flag = self.flags.get(cell)
            if flag is not None and site.op != "st":
                self.shown[lane] = latest(flag, self.shown.get(lane, flag))
                if acquires:
                    self._learn(lane)
            if site.writes and (releases or self.fences[lane]):
                row = self.known[lane].copy()
                row[lane % self.size] = self.clock if releases else self.fences[lane]
                self.flags[cell] = row if flag is None else latest(flag, row)
        self.tick()

    def _learn(self, lane: int) -> None:
        if (row := self.shown.pop(lane, None)) is not None:
            self.known[lane, : len(row)] = np.maximum(self.known[lane, : len(row)], row)

    def between_threads(self, lanes: Array) -> None:
        """A fence of these lanes."""
        self._check_log()
        self.fences[lanes] = self.clock
        for lane in [*self.shown]:
            if lanes[lane]:
                self._learn(lane)
        self.tick()

    def _pairs(self, visit: Visit, lanes: Array | None) -> tuple[Visit, Array, Array, Array, Array]:
        """Cells and lanes of an access; and for each warp the places of its cells in `read`, with bits of its lanes."""
        found = visit.cells(lanes)
        cells = np.concatenate([cell for cell, _ in found]) // self.grain
        lane = np.concatenate([lane for _, lane in found])
        keys = cells * self.warps + lane % self.size // 32
        unique, inverse = np.unique(keys, return_inverse=True)
        bits = np.zeros(len(unique), np.uint32)
        np.bitwise_or.at(bits, inverse, np.uint32(1) << (lane % 32).astype(np.uint32))
        out = (visit, cells, lane, unique, bits)
        if lanes is visit.mask:
            if len(self.pairs) > KEPT_VISITS:
                self.pairs.clear()
                self.repeated.clear()
            self.pairs[id(visit)] = out  # which keeps the visit, so that no other one gets its identity
        return out

    def _write(self, cells: Array, writer: Any, time: int, site: Site) -> None:
        self.writer[cells], self.written[cells], self.write_site[cells] = writer, time, site.pc
        self.read[cells], self.waiter[cells] = 0, -1
        self.repeated.clear()

    # Asynchronous copies.

    def _cells(self, lanes: Array, starts: Array, size: int) -> tuple[Array, Array]:
        """Of `size` bytes from each start on: the cells, and the lane of each."""
        first = (self.lane_base[lanes] + starts) // self.grain
        each = np.arange(-(-size // self.grain))
        return (first[:, None] + each).ravel(), np.repeat(lanes, len(each))

    def fill(self, site: Site, lanes: Array, starts: Array, size: int, barrier: int, phases: int) -> None:
        """Lanes issue copies to these bytes of their block, each from its start on, which have arrived once `phases`
        phases of the mbarrier with this number in the block are complete.
        """
        cells, lanes = self._cells(lanes, starts, size)
        self._check_written(site, cells, lanes)
        self._check_read(site, cells, lanes)
        self._write(cells, self.size + barrier, phases, site)
        self.report()

    def arrived(self, visit: Visit, lanes: Array, barrier: int, phases: int) -> None:
        """A cp.async of these lanes arrives with a phase of an mbarrier."""
        cells = np.concatenate([cell for cell, _ in visit.cells(lanes)]) // self.grain
        self._write(cells, self.size + barrier, phases, visit.site)

    def waited(self, visit: Visit, lanes: Array) -> None:
        """These lanes also waited for their part of that cp.async themselves: from now on they order it, too."""
        for cell, lane in visit.cells(lanes):
            cells = cell // self.grain
            self.waiter[cells], self.landed[cells] = lane % self.size, self.clock

    def drain(self, site: Site, lanes: Array, starts: Array, size: int) -> None:
        """Lanes issue copies, or a wgmma, from these bytes of their block: `size` from each start on."""
        cells, lanes = self._cells(lanes, starts, size)
        self._check_written(site, cells, lanes)
        writer = self.writer[cells]
        generic = (writer >= 0) & (writer < self.size)
        theirs = self.fenced[lanes - lanes % self.size + np.where(generic, writer, 0)]
        bad = generic & (np.maximum(theirs, self.fenced[lanes]) < self.written[cells])
        if bad.any():
            k = int(bad.argmax())
            first, lane = self.sites[self.write_site[cells[k]]], int(lanes[k])
            what = f"was written in line {first.line}{called(first)}, with no {PROXY} in between"
            verb = "multiplies" if site.op == "wgmma" else "copies"
            self.batch.tell("missing-fence", site, lane, f"{verb} {self._bytes(lane, cells[k])} which {what}", first)
        self.report()
        np.add.at(self.leaving, cells, np.int32(1))
        self.leaving_site[cells] = site.pc

    def drained(self, site: Site, lanes: Array, starts: Array, size: int) -> None:
        """Copies have read these bytes, and their lanes have waited for them."""
        cells, lanes = self._cells(lanes, starts, size)
        np.subtract.at(self.leaving, cells, np.int32(1))
        warps = lanes % self.size // 32
        self.read[cells, warps], self.readers[cells, warps] = self.clock, np.uint32(1) << (lanes % 32).astype(np.uint32)
        self.read_site[cells, warps] = site.pc
        self.repeated.clear()

    # Checks.

    def _check_written(self, site: Site, cells: Array, lane: Array) -> None:
        """Whether the last write of each cell happened before."""
        writer = self.writer[cells]
        time = self.written[cells]
        bad = (writer >= self.size) | ((writer >= 0) & (writer != lane % self.size) & (time > self.barrier))
        bad &= self.known[lane, writer] < time
        if bad.any():
            waiter, since = self.waiter[cells], np.maximum(self.known[lane, self.waiter[cells]], self.barrier)
            bad &= (waiter < 0) | ((waiter != lane % self.size) & (since < self.landed[cells]))
        if site.strong and bad.any():
            bad &= ~np.isin(self.write_site[cells], self.strong)
        for number in np.unique(self.write_site[cells[bad]]) if bad.any() else ():
            own, first = bad & (self.write_site[cells] == number), self.sites[number]
            foreign = own & (writer // 32 != lane % self.size // 32)
            k = int((foreign if foreign.any() else own).argmax())
            two = int(lane[k])
            if writer[k] < self.size:
                self.races.append(Race(first, site, two - two % self.size + int(writer[k]), two, int(own.sum())))
                continue
            verb = "overwrites" if site.writes else "reads"
            what = f"{verb} {self._bytes(two, cells[k])} that the copy of line {first.line}{called(first)} "
            what += "brings, before a wait for the copy's mbarrier has succeeded"
            kind = "early-overwrite" if site.writes else "missing-wait"
            self.batch.tell(kind, site, two, what, first, int(own.sum()))

    def _check_read(self, site: Site, cells: Array, lane: Array) -> None:
        """Whether the last reads of each cell happened before it is written."""
        busy = self.leaving[cells] > 0
        if busy.any():
            k = int(busy.argmax())
            first = self.sites[self.leaving_site[cells[k]]]
            by, wait = "copy", "cp.async.bulk.wait_group.read"
            if first.op == "wgmma":
                by, wait = "wgmma", "wgmma.wait_group"
            what = f"overwrites {self._bytes(int(lane[k]), cells[k])} that the {by} of line {first.line} may still "
            what += f"be reading: use {wait}, and then a barrier, first"
            self.batch.tell("early-overwrite", site, int(lane[k]), what, first, int(busy.sum()))
        read = self.read[cells]
        if not (read > self.barrier).any():
            return
        lanes, place = np.unique(lane, return_inverse=True)
        least = self.known[lanes, : self.size].reshape(-1, self.warps, 32).min(axis=2)
        rows, warps = np.nonzero(read > np.maximum(least[place], self.barrier))
        readers = warps[:, None] * 32 + np.arange(32)
        writer = lane[rows][:, None]
        bad = (self.readers[cells[rows], warps][:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(bool)
        bad &= (self.known[writer, readers] < read[rows, warps][:, None]) & (readers != writer % self.size)
        if site.strong:
            bad &= ~np.isin(self.read_site[cells[rows], warps], self.strong)[:, None]
        if not bad.any():
            return
        sites = self.read_site[cells[rows], warps]
        for each in np.unique(sites[bad.any(axis=1)]):
            own, first = bad & (sites == each)[:, None], self.sites[each]
            foreign = own & (warps[:, None] != writer % self.size // 32)
            k, bit = divmod(int((foreign if foreign.any() else own).argmax()), 32)
            number = int(lane[rows[k]])
            reader = number - number % self.size + int(warps[k]) * 32 + bit
            if not self.eager or site.op != "cp":
                self.races.append(Race(first, site, reader, number, int(own.sum())))
                continue
            thread = self.batch.locate(reader)[1]
            what = f"refills {self._bytes(number, cells[rows[k]])} before thread {thread} has released what it reads "
            what += f"in line {first.line}{called(first)}: every reader must arrive first, after its reads"
            self.batch.tell("early-overwrite", site, number, what, first, int(own.sum()))

    def report(self) -> bool:
        """Report the races since the last time, if there are any."""
        races, self.races = self.races, []
        # A __syncthreads() that one pair needs orders the other pairs of the interval too.
        apart = any(race.one // 32 != race.two // 32 for race in races)
        kind, fix = ("shared-race", "__syncthreads()") if apart else ("missing-syncwarp", "__syncwarp()")
        fix = f"no {fix}" if not self.eager or not apart else f"neither an mbarrier nor {fix}"
        for first, second, one, two, count in races:
            callers = tuple(filter(None, (second.caller, first.caller)))
            if ("missing-wait", second.line, first.line, callers) not in self.batch.found:
                threads, what = [*map(self.batch.locate, (one, two))], f"{first.place}, with {fix} between them"
                self.batch.tell_race(kind, (first, second), threads, what, count)
        return bool(races)

    def _bytes(self, lane: int, cell: Any) -> str:
        """A cell, for messages."""
        byte = int(cell) * self.grain - int(self.lane_base[lane])
        return f"shared byte {byte}"


def latest(one: Array, other: Array) -> Array:
    """What both rows know."""
    width = max(len(one), len(other))
    return np.asarray(np.maximum(padded(one, width), padded(other, width)))


def padded(row: Array, width: int) -> Array:
    """A row of known times, for a larger number of mbarriers than when it was made."""
    return row if len(row) == width else np.pad(row, (0, width - len(row)))
