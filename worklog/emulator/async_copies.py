"""Bulk copies between global and shared memory: cp.async.bulk and, with tensor maps, cp.async.bulk.tensor.

Copies to shared memory complete on an mbarrier (worklog.emulator.mbarrier). Copies to global memory complete at
cp.async.bulk.wait_group, and read their source then, the latest that a GPU may.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator.counts import LINE, SECTOR, Site
from worklog.emulator.findings import UnsupportedInstruction
from worklog.emulator.globalmem import Buffer
from worklog.emulator.mbarrier import Flight
from worklog.emulator.tensor_map import SIZE, Layout, decoded

if TYPE_CHECKING:
    from worklog.emulator.machine import Machine

Array = NDArray[Any]
Mask = Any
LINES = 128  # PTX ISA, "cp.async.bulk.tensor": the alignment in shared memory
GRAIN = 16  # PTX ISA, "cp.async.bulk": sizes and addresses are multiples of 16


@dataclass
class Store:
    """A copy of `size` bytes of a lane from byte `start` of its shared memory to global memory. write: puts them there.
    group: of its lane, from 0.
    """

    site: Site
    lane: int
    start: int
    size: int
    write: Callable[[Array], None]
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
                self._leave(Store(site, lane, start, count, partial(np.copyto, data), self.groups[lane]))

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

    def load_tensor(self, site: Site, target: Array, map_: Array, barrier: Array, mask: Mask, *corner: Array) -> None:
        """cp.async.bulk.tensor to shared memory: a box, with zeros or NaN for what is outside of the tensor."""
        for lane, (start, place, bar, *first) in self._each(mask, target, map_, barrier, *corner):
            layout, memory, offset, inside = self._tensor(site, lane, place, first, writes=False)
            if memory is not None and self._fits(site, lane, start, layout.bytes, LINES):
                fill = {0: 0, 2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0x7FFFFFFFFFFFFFFF}[layout.fill]
                box = np.full(len(offset), fill, f"u{layout.item}")
                box[inside] = memory[_bytes(offset[inside], layout.item)].view(box.dtype).ravel()
                data = np.zeros(layout.bytes, np.uint8)
                data[layout.swizzled(start)] = box.view(np.uint8)
                self._send(site, lane, start, data, bar)

    def store_tensor(self, site: Site, map_: Array, source: Array, mask: Mask, *corner: Array) -> None:
        """cp.async.bulk.tensor to global memory: what is outside of the tensor is not written."""
        for lane, (place, start, *first) in self._each(mask, map_, source, *corner):
            layout, memory, offset, inside = self._tensor(site, lane, place, first, writes=True)
            if memory is not None and self._fits(site, lane, start, layout.bytes, LINES):
                places = _bytes(offset[inside], layout.item), layout.swizzled(start), inside
                write = partial(_scatter, memory, *places)
                self._leave(Store(site, lane, start, layout.bytes, write, self.groups[lane]))

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
        if shared.values:
            store.write(shared.bytes[first : first + store.size])
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

    def _tensor(
        self, site: Site, lane: int, address: int, corner: Sequence[int], *, writes: bool
    ) -> tuple[Layout, Array | None, Array, Array]:
        """Of the tensor map at an address: its layout, the tensor's memory (None after a finding), and the box's places
        in it. Raises UnsupportedInstruction for a map that is not the emulator's.
        """
        holder = self._buffer(address)
        data = b"" if holder is None or holder.data is None else holder.data[address - holder.base :][:SIZE].tobytes()
        found = decoded(data)
        if found is None or len(found[1].shape) != len(corner) or address % 64:
            what = "no tensor map of this many dimensions that worklog.emulator.tensor_map has made"
            raise UnsupportedInstruction(f"line {site.line}: {site.text}: there is {what} at this address")
        base, layout = found
        offset, inside = layout.places([value - (value >> 31 << 32) for value in corner])
        used = offset[inside]
        buffer, size = self._buffer(base), int(used.max()) + layout.item if len(used) else 0
        if buffer is None or base + size > buffer.base + buffer.size:
            what = f"{'writes' if writes else 'reads'} the box at {tuple(corner)} of a tensor map up to byte {size}"
            self.machine.recorder.tell("global-out-of-bounds", site, lane, f"{what}, past the end of its buffer")
            return layout, None, offset, inside
        if site.source is not None and self.machine.memory.counting:
            units = [len(np.unique((base + used) // unit)) for unit in (SECTOR, LINE)]
            site.source.costs += np.array((1, units[0], 0, 0, len(used) * layout.item, units[1]))
        if buffer.data is None or not self.machine.shared.values:
            return layout, np.zeros(size, np.uint8), offset, inside
        return layout, buffer.data[base - buffer.base :], offset, inside

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


def _bytes(offset: Array, item: int) -> Array:
    """The places of each element's bytes, one row per element."""
    return offset[:, None] + np.arange(item)


def _scatter(memory: Array, places: Array, order: Array, inside: Array, data: Array) -> None:
    """Write a box from shared memory. places: of the bytes of its elements that are inside of the tensor."""
    memory[places] = data[order].reshape(len(inside), -1)[inside]
