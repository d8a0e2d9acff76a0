"""Shared and local memory of the running batch of blocks, and the checks of each access.

An address register keeps its value over many accesses and loop iterations. So everything that follows from addresses
alone (bounds, alignment, wavefronts, array indices) is computed once per site and set of addresses, as a Visit, and
found again by the identity of the register's array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from worklog.emulator.counts import WARP, wavefronts
from worklog.emulator.findings import ONE_STORE, Batch
from worklog.emulator.flow import Block
from worklog.emulator.isa import defined, reads
from worklog.emulator.ordering import Ordering
from worklog.emulator.program import Places, Program, Site, Visit, called
from worklog.emulator.ptx import Array, Instruction, Mask, plain_name

KEPT_PLACES = 256


class SharedMemory:
    """Shared memory of a batch, block beside block. size: bytes per block; grain: bytes of the smallest access."""

    space, owner, initial = "shared", "block", 0
    marks: Marks

    def __init__(self, batch: Batch, size: int, grain: int) -> None:
        self.batch, self.size, self.stride, self.grain = batch, size, max(16, -(-size // 16) * 16), grain
        self.counting, self.values, self.checking = batch.counting, batch.values, batch.races and batch.values
        self.bytes: Array = np.zeros(0, np.uint8)
        self.written: Array = np.zeros(0, bool)
        self.order: Ordering | None = None  # of the running batch's accesses
        self.clean: set[tuple[Any, ...]] = set()  # intervals without races: see Ordering
        self.by_identity: dict[tuple[int, int], tuple[Array, Mask, Places]] = {}
        self.by_content: dict[tuple[bytes, bytes], Places] = {}
        self.lane_base: Array = np.zeros(0, np.int64)
        self.reserved = 0  # bytes at the end that hold zeros when a block starts
        # Cells that asynchronous copies are still writing: the number of the copy's site in `copies`, from 1.
        self.pending: Array | None = None
        self.copies: list[Site] = []

    def start(self, program: Program) -> None:
        """Clear the memory for a new batch."""
        self.order = None
        self.land()
        if len(self.lane_base) != self.batch.lanes:
            self.settle()
            self.lane_base = self._bases()
            size = int(self.lane_base[-1]) + self.stride
            self.bytes, self.written = np.empty(size, np.uint8), np.empty(size, bool)
        self.bytes[:] = self.initial
        self.written[:] = False
        if self.reserved:
            self.written.reshape(-1, self.stride)[:, self.size - self.reserved : self.size] = True
        for places in self.by_content.values():
            for visit in places.visits.values():
                visit.ready = False
        if self.checking:
            cells = len(self.bytes) // self.grain
            self.order = Ordering(self.batch, program, cells, self.grain, self.lane_base, self.clean)

    def _bases(self) -> Array:
        """Where each lane's memory starts."""
        return np.repeat(np.arange(len(self.batch.blocks)) * self.stride, self.batch.block_lanes)

    def settle(self) -> None:
        """Add the visits' costs to their sites, and forget the visits."""
        for places in self.by_content.values():
            for visit in places.visits.values():
                visit.site.costs += visit.hits * np.array(visit.costs)
        self.by_content.clear()
        self.by_identity.clear()
        self.clean.clear()

    # Accesses.

    def load(self, site: Site, base: Array, mask: Mask) -> tuple[Array, ...]:
        """site.count arrays of site.dtype."""
        if mask is False:
            return (np.zeros(1, site.dtype),) * site.count
        visit = self._access(site, base, mask)
        if not self.values:
            return (np.zeros(1, site.dtype),) * site.count
        return tuple(window.take(visit.index) for window in visit.windows)

    def store(self, site: Site, base: Array, mask: Mask, values: Sequence[Array]) -> None:
        """Where lanes share an address the last lane's value stays, and different values are a race."""
        if mask is not False:
            visit = self._access(site, base, mask)
            if self.values:
                self.put(visit, values, visit.mask)

    def places(self, site: Site, base: Array, mask: Mask) -> list[tuple[Array, Array, Array]]:
        """Of an atomic access: elements, the index of each lane's first one, and the numbers of the active lanes."""
        visit = self._access(site, base, mask)
        active = visit.places.active if visit.mask is None else visit.mask
        return [(visit.windows[0], visit.index, np.flatnonzero(active))] if self.values else []

    def _access(self, site: Site, base: Array, mask: Mask) -> Visit:
        """Count and check an access."""
        visit = self.visit(site, base, mask)
        visit.hits += 1
        if self.order is not None:
            self.order.add(visit, visit.mask)
            if self.pending is not None:
                self._check_pending(visit)
            if site.op != "st" and not visit.ready:
                self._check_written(visit)
        return visit

    def put(self, visit: Visit, values: Sequence[Array], mask: Mask) -> None:
        """Store without logging, as a completed asynchronous copy does."""
        index = visit.index if mask is None else visit.index[mask]
        for window, value in zip(visit.windows, values, strict=True):
            whole = np.broadcast_to(value, visit.index.shape)
            window[index] = whole if mask is None else whole[mask]
        if self.order is None:
            return
        if not visit.ready or mask is not visit.mask:
            for cell, _ in visit.cells(mask):
                self.written[cell] = True
            visit.ready = mask is visit.mask
        self._check_twice(visit, values, mask)

    # Asynchronous copies.

    def fly(self, visit: Visit, lanes: Array) -> None:
        """An asynchronous copy starts writing."""
        if self.order is None:
            return
        if self.pending is not None:
            self._check_pending(visit)
        self.order.add(visit, visit.mask)
        if self.pending is None:
            self.pending = np.zeros(len(self.bytes), np.int32)
        self.copies.append(visit.site)
        for cell, _ in visit.cells(lanes):
            self.pending[cell] = len(self.copies)

    def land(self) -> None:
        """No copy is in flight."""
        self.pending = None
        self.copies = []

    # Visits.

    def visit(self, site: Site, base: Array, mask: Mask) -> Visit:
        """The visit of a site at these addresses."""
        known = self.by_identity.get((id(base), id(mask)))
        places = known[2] if known is not None else self._places(base, mask)
        visit = places.visits.get(site.pc)
        if visit is None:
            visit = self._make(site, places)
            places.visits[site.pc] = visit
        return visit

    def _places(self, base: Array, mask: Mask) -> Places:
        if len(self.by_identity) > 4 * KEPT_PLACES:
            self.by_identity.clear()
        content = (base.tobytes() + bytes([base.itemsize]), b"" if mask is None else mask.tobytes())
        places = self.by_content.get(content)
        if places is None:
            logged = self.order is not None and self.order.log
            if len(self.by_content) > KEPT_PLACES and not logged and self.pending is None:
                self.settle()
            lanes = len(self.lane_base)
            active = np.ones(lanes, bool) if mask is None else mask
            # A 32-bit base may be negative, with an offset that makes the address positive.
            signed = base.view(np.int32 if base.itemsize == 4 else np.int64).astype(np.int64)
            address = np.broadcast_to(signed, (lanes,))
            places = Places(np.where(active, address, 0), active, mask, {}, {})
            self.by_content[content] = places
        # The entry keeps the register's array and the mask alive, so that no other object gets their identities.
        self.by_identity[id(base), id(mask)] = (base, mask, places)
        return places

    def _make(self, site: Site, places: Places) -> Visit:
        address = places.address + site.offset
        good = self._good_lanes(site, address, places.active)
        mask = places.mask if good is None else good
        active = places.active if good is None else good
        residue = site.offset % site.size
        if site.offset < 0 or good is not None or int(places.address.min()) + residue < 0:
            residue = site.offset
        shift = (site.offset - residue) // site.size
        index = places.indices.get((site.size, residue)) if good is None else None
        if index is None:
            index = (np.where(active, places.address + residue, 0) + self.lane_base) // site.size
            if good is None:
                places.indices[site.size, residue] = index
        elements = self.bytes.view(site.dtype)
        windows = tuple(elements[shift + k :] for k in range(site.count))
        visit = Visit(site, places, mask, index, windows, shift * site.size, self.grain)
        if self.counting:
            visit.costs = self._costs(site, places, address, active)
        return visit

    def _good_lanes(self, site: Site, address: Array, active: Array) -> Array | None:
        """None if the addresses of all active lanes are valid, else the lanes whose are; reports the others."""
        outside = active & ((address < 0) | (address + site.width > self.size))
        if outside.any():
            byte = f"byte {address[outside.argmax()]} of the {self.owner}'s {self.size} bytes of {self.space} memory"
            self.batch.tell(f"{self.space}-out-of-bounds", site, outside, f"{site.verb} at {byte}")
        if site.array is not None:
            offset = address - site.start
            strayed = active & ~outside & ((offset < 0) | (offset + site.width > site.array.size))
            if strayed.any():
                byte = f"byte {offset[strayed.argmax()]} of {plain_name(site.array.name)}"
                what = f"{site.verb} at {byte}, which has {site.array.size} bytes"
                self.batch.tell(f"{self.space}-out-of-bounds", site, strayed, what)
        crooked = active & ~outside & (address % site.width != 0)
        if crooked.any():
            byte = f"{self.space} byte {address[crooked.argmax()]}, which is not a multiple of {site.width}"
            self.batch.tell("misaligned", site, crooked, f"{site.verb} {site.width} bytes at {byte}")
        bad = outside | crooked
        return active & ~bad if bad.any() else None

    def _costs(self, site: Site, places: Places, address: Array, active: Array) -> tuple[int, ...]:
        """As a site's. Of accesses that ptxas joins, the leading one counts as the wide."""
        size = int(active.sum()) * site.width
        width, start = site.width, address
        for group in site.groups:
            wide = places.address + group.offset
            if not (wide[active] % group.width).any():
                if not group.leads:
                    return 0, 0, 0, 0, size, 0
                width, start = group.width, wide
                break
        if self.batch.watch is not None:
            self.batch.watch(site, start, active, width)
        requests, waves, conflicts = wavefronts(start.reshape(-1, WARP), active.reshape(-1, WARP), width)
        return requests, 0, waves, conflicts, size, 0

    # Checks.

    def _check_written(self, visit: Visit) -> None:
        missing = np.zeros(len(visit.index), bool)
        for cell, lane in visit.cells(visit.mask):
            missing[lane] |= ~self.written[cell]
        if missing.any():
            self.marks.fresh[visit.site.pc] = (visit.site, missing.astype(np.int32))
        else:
            visit.ready = True

    def _check_twice(self, visit: Visit, values: Sequence[Array], mask: Mask) -> None:
        """Two lanes of one store at one address: a race, unless they write the same value."""
        if visit.twice is None:
            index = visit.index if visit.mask is None else visit.index[visit.mask]
            visit.twice = len(np.unique(index)) < len(index)
        if not visit.twice:
            return
        for window, value in zip(visit.windows, values, strict=True):
            whole = np.broadcast_to(value, visit.index.shape)
            bits = f"u{window.itemsize}"
            lost = window[visit.index].view(bits) != np.ascontiguousarray(whole).view(bits)
            lost = lost if mask is None else lost & mask
            if lost.any():
                loser = int(lost.argmax())
                same = np.flatnonzero((visit.index == visit.index[loser]) & (True if mask is None else mask))
                threads = [*map(self.batch.locate, (loser, int(same[-1])))]
                what = f"{visit.site.place}, {ONE_STORE}"
                self.batch.tell_race("shared-race", (visit.site, visit.site), threads, what, int(lost.sum()))
                return

    def _check_pending(self, visit: Visit) -> None:
        assert self.pending is not None
        for cell, lane in visit.cells(visit.mask):
            early = self.pending[cell]
            if early.any():
                first = int((early != 0).argmax())
                copy = self.copies[int(early[first]) - 1]
                what = f"{'overwrites' if visit.site.writes else 'reads'} bytes that the cp.async of line {copy.line}"
                what += f"{called(copy)} is still writing: wait for the copy first"
                count = int(np.count_nonzero(early))
                self.batch.tell("missing-wait", visit.site, int(lane[first]), what, copy, count)
                return


