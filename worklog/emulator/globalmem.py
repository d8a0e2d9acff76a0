"""Global and constant memory.

A buffer without data stands for one whose values do not matter: loads give zeros, stores are dropped, and the traffic
is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from worklog.emulator.counts import LINE, WARP, sectors
from worklog.emulator.findings import Batch
from worklog.emulator.global_checks import GlobalChecks
from worklog.emulator.program import Site
from worklog.emulator.ptx import Array, Mask

FIRST_ADDRESS, FIRST_VARIABLE = 1 << 40, 1 << 50
SPACING = 1 << 40


@dataclass(frozen=True)
class Pointer:
    """A buffer argument. data: a contiguous array, written in place; None stands for `size` bytes of unknown values.

    skew: bytes from the last 256-byte boundary to the buffer, as in a view into a larger buffer.
    """

    data: Array | None
    size: int
    name: str = ""
    skew: int = 0


@dataclass(frozen=True)
class Buffer:
    """Memory of a launch. name: for messages. base: its address. data: its bytes as uint8, or None."""

    name: str
    base: int
    size: int
    data: Array | None
    writable: bool = True


class GlobalMemory:
    """All buffers of one launch. checks: of races, or None."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.checks: GlobalChecks | None = None
        self.buffers: list[Buffer] = []

    def at(self, address: int) -> Buffer | None:
        """The buffer that a global address is in."""
        return next((b for b in self.buffers if b.base <= address < b.base + b.size), None)

    def _locate(self, site: Site, base: Array, mask: Mask) -> list[tuple[Buffer, Array, Mask]]:
        """Buffers that lanes access, usually one, with byte positions and lanes. Counts the access; invalid lanes are
        reported and left out.
        """
        if self.batch.counting:
            self._count(site, base, mask)
        width, offset = site.width, site.offset
        chosen = base if mask is None or len(base) == 1 else base[mask]
        low, high = int(chosen.min()) + offset, int(chosen.max()) + offset
        buffer = self.at(low)
        if buffer is not None and high + width <= buffer.base + buffer.size and (buffer.writable or not site.writes):
            position = base - np.uint64(buffer.base - offset)
            if mask is not None and len(base) > 1:
                position = np.where(mask, position, np.uint64(0))
            if not (int(np.bitwise_or.reduce(position)) + buffer.base) & (width - 1):
                return [(buffer, position.view(np.int64), mask)]
        return self._locate_each(site, base, mask)

    def _locate_each(self, site: Site, base: Array, mask: Mask) -> list[tuple[Buffer, Array, Mask]]:
        lanes, width = self.batch.lanes, site.width
        address = np.broadcast_to(base.astype(np.int64), (lanes,)) + site.offset
        active = np.ones(lanes, bool) if mask is None else mask
        crooked = active & (address % width != 0)
        if crooked.any():
            where = self.name(int(address[crooked.argmax()]))
            self._report("misaligned", site, crooked, f"{where}: the address is not a multiple of {width}")
        left = active & ~crooked
        out: list[tuple[Buffer, Array, Mask]] = []
        for buffer in self.buffers:
            inside = left & (address >= buffer.base) & (address + width <= buffer.base + buffer.size)
            if inside.any():
                left = left & ~inside
                if site.writes and not buffer.writable:
                    self._report("read-only", site, inside, f"in {buffer.name}, which is read-only")
                else:
                    out.append((buffer, np.where(inside, address - buffer.base, 0), inside))
        if left.any():
            self._report("global-out-of-bounds", site, left, self.name(int(address[left.argmax()])))
        return out

    def name(self, address: int) -> str:
        """An address for messages: relative to the nearest buffer."""
        near = min(self.buffers, key=lambda b: max(b.base - address, address - b.base - b.size, 0), default=None)
        if near is None or abs(address - near.base) > SPACING // 2:
            return f"at address {address:#x}, in no buffer"
        offset = address - near.base
        if offset < 0:
            return f"{-offset} bytes before {near.name}"
        if offset >= near.size:
            past = f"{offset - near.size} bytes past" if offset > near.size else "just past"
            return f"{past} the end of {near.name} ({near.size} bytes)"
        return f"at byte {offset} of {near.name} ({near.size} bytes)"

    def _report(self, kind: str, site: Site, lanes: Array, where: str) -> None:
        self.batch.tell(kind, site, lanes, f"{site.verb} {site.width} bytes {where}")

    def _accessed(
        self, site: Site, base: Array, mask: Mask, values: Sequence[Array] = ()
    ) -> list[tuple[Array, Array, Mask]]:
        """For each buffer with data: its bytes as elements of the site's dtype, the index of each lane's first one, and
        the lanes. values: to be stored.
        """
        parts, size, shift = self._locate(site, base, mask), site.size, site.size.bit_length() - 1
        out = []
        for buffer, position, inside in parts:
            if self.batch.values and buffer.data is not None:
                # Without an incomplete last element.
                elements = buffer.data[: buffer.size // size * size].view(site.dtype)
                if self.checks is not None:
                    self.checks.access(site, buffer.base, elements, position, inside, values)
                out.append((elements, position >> shift, inside))
        return out

    def load(self, site: Site, base: Array, mask: Mask) -> tuple[Array, ...]:
        """site.count arrays of site.dtype; zeros for lanes outside the mask or with an invalid address."""
        parts = [] if mask is False else self._accessed(site, base, mask)
        if not parts:
            return (np.zeros(1, site.dtype),) * site.count
        if len(parts) == 1 and parts[0][2] is mask:
            elements, index, _ = parts[0]
            return tuple(elements[k:].take(index) for k in range(site.count))
        out = tuple(np.zeros(self.batch.lanes, site.dtype) for _ in range(site.count))
        for elements, index, inside in parts:
            for k, total in enumerate(out):
                total[inside] = elements[k:].take(index[inside])
        return out

    def store(self, site: Site, base: Array, mask: Mask, values: Sequence[Array]) -> None:
        """Where lanes share an address the last lane's value stays."""
        lanes = self.batch.lanes
        for elements, index, inside in [] if mask is False else self._accessed(site, base, mask, values):
            places = np.broadcast_to(index, (lanes,))
            places = places if inside is None else places[inside]
            for k, value in enumerate(values):
                whole = np.broadcast_to(value, (lanes,))
                elements[k:][places] = whole if inside is None else whole[inside]

    def places(self, site: Site, base: Array, mask: Mask) -> list[tuple[Array, Array, Array]]:
        """Of an atomic access: elements, the index of each lane's first one, and the numbers of the active lanes; for
        each buffer with data.
        """
        lanes = self.batch.lanes
        return [
            (elements, np.broadcast_to(index, (lanes,)), np.arange(lanes) if inside is None else np.flatnonzero(inside))
            for elements, index, inside in self._accessed(site, base, mask)
        ]

    def _count(self, site: Site, base: Array, mask: Mask) -> None:
        """Add the access to the site's requests, sectors, bytes and lines.

        The cost depends on the addresses relative to the warp's first and on that one's position in its line. In a
        loop both rarely change, so the last cost is kept with its addresses.
        """
        lanes, offset, width = self.batch.lanes, np.uint64(site.offset % 2**64), site.width
        if len(base) == 1:
            base = np.broadcast_to(base, (lanes,))
        warps = base.reshape(-1, WARP)
        relative = warps - warps[:, :1]
        start = (warps[:, 0] + offset) & np.uint64(LINE - 1)
        if self.batch.watch is not None:
            lit = np.ones(lanes, bool) if mask is None else mask
            self.batch.watch(site, (base + offset).view(np.int64), lit, width)
        if site.last is not None:
            known_mask, known_relative, known_start, costs = site.last
            same = known_mask is mask and known_relative.shape == relative.shape
            if same and (known_relative == relative).all() and (known_start == start).all():
                site.costs += costs
                return
        active = np.ones((lanes // WARP, WARP), bool) if mask is None else mask.reshape(-1, WARP)
        requests, touched, lines = sectors((warps + offset).view(np.int64), active)
        costs = np.array((requests, touched, 0, 0, int(active.sum()) * width, lines))
        site.last = (mask, relative, start, costs)
        site.costs += costs
