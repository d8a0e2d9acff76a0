"""Global, constant and local memory: buffers at made-up device addresses, far apart, so that a wrong index hits
nothing.

A buffer without data stands for one of any size whose values do not matter: loads give zeros, stores vanish, and
the traffic is counted all the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator.findings import Place, Recorder
from worklog.emulator.sites import Site
from worklog.emulator.traffic import WARP, sectors

Array = NDArray[Any]
Mask = Any  # None for all lanes, False for none, else a bool array
Watch = Callable[[Site, Array, Array, int], None]  # site, address and activity of each lane, bytes a lane
FIRST_ADDRESS = 1 << 40
SPACING = 1 << 40


@dataclass(frozen=True)
class Buffer:
    """Memory of a launch. name: for messages. base: its address. data: its bytes as uint8, or None. writable: by
    kernels.
    """

    name: str
    base: int
    size: int
    data: Array | None
    writable: bool = True

    def elements(self, dtype: str) -> Array:
        """The bytes as elements of a dtype, sharing memory; a last part of an element is left out."""
        assert self.data is not None
        size = np.dtype(dtype).itemsize
        out: Array = self.data[: self.size // size * size].view(dtype)
        return out


@dataclass(frozen=True)
class _Cost:
    """What a site's last access cost, and for which addresses: relative to the warp's first, and that one in its
    sector.
    """

    mask: Mask
    relative: Array
    start: Array
    requests: int
    sectors: int
    bytes: int

    def fits(self, mask: Mask, relative: Array, start: Array) -> bool:
        same = self.mask is mask and self.relative.shape == relative.shape
        return same and bool((self.relative == relative).all()) and bool((self.start == start).all())


class GlobalMemory:
    """All buffers of one launch. `place` maps a lane of the running batch to block and thread for messages."""

    def __init__(self, recorder: Recorder, place: Place, counting: bool, values: bool) -> None:
        self.recorder, self.place = recorder, place
        self.counting, self.values = counting, values
        self.buffers: list[Buffer] = []
        self.bases: list[int] = []
        self.blocks: Sequence[int] = ()
        self.watch: Watch | None = None

    def add(self, name: str, data: Array | None, size: int, *, skew: int = 0, writable: bool = True) -> int:
        """Give memory an address, a multiple of 256 as cudaMalloc's plus `skew`, and return it."""
        base = FIRST_ADDRESS + len(self.buffers) * SPACING + skew
        self.buffers.append(Buffer(name, base, size, data, writable))
        self.bases.append(base)
        return base

    def find(self, address: int) -> Buffer | None:
        """The buffer that the address lies in or shortly behind."""
        number = bisect_right(self.bases, address) - 1
        if number < 0 or address >= self.bases[number] + self.buffers[number].size:
            return None
        return self.buffers[number]

    def locate(
        self, site: Site, base: Array, mask: Mask, width: int, offset: int, write: bool
    ) -> list[tuple[Buffer, Array, Mask]]:
        """Buffers that lanes access, with byte positions in them; usually one. Wrong lanes are reported and left
        out.
        """
        chosen = base if mask is None or len(base) == 1 else base[mask]
        low, high = int(chosen.min()) + offset, int(chosen.max()) + offset
        buffer = self.find(low)
        if buffer is not None and high + width <= buffer.base + buffer.size and (buffer.writable or not write):
            position = base - np.uint64(buffer.base - offset)
            if mask is not None and len(base) > 1:
                position = np.where(mask, position, np.uint64(0))
            if not (int(np.bitwise_or.reduce(position)) + buffer.base) & (width - 1):
                return [(buffer, position.view(np.int64), mask)]
        return self._locate_each(site, base, mask, width, offset, write)

    def _locate_each(
        self, site: Site, base: Array, mask: Mask, width: int, offset: int, write: bool
    ) -> list[tuple[Buffer, Array, Mask]]:
        lanes = len(self.blocks) * self.place.lanes
        address = np.broadcast_to(base.view(np.int64), (lanes,)) + offset
        active = np.ones(lanes, bool) if mask is None else mask
        crooked = active & (address % width != 0)
        if crooked.any():
            lane = int(crooked.argmax())
            self._report(
                "misaligned",
                site,
                crooked,
                f"accesses {width} bytes, {self._name(int(address[lane]))}: no multiple of {width}",
            )
        left = active & ~crooked
        out: list[tuple[Buffer, Array, Mask]] = []
        for buffer in self.buffers:
            inside = left & (address >= buffer.base) & (address + width <= buffer.base + buffer.size)
            if inside.any():
                left = left & ~inside
                if write and not buffer.writable:
                    self._report("read-only", site, inside, f"writes to {buffer.name}")
                else:
                    out.append((buffer, np.where(inside, address - buffer.base, 0), inside))
        if left.any():
            lane = int(left.argmax())
            verb = "writes" if write else "reads"
            self._report("global-out-of-bounds", site, left, f"{verb} {width} bytes, {self._name(int(address[lane]))}")
        return out

    def _name(self, address: int) -> str:
        """An address in words: relative to the buffer it is nearest to."""
        near = min(self.buffers, key=lambda b: max(b.base - address, address - b.base - b.size, 0), default=None)
        if near is None or abs(address - near.base) > SPACING // 2:
            return f"at address {address:#x}, in no buffer"
        offset = address - near.base
        if offset < 0:
            return f"{-offset} bytes before {near.name}"
        if offset >= near.size:
            behind = f"{offset - near.size} bytes behind" if offset > near.size else "just behind"
            return f"{behind} the end of {near.name} ({near.size} bytes)"
        return f"at byte {offset} of {near.name} ({near.size} bytes)"

    def _report(self, kind: str, site: Site, lanes: Array, what: str) -> None:
        first = int(lanes.argmax())
        block = self.blocks[first // self.place.lanes]
        same = np.flatnonzero(lanes[first // self.place.lanes * self.place.lanes :][: self.place.lanes])
        where = self.place.block_at(block)
        thread = first % self.place.lanes
        message = f"thread {thread} of block {where} {what}{site.called}"
        threads, count = same[:32].tolist(), int(lanes.sum())
        self.recorder.add(kind, site.line, message, where, threads, count=count, callers=(site.caller,))

    def load(self, site: Site, base: Array, mask: Mask) -> tuple[Array, ...]:
        """site.count arrays of site.dtype; zeros where the lane is not in the mask or its address is wrong."""
        zero = np.zeros(1, site.dtype)
        if mask is False:
            return (zero,) * site.count
        parts = self.locate(site, base, mask, site.width, site.offset, False)
        if self.counting:
            self.count(site, base, mask, site.offset, site.width)
        if not self.values:
            return (zero,) * site.count
        if len(parts) == 1 and (parts[0][2] is mask or mask is None):
            return self._fetch(site, parts[0])
        out = tuple(np.zeros(len(self.blocks) * self.place.lanes, site.dtype) for _ in range(site.count))
        for part in parts:
            for total, fetched in zip(out, self._fetch(site, part), strict=True):
                total[part[2]] = np.broadcast_to(fetched, total.shape)[part[2]]
        return out

    def _fetch(self, site: Site, part: tuple[Buffer, Array, Mask]) -> tuple[Array, ...]:
        buffer, position, _ = part
        if buffer.data is None:
            return (np.zeros(1, site.dtype),) * site.count
        elements = buffer.elements(site.dtype)
        index = position >> (site.size.bit_length() - 1)
        return tuple(elements[k:].take(index) for k in range(site.count))

    def store(self, site: Site, base: Array, mask: Mask, values: Sequence[Array]) -> None:
        """Write; where lanes share an address the last lane's value stays."""
        if mask is False:
            return
        parts = self.locate(site, base, mask, site.width, site.offset, True)
        if self.counting:
            self.count(site, base, mask, site.offset, site.width)
        if not self.values:
            return
        lanes = len(self.blocks) * self.place.lanes
        for buffer, position, inside in parts:
            if buffer.data is None:
                continue
            elements = buffer.elements(site.dtype)
            index = np.broadcast_to(position >> (site.size.bit_length() - 1), (lanes,))
            index = index if inside is None else index[inside]
            for k, value in enumerate(values):
                whole = np.broadcast_to(value, (lanes,))
                elements[k:][index] = whole if inside is None else whole[inside]

    def atomic(self, site: Site, base: Array, mask: Mask, combine: Callable[[Array, int, int], None]) -> None:
        """Call combine(elements, index, lane) for each active lane in order."""
        lanes = len(self.blocks) * self.place.lanes
        parts = self.locate(site, base, mask, site.width, site.offset, True)
        if self.counting:
            self.count(site, base, mask, site.offset, site.width)
        for buffer, position, inside in parts:
            if buffer.data is None or not self.values:
                continue
            elements = buffer.elements(site.dtype)
            index = np.broadcast_to(position // site.size, (lanes,))
            for lane in np.flatnonzero(np.ones(lanes, bool) if inside is None else inside):
                combine(elements, int(index[lane]), int(lane))

    def count(self, site: Site, base: Array, mask: Mask, offset: int, width: int) -> None:
        """Add the access to the site's requests, sectors and bytes.

        The cost depends on the addresses relative to the warp's first and on that one's place in its sector. In a
        loop both tend to stay what they were, so the last answer is kept with what it was for.
        """
        lanes = len(self.blocks) * self.place.lanes
        if len(base) == 1:
            base = np.broadcast_to(base, (lanes,))
        warps = base.reshape(-1, WARP)
        relative = warps - warps[:, :1]
        start = (warps[:, 0] + np.uint64(offset % 2**64)) & np.uint64(31)
        if self.watch is not None:
            lit = np.ones(lanes, bool) if mask is None else mask
            self.watch(site, (base + np.uint64(offset % 2**64)).view(np.int64), lit, width)
        memo: _Cost | None = site.memo.get("traffic")
        if memo is None or not memo.fits(mask, relative, start):
            active = np.ones((lanes // WARP, WARP), bool) if mask is None else mask.reshape(-1, WARP)
            requests, touched = sectors((warps + np.uint64(offset % 2**64)).view(np.int64), active, width)
            memo = _Cost(mask, relative, start, requests, touched, int(active.sum()) * width)
            site.memo["traffic"] = memo
        site.requests += memo.requests
        site.sectors += memo.sectors
        site.bytes += memo.bytes


class LocalMemory:
    """Each lane's own bytes: arrays that the compiler could not keep in registers."""

    def __init__(self, recorder: Recorder, place: Place, size: int) -> None:
        self.recorder, self.place, self.size = recorder, place, -(-size // 16) * 16
        self.blocks: Sequence[int] = ()
        self.bytes: Array = np.zeros(0, np.uint8)

    def start(self, blocks: Sequence[int]) -> None:
        """Fresh memory for a batch of blocks: what nobody has written is no number."""
        self.blocks = blocks
        self.bytes = np.full(len(blocks) * self.place.lanes * self.size, 0xFF, np.uint8)

    def _index(self, site: Site, base: Array, mask: Mask) -> tuple[Array, Array]:
        lanes = len(self.blocks) * self.place.lanes
        signed = base.view(np.int32 if base.itemsize == 4 else np.int64).astype(np.int64)
        address = np.broadcast_to(signed, (lanes,)) + site.offset
        active = np.ones(lanes, bool) if mask is None else mask
        bad = active & ((address < 0) | (address + site.width > self.size) | (address % site.width != 0))
        if bad.any():
            lane = int(bad.argmax())
            where = self.place.block_at(self.blocks[lane // self.place.lanes])
            kind = "misaligned" if address[lane] % site.width else "local-out-of-bounds"
            thread = lane % self.place.lanes
            message = (
                f"thread {thread} of block {where} accesses byte {address[lane]} of {self.size} bytes of local memory"
            )
            self.recorder.add(kind, site.line, message, where, [thread], count=int(bad.sum()))
        good = active & ~bad
        return (np.where(good, address, 0) + np.arange(lanes) * self.size) // site.size, good

    def load(self, site: Site, base: Array, mask: Mask) -> tuple[Array, ...]:
        """As GlobalMemory.load."""
        if mask is False:
            return (np.zeros(1, site.dtype),) * site.count
        index, _ = self._index(site, base, mask)
        elements = self.bytes.view(site.dtype)
        return tuple(elements.take(index + k) for k in range(site.count))

    def store(self, site: Site, base: Array, mask: Mask, values: Sequence[Array]) -> None:
        """As GlobalMemory.store."""
        if mask is False:
            return
        index, good = self._index(site, base, mask)
        elements = self.bytes.view(site.dtype)
        for k, value in enumerate(values):
            elements[index[good] + k] = np.broadcast_to(value, index.shape)[good]
