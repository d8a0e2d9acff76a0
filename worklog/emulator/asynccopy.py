"""cp.async: copies in flight from global to shared memory, and the groups that threads wait for.

A copy reads its data when it is issued and writes them when its thread waits, the latest that a GPU may: a kernel that
does not wait sees the old contents. Until then its target counts as being written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from worklog.emulator.sites import Site

if TYPE_CHECKING:
    from worklog.emulator.machine import Machine
    from worklog.emulator.shared import Visit

Array = NDArray[Any]
Mask = Any


@dataclass
class Copy:
    """One cp.async. lanes: those whose part is still in flight; group: the number of each lane's group."""

    visit: Visit
    data: tuple[Array, ...]
    lanes: Array
    group: Array


class Copies:
    """All copies of the running batch."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.flying: list[Copy] = []
        self.group: Array = np.zeros(0, np.int64)

    def start(self, lanes: int) -> None:
        """Begin a new batch."""
        self.flying = []
        self.group = np.zeros(lanes, np.int64)

    def in_flight(self) -> Sequence[Any]:
        """Log entries for the interval that begins: the targets are still being written."""
        return [(copy.visit, None, copy.lanes) for copy in self.flying]

    def issue(self, site: Site, target: Array, source: Array, offset: int, size: Array | None, mask: Mask) -> None:
        """Start copying site.width bytes per lane; bytes from `size` on are zeros."""
        if mask is False:
            return
        machine, shared = self.machine, self.machine.shared
        # The global side of the copy: a load of 32-bit words that counts as one access of the whole width.
        load = Site(site.pc, site.line, site.text, "ld", "global", "u4", 4, site.count, offset, caller=site.caller)
        data = machine.memory.load(site.memo.setdefault("source", load), source, mask)
        if size is not None:
            data = tuple(np.where(size > 4 * k, part, np.uint32(0)) for k, part in enumerate(data))
        visit = shared.visit(site, target, mask)
        if not shared.values:
            return
        lanes = machine.lanes_of(visit.mask)
        if shared.checking:
            shared.interval.log.append(visit)
            if shared.pending is None:
                shared.pending = np.zeros(len(shared.bytes), np.int32)
            shared.copies.append(site)
            for cell in shared.cells(visit):
                shared.pending[cell[lanes]] = len(shared.copies)
        whole = tuple(np.broadcast_to(part, (machine.batch.lanes,)) for part in data)
        self.flying.append(Copy(visit, whole, lanes, self.group))

    def commit(self, mask: Mask) -> None:
        """cp.async.commit_group: close the lanes' current group."""
        if mask is not False:
            self.group = self.group + (1 if mask is None else mask)

    def wait(self, mask: Mask, count: int) -> None:
        """cp.async.wait_group: complete the lanes' copies except those of their `count` newest groups. -1: wait_all,
        which includes copies that no group has.
        """
        if mask is False:
            return
        lanes = self.machine.lanes_of(mask)
        newest = self.group - count
        for copy in self.flying:
            landing = copy.lanes & lanes & (copy.group < newest)
            if landing.any():
                self._land(copy, landing)
        self.flying = [copy for copy in self.flying if copy.lanes.any()]
        if not self.flying:
            self.machine.shared.pending = None
            self.machine.shared.copies = []

    def _land(self, copy: Copy, landing: Array) -> None:
        shared = self.machine.shared
        whole = copy.visit.mask is None and bool(landing.all())
        shared.put(copy.visit, copy.data, None if whole else landing)
        if shared.checking:
            shared.interval.log.append((copy.visit, shared.interval.epoch, landing))
            if shared.pending is not None:
                for cell in shared.cells(copy.visit):
                    shared.pending[cell[landing]] = 0
        copy.lanes = copy.lanes & ~landing
