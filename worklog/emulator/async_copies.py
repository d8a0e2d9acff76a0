"""Bulk copies between global and shared memory: cp.async.bulk and, with tensor maps, cp.async.bulk.tensor.

Copies to shared memory complete on an mbarrier (worklog.emulator.mbarrier). Copies to global memory complete at
cp.async.bulk.wait_group, and read their source then, the latest that a GPU may.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator.counts import LINE, SECTOR, Site
from worklog.emulator.globalmem import Buffer
from worklog.emulator.mbarrier import Flight

if TYPE_CHECKING:
    from worklog.emulator.machine import Machine

Array = NDArray[Any]
Mask = Any
GRAIN = 16  # PTX ISA, "cp.async.bulk": sizes and addresses are multiples of 16


@dataclass
class Store:
    """A copy of a lane from byte `start` of its shared memory to global memory. group: of its lane, from 0."""

    site: Site
    lane: int
    start: int
    target: Array | None
    size: int
    group: int


class BulkCopies:
    """What generated code calls, as `S.bulk`."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def start(self) -> None:
        """Begin a new batch."""
        self.stores: list[Store] = []
        self.groups: dict[int, int] = defaultdict(int)  # by lane, the groups that it has committed

    # Called by generated code.

    def load(self, site: Site, target: Array, source: Array, size: Array, barrier: Array, mask: Mask) -> None:
        """cp.async.bulk to shared memory, one lane after the other."""
        for lane, (start, place, count, bar) in self._each(mask, target, source, size, barrier):
            data = self._global(site, lane, place, count, writes=False)
            if data is not None and self._fits(site, lane, start, count):
                self._send(site, lane, start, data, bar)

    def store(self, site: Site, target: Array, source: Array, size: Array, mask: Mask) -> None:
        """cp.async.bulk to global memory."""
        for lane, (place, start, count) in self._each(mask, target, source, size):
            data = self._global(site, lane, place, count, writes=True)
            if data is not None and self._fits(site, lane, start, count):
                self._leave(Store(site, lane, start, data, count, self.groups[lane]))

    def commit(self, mask: Mask) -> None:
        """cp.async.bulk.commit_group."""
        for lane, _ in self._each(mask):
            self.groups[lane] += 1

    def wait(self, mask: Mask, count: int) -> None:
        """cp.async.bulk.wait_group: complete the lanes' copies except those of their `count` newest groups."""
        oldest = {lane: self.groups[lane] - count for lane, _ in self._each(mask)}
        done = [store for store in self.stores if store.group < oldest.get(store.lane, 0)]
        self.stores = [store for store in self.stores if store.group >= oldest.get(store.lane, 0)]
        for store in done:
            self._read(store)

    def finish(self) -> None:
        """The blocks have run to their end: their shared memory is gone."""
        for store in self.stores:
            what = "exits before its copy from shared memory has been waited for: commit it, and use wait_group.read"
            self.machine.recorder.tell("missing-wait", store.site, store.lane, what)
            self._read(store)
        self.stores = []

    # One copy.

    def _send(self, site: Site, lane: int, start: int, data: Array, bar: int) -> None:
        barriers = self.machine.barriers
        barrier = barriers.at(site.pc, lane, bar)
        if barrier is not None:
            barriers.send(barrier, Flight(site, lane, start, data, barrier.phase))

    def _leave(self, store: Store) -> None:
        order = self.machine.barriers.order
        if order is not None:
            order.drain(store.site, store.lane, store.start, store.size)
        self.stores.append(store)
        self.machine.spinning.stores += 1

    def _read(self, store: Store) -> None:
        """The copy's end, as far as its thread waits for it."""
        shared, order = self.machine.shared, self.machine.barriers.order
        first = int(shared.lane_base[store.lane]) + store.start
        if store.target is not None and shared.values:
            store.target[:] = shared.bytes[first : first + store.size]
        if order is not None:
            order.drained(store.site, store.lane, store.start, store.size)
        self.machine.spinning.version += 1

    # Places.

    def _each(self, mask: Mask, *operands: Array) -> list[tuple[int, list[int]]]:
        """The active lanes with their operands."""
        machine = self.machine
        lanes = [] if mask is False else np.flatnonzero(machine.lanes_of(mask)).tolist()
        wide = [np.broadcast_to(operand, (machine.batch.lanes,)) for operand in operands]
        return [(lane, [int(each[lane]) for each in wide]) for lane in lanes]

    def _global(self, site: Site, lane: int, address: int, size: int, *, writes: bool) -> Array | None:
        """The bytes of global memory of a copy, None after a finding. Zeros stand for a buffer without data."""
        buffer, verb = self._buffer(address), "writes" if writes else "reads"
        if address % GRAIN or size % GRAIN:
            what = f"{verb} {size} bytes {self.machine.memory.name(address)}: address and size must be multiples of 16"
            self.machine.recorder.tell("misaligned", site, lane, what)
        elif buffer is None or address + size > buffer.base + buffer.size:
            self.machine.recorder.tell(
                "global-out-of-bounds", site, lane, f"{verb} {size} bytes {self.machine.memory.name(address)}"
            )
        elif writes and not buffer.writable:
            self.machine.recorder.tell(
                "read-only", site, lane, f"writes {size} bytes in {buffer.name}, which is read-only"
            )
        else:
            self._count(site, address, size)
            if buffer.data is None or not self.machine.shared.values:
                return np.zeros(size, np.uint8)
            part = buffer.data[address - buffer.base :][:size]
            return part if writes else part.copy()
        return None

    def _buffer(self, address: int) -> Buffer | None:
        return next((b for b in self.machine.memory.buffers if b.base <= address < b.base + b.size), None)

    def _fits(self, site: Site, lane: int, start: int, size: int, multiple: int = GRAIN) -> bool:
        """Whether these bytes lie in the lane's shared memory."""
        bytes_ = self.machine.shared.size
        if start % multiple:
            what = f"copies {size} bytes at shared byte {start}, which is not a multiple of {multiple}"
            self.machine.recorder.tell("misaligned", site, lane, what)
        elif not 0 <= start <= start + size <= bytes_:
            what = f"copies {size} bytes at byte {start} of the block's {bytes_} bytes of shared memory"
            self.machine.recorder.tell("shared-out-of-bounds", site, lane, what)
        else:
            return True
        return False

    def _count(self, site: Site, address: int, size: int) -> None:
        """One request, with the sectors and lines that hold the bytes."""
        if site.source is not None and self.machine.memory.counting:
            spans = [(address + size - 1) // unit - address // unit + 1 for unit in (SECTOR, LINE)]
            site.source.costs += np.array((1, spans[0], 0, 0, size, spans[1]))
