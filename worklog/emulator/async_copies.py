"""Bulk copies between global and shared memory: cp.async.bulk and, with tensor maps, cp.async.bulk.tensor.

Copies to shared memory complete on an mbarrier (worklog.emulator.mbarrier). Copies to global memory complete at
cp.async.bulk.wait_group, and read their source then, the latest that a GPU may.

A driver's encoding of tensor maps (CUtensorMap) is not public: here they have the emulator's own, and it understands
only those that tensor_map() describes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from worklog.emulator.counts import Site, sectors
from worklog.emulator.findings import Array, BadLaunch, Mask, UnsupportedInstruction
from worklog.emulator.globalmem import Pointer

if TYPE_CHECKING:
    from worklog.emulator.machine import Machine

# PTX ISA, "cp.async.bulk": sizes and addresses are multiples of 16; with a tensor map, in shared memory of 128. A box
# starts at a multiple of 16 bytes along dimension 0: an H200 ends another copy with an illegal instruction.
GRAIN, LINES = 16, 128
BEFORE = "a store of a box that begins before its tensor"
_MAGIC, _ENCODING = b"worklog ", struct.Struct("<8sQQ104x")
SIZE = _ENCODING.size  # bytes of a CUtensorMap
# Bits of a byte's address in shared memory that each swizzle xors with the bits three higher (as CUTLASS's Swizzle).
SWIZZLES = {0: 0, 32: 1 << 4, 64: 3 << 4, 128: 7 << 4}


@dataclass(frozen=True)
class TensorMap:
    """An argument of a kernel: a tensor in global memory, and the box of it that one copy moves. See tensor_map()."""

    pointer: Pointer
    layout: Layout

    def encoded(self, address: int) -> bytes:
        """The parameter's bytes for a tensor at this address."""
        if self.layout not in LAYOUTS:
            LAYOUTS.append(self.layout)
        return _ENCODING.pack(_MAGIC, address, LAYOUTS.index(self.layout))


