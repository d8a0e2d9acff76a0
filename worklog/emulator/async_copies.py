"""Bulk copies between global and shared memory: cp.async.bulk and, with tensor maps, cp.async.bulk.tensor.

Copies to shared memory complete on an mbarrier (worklog.emulator.mbarrier). Copies to global memory complete at
cp.async.bulk.wait_group, and read their source then, the latest that a GPU may.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from worklog.emulator.copies import SIZE, Box, Layout, decoded
from worklog.emulator.counts import sectors
from worklog.emulator.mbarrier import Barriers
from worklog.emulator.program import Site
from worklog.emulator.ptx import Array, Mask, UnsupportedInstruction
from worklog.emulator.running import Running

# PTX ISA, "cp.async.bulk": sizes and addresses are multiples of 16; with a tensor map, in shared memory of 128. A box
# starts at a multiple of 16 bytes along dimension 0: an H200 ends another copy with an illegal instruction.
GRAIN, LINES = 16, 128
BEFORE = "a store of a box that begins before its tensor"


class BulkCopies:
    """What generated code calls, as `S.bulk`."""

    def __init__(self, machine: Running, barriers: Barriers) -> None:
        self.machine, self.barriers = machine, barriers
        self.stores: list[tuple[Box, int]] = []  # with the number of its group, of its lane
        self.group: Array = np.zeros(machine.batch.lanes, np.int64)  # by lane, the groups that it has committed

    # Called by generated code.

    def load(self, site: Site, mask: Mask, tensor: bool, near: Array, far: Array, bar: Array, *which: Array) -> None:
        """Copies to shared memory. far: the address in global memory, or of the tensor map; which: the size, or the
        coordinates.
        """
        for box, operands in self._boxes(site, mask, tensor, near, far, *which, bar):
            barrier = self.barriers.at(site.pc, int(box.lanes[0]), int(operands[-1]))
            if barrier is not None:
                self.barriers.send(barrier, box)

    def store(self, site: Site, mask: Mask, tensor: bool, near: Array, far: Array, *which: Array) -> None:
        """Copies to global memory; what is outside of a tensor is not written."""
        for box, operands in self._boxes(site, mask, tensor, near, far, *which, self.group):
            if (order := self.machine.shared.order) is not None:
                order.drain(site, box.lanes, box.starts, box.layout.bytes)
            self.stores.append((box, int(operands[-1])))

    def commit(self, mask: Mask) -> None:
        """cp.async.bulk.commit_group."""
        self.group = self.group + self.machine.lanes_of(mask)

    def wait(self, mask: Mask, count: int) -> None:
        """cp.async.bulk.wait_group: complete the lanes' copies except those of their `count` newest groups."""
        waiting = np.where(self.machine.lanes_of(mask), self.group - count, 0)
        stores, self.stores = self.stores, []
        for box, group in stores:
            done = group < waiting[box.lanes]
            if done.any():
                self._complete(box.of(done))
            if not done.all():
                self.stores.append((box.of(~done), group))

    def finish(self) -> None:
        """The blocks have run to their end: their shared memory is gone."""
        for box, _ in self.stores:
            what = "exits before its copy from shared memory has been waited for: commit it, and use wait_group.read"
            self.machine.batch.tell("missing-wait", box.site, int(box.lanes[0]), what, count=len(box.lanes))
            self._complete(box)

    def _complete(self, box: Box) -> None:
        shared, order, size = self.machine.shared, self.machine.shared.order, box.layout.bytes
        first = shared.lane_base[box.lanes] + box.starts
        if shared.values:
            box.write(shared.bytes[first[:, None] + np.arange(size)])
        if order is not None:
            order.drained(box.site, box.lanes, box.starts, size)
        self.machine.version += 1

    # Lanes and their copies.

    def _boxes(
        self, site: Site, mask: Mask, tensor: bool, near: Array, far: Array, *operands: Array
    ) -> Iterator[tuple[Box, Array]]:
        """The copies of the active lanes whose places are valid, with the lane's operands; others are reported. Lanes
        of a block with equal operands are together, where their copies do not overlap.
        """
        lanes = np.flatnonzero(self.machine.lanes_of(mask))
        columns = [np.broadcast_to(each, (self.machine.batch.lanes,))[lanes] for each in (near, far, *operands)]
        starts, addresses, *rest = (column.astype(np.int64) for column in columns)
        values = np.array([lanes // self.machine.batch.block_lanes, *rest]).T
        order = np.lexsort(values.T[::-1]) if len(lanes) > 1 and not tensor else np.arange(len(lanes))
        changes = np.flatnonzero((np.diff(values[order], axis=0) != 0).any(axis=1) | tensor) + 1
        groups: list[Array] = np.split(order, changes) if len(lanes) else []
        for own in groups:
            given, box = values[own[0], 1:], None
            if len(own) == 1 or (np.diff(np.sort(starts[own])) >= given[0]).all():
                box = self._box(site, lanes[own], tensor, starts[own], addresses[own], given[:-1].tolist())
            if box is not None:
                yield box, given
            elif len(own) > 1:
                groups.extend(own[:, None])  # each alone

    def _box(
        self, site: Site, lanes: Array, tensor: bool, starts: Array, addresses: Array, which: Sequence[int]
    ) -> Box | None:
        """Copies whose places are valid; None, after a finding if it is a single one, where some are not. Raises
        UnsupportedInstruction for a tensor map that is not the emulator's.
        """
        machine, unit = self.machine, LINES if tensor else GRAIN
        if tensor:
            address, layout = self._map(site, int(addresses[0]), len(which))
            addresses, corner = np.array([address]), [value - (value >> 31 << 32) for value in which]
        else:
            pieces = (-(-which[0] // GRAIN),)
            layout, corner = Layout(pieces, (), pieces, (1,), GRAIN, 0, False), [0]
        (element, exists), low, size = layout.places(corner), int(addresses.min()), layout.bytes
        offset = (addresses - low)[:, None] + element
        inside = np.broadcast_to(exists, offset.shape)
        buffer, reach = machine.memory.at(low), int(element[exists].max()) + layout.item if exists.any() else 0
        kind, along = "", which[0] * (layout.item if tensor else 1)
        if (starts % unit).any() or (addresses % GRAIN).any() or along % GRAIN:
            kind = "misaligned"
        elif starts.min() < 0 or int(starts.max()) + size > machine.shared.size:
            kind = "shared-out-of-bounds"
        elif buffer is None or int(addresses.max()) + reach > buffer.base + buffer.size:
            kind = "global-out-of-bounds"
        elif site.op == "ld" and not buffer.writable:
            kind = "read-only"
        elif site.op == "ld" and min(corner) < 0:  # measured on an H200, which reads such a box
            kind = BEFORE
        if kind or buffer is None:
            what = f"copies {size} bytes between shared byte {starts[0]} of {machine.shared.size} and global memory "
            what += machine.memory.name(low) + (f", the box at {tuple(corner)}" if tensor else "")
            if kind == "misaligned" and along % GRAIN and tensor:
                what += ": boxes must start at multiples of 16 bytes along dimension 0"
            elif kind == "misaligned":
                what += f": these must be multiples of {unit}, 16 and 16"
            elif kind == BEFORE:
                kind, what = "global-out-of-bounds", f"{what}: an H200 ends {BEFORE} with an illegal instruction"
            if len(lanes) == 1:
                machine.batch.tell(kind, site, int(lanes[0]), what)
            return None
        if site.source is not None and machine.batch.counting:
            used = (addresses[:, None] + element)[inside].reshape(len(lanes), -1)
            _, touched, lines = sectors(used, np.ones(used.shape, bool)) if used.size else (0, 0, 0)
            site.source.costs += np.array((len(lanes), touched, 0, 0, used.size * layout.item, lines))
        known = buffer.data if machine.shared.values else None
        memory = np.zeros(int(addresses.max()) - low + reach, np.uint8) if known is None else known[low - buffer.base :]
        return Box(site, lanes, starts, layout, memory, offset, inside)

    def _map(self, site: Site, address: int, dimensions: int) -> tuple[int, Layout]:
        """The address and the layout that the tensor map at an address gives."""
        holder, found = self.machine.memory.at(address), None
        if holder is not None and holder.data is not None and address % 64 == 0:
            found = decoded(holder.data[address - holder.base :][:SIZE].tobytes())
        if found is None or len(found[1].shape) != dimensions:
            what = "no tensor map of this many dimensions that worklog.emulator.tensor_map has made"
            raise UnsupportedInstruction(f"line {site.line}: {site.text}: there is {what} at this address")
        return found
