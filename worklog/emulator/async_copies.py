"""Bulk copies between global and shared memory: cp.async.bulk and, with tensor maps, cp.async.bulk.tensor.

Copies to shared memory complete on an mbarrier (worklog.emulator.mbarrier). Copies to global memory complete at
cp.async.bulk.wait_group, and read their source then, the latest that a GPU may.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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
# PTX ISA, "cp.async.bulk": sizes and addresses are multiples of 16; with a tensor map, in shared memory of 128.
GRAIN, LINES = 16, 128


class Box(NamedTuple):
    """Of a copy of a lane. start: its first byte in shared memory; memory: the bytes from the address in global memory
    on; offset: of each element in them; inside: which elements exist there.
    """

    site: Site
    lane: int
    start: int
    layout: Layout
    memory: Array
    offset: Array
    inside: Array

    @property
    def places(self) -> Array:
        """The places in `memory` of the bytes of each element that exists there."""
        return self.offset[self.inside, None] + np.arange(self.layout.item)

    def read(self) -> Array:
        """From global memory, in the order of shared memory."""
        data = np.zeros((len(self.offset), self.layout.item), np.uint8)
        if self.layout.fill:
            data[:, -2:] = 0xFF, 0x7F
            data[:, :-2] = 0xFF
        data[self.inside] = self.memory[self.places]
        out = np.zeros(self.layout.bytes, np.uint8)
        out[self.layout.swizzled(self.start)] = data.ravel()
        return out

    def write(self, data: Array) -> None:
        """To global memory, from the bytes of shared memory."""
        ordered = data[self.layout.swizzled(self.start)].reshape(len(self.offset), -1)
        self.memory[self.places] = ordered[self.inside]


class BulkCopies:
    """What generated code calls, as `S.bulk`."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def start(self) -> None:
        """Begin a new batch."""
        self.stores: list[tuple[Box, int]] = []  # with the number of its group, of its lane
        self.groups: dict[int, int] = defaultdict(int)  # by lane, the groups that it has committed

    # Called by generated code.

    def load(self, site: Site, mask: Mask, tensor: bool, near: Array, far: Array, bar: Array, *which: Array) -> None:
        """Copies to shared memory, one lane after the other. far: the address in global memory, or of the tensor map;
        which: the size, or the coordinates.
        """
        barriers = self.machine.barriers
        for lane, (start, address, place, *rest) in self._each(mask, near, far, bar, *which):
            if (box := self._box(site, lane, tensor, start, address, rest)) is not None:
                barrier = barriers.at(site.pc, lane, place)
                if barrier is not None:
                    barriers.send(barrier, Flight(site, lane, start, box.read(), barrier.phase))

    def store(self, site: Site, mask: Mask, tensor: bool, near: Array, far: Array, *which: Array) -> None:
        """Copies to global memory; what is outside of a tensor is not written."""
        for lane, (start, address, *rest) in self._each(mask, near, far, *which):
            if (box := self._box(site, lane, tensor, start, address, rest)) is not None:
                if (order := self.machine.barriers.order) is not None:
                    order.drain(site, lane, start, box.layout.bytes)
                self.stores.append((box, self.groups[lane]))

    def commit(self, mask: Mask) -> None:
        """cp.async.bulk.commit_group."""
        for lane, _ in self._each(mask):
            self.groups[lane] += 1

    def wait(self, mask: Mask, count: int) -> None:
        """cp.async.bulk.wait_group: complete the lanes' copies except those of their `count` newest groups."""
        oldest = {lane: self.groups[lane] - count for lane, _ in self._each(mask)}
        stores, self.stores = self.stores, []
        for box, group in stores:
            if group < oldest.get(box.lane, 0):
                self._complete(box)
            else:
                self.stores.append((box, group))

    def finish(self) -> None:
        """The blocks have run to their end: their shared memory is gone."""
        for box, _ in self.stores:
            what = "exits before its copy from shared memory has been waited for: commit it, and use wait_group.read"
            self.machine.recorder.tell("missing-wait", box.site, box.lane, what)
            self._complete(box)

    def _complete(self, box: Box) -> None:
        shared, order, size = self.machine.shared, self.machine.barriers.order, box.layout.bytes
        first = int(shared.lane_base[box.lane]) + box.start
        if shared.values:
            box.write(shared.bytes[first : first + size])
        if order is not None:
            order.drained(box.site, box.lane, box.start, size)
        self.machine.spinning.version += 1

    # One copy.

    def _each(self, mask: Mask, *operands: Array) -> list[tuple[int, list[int]]]:
        """The active lanes with their operands."""
        machine = self.machine
        lanes = [] if mask is False else np.flatnonzero(machine.lanes_of(mask)).tolist()
        wide = [np.broadcast_to(operand, (machine.batch.lanes,)) for operand in operands]
        return [(lane, [int(each[lane]) for each in wide]) for lane in lanes]

    def _box(self, site: Site, lane: int, tensor: bool, start: int, address: int, which: Sequence[int]) -> Box | None:
        """A copy whose places are valid; None after a finding. Raises UnsupportedInstruction for a tensor map that is
        not the emulator's.
        """
        machine, unit = self.machine, LINES if tensor else GRAIN
        if tensor:
            address, layout = self._map(site, address, len(which))
            corner = [value - (value >> 31 << 32) for value in which]
        else:
            pieces = (-(-which[0] // GRAIN),)
            layout, corner = Layout(pieces, (), pieces, (1,), GRAIN, 0, False), [0]
        offset, inside = layout.places(corner)
        used, buffer, size = offset[inside], self._buffer(address), layout.bytes
        end = address + (int(used.max()) + layout.item if len(used) else 0)
        what = f"copies {size} bytes between shared byte {start} of {machine.shared.size} and global memory "
        what += machine.memory.name(address) + (f", the box at {tuple(corner)}" if tensor else "")
        if start % unit or address % GRAIN or (not tensor and which[0] % GRAIN):
            machine.recorder.tell("misaligned", site, lane, f"{what}: these must be multiples of {unit}, 16 and 16")
        elif not 0 <= start <= start + size <= machine.shared.size:
            machine.recorder.tell("shared-out-of-bounds", site, lane, what)
        elif buffer is None or end > buffer.base + buffer.size:
            machine.recorder.tell("global-out-of-bounds", site, lane, what)
        elif site.op == "ld" and not buffer.writable:
            machine.recorder.tell("read-only", site, lane, what)
        else:
            if site.source is not None and machine.memory.counting:
                units = [len(np.unique((address + used) // each)) for each in (SECTOR, LINE)]
                site.source.costs += np.array((1, units[0], 0, 0, len(used) * layout.item, units[1]))
            known = buffer.data if machine.shared.values else None
            memory = np.zeros(end - address, np.uint8) if known is None else known[address - buffer.base :]
            return Box(site, lane, start, layout, memory, offset, inside)
        return None

    def _map(self, site: Site, address: int, dimensions: int) -> tuple[int, Layout]:
        """The address and the layout that the tensor map at an address gives."""
        holder, found = self._buffer(address), None
        if holder is not None and holder.data is not None and address % 64 == 0:
            found = decoded(holder.data[address - holder.base :][:SIZE].tobytes())
        if found is None or len(found[1].shape) != dimensions:
            what = "no tensor map of this many dimensions that worklog.emulator.tensor_map has made"
            raise UnsupportedInstruction(f"line {site.line}: {site.text}: there is {what} at this address")
        return found

    def _buffer(self, address: int) -> Buffer | None:
        return next((b for b in self.machine.memory.buffers if b.base <= address < b.base + b.size), None)