class LocalMemory(SharedMemory):
    """Each lane's own bytes: arrays that the compiler could not keep in registers. As floats, they start as NaN."""

    space, owner, initial = "local", "thread", 0xFF

    def __init__(self, batch: Batch, size: int) -> None:
        super().__init__(batch, size, 1)
        self.counting, self.values, self.checking = False, True, False

    def _bases(self) -> Array:
        return np.arange(self.batch.lanes) * self.stride


Mark = tuple[Site, Array]  # what marked a register, and a number for each lane, 0 for none


class Marks:
    """Registers of the running batch that no instruction may use: loaded from shared memory before it was written, or
    sums of a wgmma, with the number of its group, that has not been waited for.

    Loading an unwritten value and discarding it is harmless, and prefetching loops do so in their last iteration. So a
    load only marks its registers; it is a finding when a marked one is an operand of anything but a register copy.
    """

    def __init__(self, program: Program, batch: Batch) -> None:
        self.program, self.batch = program, batch
        self.marked: dict[str, Mark] = {}
        self.fresh: dict[int, Mark] = {}  # by pc: of the results of instructions in the block that is running

    def complete(self, groups: Array) -> None:
        """The lanes have waited for their groups of wgmma up to these numbers."""
        for name, (site, number) in self.marked.items():
            if site.op == "wgmma":
                self.marked[name] = site, np.where(number <= groups, 0, number)

    def follow(self, block: Block, lanes: Array) -> None:
        """Follow marked registers through the block of code that these lanes just ran."""
        for instruction in self.program.kernel.instructions[block.start : block.stop]:
            mark, results = self.fresh.get(instruction.pc), defined(instruction)
            adds = instruction.parts[0] == "wgmma"  # to the sums of the one before
            for register in reads(instruction):
                known = self.marked.get(register.name)
                if known is None or (adds and register in results) or not known[1][lanes].any():
                    continue
                if instruction.parts[0] == "mov":
                    mark = known
                else:
                    self._report(instruction, known[0], lanes & (known[1] > 0))
                    del self.marked[register.name]
            for register in results:
                old = self.marked.pop(register.name, None)
                if latest := mark or old:
                    number = np.where(lanes, mark[1] if mark else 0, old[1] if old else 0)
                    self.marked[register.name] = latest[0], number
        self.fresh = {}
        live = self.program.flow.live_out[block.index]
        for name, (_, number) in [*self.marked.items()]:
            if not (number.any() if name in live else number[~lanes].any()):
                del self.marked[name]

    def _report(self, instruction: Instruction, site: Site, lanes: Array) -> None:
        if site.op == "wgmma":
            what = f"uses a result of the wgmma of line {site.line} before wgmma.wait_group"
            self.batch.tell("missing-wait", instruction, lanes, what)
            return
        array = plain_name(site.array.name) if site.array else "shared memory"
        what = f"reads {array} before any thread writes there, and line {instruction.line} uses the value"
        self.batch.tell("uninitialised-shared", site, lanes, what)