class Layout(NamedTuple):
    """Of a tensor with up to five dimensions, the innermost first. strides: bytes, from dimension 1 on. item: bytes of
    an element. fill: whether elements outside of the tensor are NaN, not zero.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    item: int
    swizzle: int
    fill: bool

    @property
    def counts(self) -> tuple[int, ...]:
        """Elements of a box per dimension. CUDA Driver API, cuTensorMapEncodeTiled: ceil(box / step)."""
        return tuple(-(-size // step) for size, step in zip(self.box, self.steps, strict=True))

    @property
    def bytes(self) -> int:
        """Of a box in shared memory, elements outside of the tensor included."""
        return int(np.prod(self.counts)) * self.item

    def places(self, corner: Sequence[int]) -> tuple[Array, Array]:
        """Of the box at a corner: each element's offset in bytes from the tensor's first one, and whether it is inside.
        In the order of shared memory: dimension 0 fastest.
        """
        offset, inside = np.zeros(1, np.int64), np.ones(1, bool)
        pitches = (self.item, *self.strides)
        for size, pitch, first, count, step in zip(self.shape, pitches, corner, self.counts, self.steps, strict=True):
            index = first + step * np.arange(count)
            offset = (offset + (index * pitch)[:, None]).ravel()
            inside = (inside & ((index >= 0) & (index < size))[:, None]).ravel()
        return offset, inside

    def swizzled(self, start: int) -> Array:
        """Where each byte of a box goes that is copied to byte `start` of shared memory, from there on."""
        address = start + np.arange(self.bytes)
        out: Array = (address ^ (address >> 3 & SWIZZLES[self.swizzle])) - start
        return out


LAYOUTS: list[Layout] = []  # of this process's tensor maps, whose bytes give the number of one of these


def tensor_map(
    data: Array | Pointer,
    box: Sequence[int],
    *,
    shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    item: int = 4,
    swizzle: int = 0,
    nan: bool = False,
) -> TensorMap:
    """An argument for a parameter `const __grid_constant__ CUtensorMap`, as cuTensorMapEncodeTiled would make it.

    data: a contiguous array, or a Pointer to one, whose elements have `item` bytes. All sequences begin with the
    innermost dimension. box: elements per copy, up to 256 per dimension. shape: elements of the tensor (default: the
    array's); strides: bytes from one element to the next in dimensions 1 and up (default: of a contiguous tensor).
    steps: element strides. swizzle: 0, 32, 64 or 128, which the innermost dimension of the box must have in bytes.
    nan: elements outside of the tensor become NaN (of 2, 4 or 8 bytes), not zero. Interleaved layouts and im2col are
    not emulated. Raises BadLaunch where cuTensorMapEncodeTiled gives an error.
    """
    pointer = data if isinstance(data, Pointer) else Pointer(data, data.nbytes)
    if isinstance(data, np.ndarray):
        item, shape = data.itemsize, shape or data.shape[::-1]
    if shape is None:
        raise BadLaunch("a tensor map of a Pointer needs a shape")
    sizes = tuple(map(int, shape))
    pitches = [item * int(np.prod(sizes[: k + 1], dtype=np.int64)) for k in range(len(sizes) - 1)]
    layout = Layout(sizes, tuple(strides or pitches), tuple(box), tuple(steps or (1,) * len(sizes)), item, swizzle, nan)
    inner = layout.box[0] * item if layout.box else 0
    rules = {
        "a tensor has 1 to 5 dimensions": 1 <= len(sizes) <= 5,
        "box, steps and strides must fit the shape": len(sizes) == len(layout.box) == len(layout.steps)
        and len(layout.strides) == len(sizes) - 1,
        "a box has 1 to 256 elements per dimension": all(1 <= size <= 256 for size in layout.box),
        "a tensor has 1 to 2**32 elements per dimension": all(1 <= size <= 2**32 for size in sizes),
        "steps are 1 to 8, and 1 in dimension 0": all(1 <= n <= 8 for n in layout.steps) and layout.steps[:1] == (1,),
        "strides are multiples of 16 below 2**40": all(n % 16 == 0 and 0 < n < 2**40 for n in layout.strides),
        "elements have 1, 2, 4 or 8 bytes, and 2, 4 or 8 with nan": item in (2, 4, 8) or (item == 1 and not nan),
        "the innermost dimension of a box is a multiple of 16 bytes": inner % 16 == 0,
        "swizzle is 0, or 32, 64 or 128 and as many bytes as a box's innermost dimension": swizzle == 0
        or (swizzle in SWIZZLES and inner == swizzle),
        "the tensor must start at a multiple of 16 bytes": pointer.skew % 16 == 0,
    }
    for rule, holds in rules.items():
        if not holds:
            raise BadLaunch(f"invalid tensor map: {rule}")
    return TensorMap(pointer, layout)


def decoded(data: bytes) -> tuple[int, Layout] | None:
    """The tensor's address and layout; None if the bytes are not the emulator's."""
    magic, address, number = _ENCODING.unpack(data.ljust(SIZE))
    return (address, LAYOUTS[number]) if magic == _MAGIC else None


class Box(NamedTuple):
    """Copies of lanes of a block, by lane. starts: their first bytes in shared memory; memory: the bytes from an
    address in global memory on; offset: of each element in them; inside: which elements exist there.
    """

    site: Site
    lanes: Array
    starts: Array
    layout: Layout
    memory: Array
    offset: Array
    inside: Array

    @property
    def places(self) -> Array:
        """The places in `memory` of the bytes of each element that exists there."""
        return self.offset[self.inside][:, None] + np.arange(self.layout.item)

    def of(self, which: Array) -> Box:
        """The copies of some of the lanes."""
        lanes, starts, offset, inside = (each[which] for each in (self.lanes, self.starts, self.offset, self.inside))
        return self._replace(lanes=lanes, starts=starts, offset=offset, inside=inside)

    def read(self) -> Array:
        """From global memory, in the order of shared memory, by lane."""
        data = np.zeros((*self.offset.shape, self.layout.item), np.uint8)
        if self.layout.fill:
            data[..., -2:] = 0xFF, 0x7F
            data[..., :-2] = 0xFF
        data[self.inside] = self.memory[self.places]
        out = np.zeros((len(data), self.layout.bytes), np.uint8)
        out[:, self.layout.swizzled(int(self.starts[0]))] = data.reshape(len(data), -1)
        return out

    def write(self, data: Array) -> None:
        """To global memory, from the bytes of shared memory, by lane."""
        ordered = data[:, self.layout.swizzled(int(self.starts[0]))].reshape(*self.offset.shape, -1)
        self.memory[self.places] = ordered[self.inside]


class BulkCopies:
    """What generated code calls, as `S.bulk`."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.stores: list[tuple[Box, int]] = []  # with the number of its group, of its lane
        self.group: Array = np.zeros(machine.batch.lanes, np.int64)  # by lane, the groups that it has committed

    # Called by generated code.

    def load(self, site: Site, mask: Mask, tensor: bool, near: Array, far: Array, bar: Array, *which: Array) -> None:
        """Copies to shared memory. far: the address in global memory, or of the tensor map; which: the size, or the
        coordinates.
        """
        barriers = self.machine.barriers
        for box, operands in self._boxes(site, mask, tensor, near, far, *which, bar):
            barrier = barriers.at(site.pc, int(box.lanes[0]), int(operands[-1]))
            if barrier is not None:
                barriers.send(barrier, box)

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
        self.machine.spinning.version += 1

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
