"""The mbarriers of the running batch, and the copies that complete on them (PTX ISA, "Asynchronous Barrier").

An mbarrier is opaque in shared memory, so its counts are kept here. A copy reads its source when it is issued, and
lands when a thread first waits for its mbarrier, or when nothing else can run: the latest that a GPU may.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from worklog.emulator.copies import Box, Copies, Copy
from worklog.emulator.findings import Aborted
from worklog.emulator.ordering import latest, padded
from worklog.emulator.ptx import Array, Mask
from worklog.emulator.running import Running

MOST = 2**20 - 1  # arrivals, and bytes of a transaction count
PENDING_BITS = 20  # of a state; the number of the phase is above


@dataclass(frozen=True, eq=False)
class Tracked:
    """Arrivals of lanes once their cp.async, as far as issued before, have landed. row: what these lanes know."""

    barrier: Barrier
    pc: int
    lanes: Array
    copies: tuple[Copy, ...]
    row: Array | None


@dataclass(eq=False)
class Barrier:
    """count: arrivals expected per phase; pending: of this phase. bytes: still to come. phase: the current one's
    number, which is that of complete phases. waited: phases that some thread saw complete; refused: some thread waits
    for this one. number: in its block. fenced: its initialisation is visible to copies.

    flights: copies with their data, and the phase in which they were issued. expected: pc and lane of the last
    expect_tx. gathered, done: what those that arrive know, and what those that wait
    learn.
    """

    start: int
    owner: int
    count: int
    number: int
    pc: int
    clock: int
    pending: int = 0
    bytes: int = 0
    phase: int = 0
    waited: int = 0
    fenced: bool = False
    refused: bool = False
    expected: tuple[int, int] = (0, 0)
    gathered: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    done: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    flights: list[tuple[Box, Array, int]] = field(default_factory=list)


class Barriers:
    """What generated code calls, as `S.barriers`."""

    def __init__(self, machine: Running, copies: Copies) -> None:
        self.machine, self.copies, self.code = machine, copies, machine.program.kernel.instructions
        self.order = machine.shared.order
        self.known: dict[tuple[int, int], Barrier] = {}  # by block in the batch and address
        self.made: dict[int, int] = defaultdict(int)  # mbarriers of a block so far
        self.refused: Array = np.zeros(machine.batch.lanes, bool)  # lanes whose last wait did not succeed
        self.tracked: list[Tracked] = []  # not landed yet, in the order of their issue

    # Called by generated code.

    def init(self, pc: int, address: Array, mask: Mask, count: Array) -> None:
        """mbarrier.init: one lane, and one address, after the other."""
        starts, counts = self._wide(address), self._wide(count)
        for lane in np.flatnonzero(self.machine.lanes_of(mask)).tolist():
            start, number = int(starts[lane]), int(counts[lane])
            if self._outside(pc, lane, start):
                continue
            block = lane // self.machine.batch.block_lanes
            old = self.known.get((block, start))
            if old is not None:
                self._tell("mbarrier-misuse", pc, lane, f"initialises {_at(start)} again before mbarrier.inval", old.pc)
            if not 1 <= number <= MOST:
                self._tell("mbarrier-misuse", pc, lane, f"initialises {_at(start)} with a count of {number}")
            new = Barrier(start, lane, number, self.made[block], pc, 0, pending=number)
            self.made[block] += 1
            if self.order is not None:
                self.order.make_room(self.made[block])
                new.clock = self.order.clock
            self.known[block, start] = new
        self.machine.stores += 1

    def inval(self, pc: int, address: Array, mask: Mask) -> None:
        """mbarrier.inval."""
        for barrier, _ in self._grouped(pc, address, mask):
            self.known = {key: known for key, known in self.known.items() if known is not barrier}

    def expect(self, pc: int, address: Array, mask: Mask, count: Array, sign: int) -> None:
        """mbarrier.expect_tx (sign 1) and complete_tx (sign -1): bytes that are still to come."""
        counts = sign * self._wide(count)
        for barrier, lanes in self._grouped(pc, address, mask):
            for lane in lanes.tolist():
                barrier.bytes += int(counts[lane])
                barrier.expected = (pc, lane) if counts[lane] > 0 else barrier.expected
                if abs(barrier.bytes) > MOST:
                    self._tell("byte-count", pc, lane, f"expects more than {MOST} bytes at {_at(barrier.start)}")
                self._complete(barrier, pc, lane)
        self.machine.stores += 1

    def arrive(self, pc: int, address: Array, mask: Mask, count: Array, bytes_: Array | None, how: str) -> Array:
        """mbarrier.arrive and arrive_drop: the state of each lane's phase before. bytes_: of expect_tx. how: words, of
        "drop", "relaxed" and "noComplete".
        """
        out = np.zeros(self.machine.batch.lanes, np.uint64)
        counts, expected = self._wide(count), None if bytes_ is None else self._wide(bytes_)
        for barrier, lanes in self._grouped(pc, address, mask):
            whole = int(counts[lanes].sum())
            # Of lanes that arrive together, none or the last one completes the phase; else one after the other.
            for group in [lanes] if whole <= barrier.pending else lanes[:, None]:
                if expected is not None:
                    barrier.bytes += int(expected[group].sum())
                    barrier.expected = (pc, int(group[-1]))
                if self.order is not None and "relaxed" not in how:
                    barrier.gathered = latest(barrier.gathered, self.order.joined(group))
                before = np.cumsum(counts[group]) - counts[group]
                out[group] = barrier.phase << PENDING_BITS | np.maximum(barrier.pending - before, 0)
                self._count_down(barrier, pc, group, int(counts[group].sum()), how)
        if self.order is not None:
            self.order.tick()
        self.machine.stores += 1
        return out

    def _count_down(self, barrier: Barrier, pc: int, lanes: Array, count: int, how: str) -> None:
        lane = int(lanes[0])
        if count > barrier.pending:
            what = f"arrives at {_at(barrier.start)} although all {barrier.count} arrivals of its phase "
            what += f"{barrier.phase} have been counted"
            what += f", and {barrier.bytes} bytes are still to come" if barrier.bytes else ""
            self._tell("mbarrier-misuse", pc, lane, what, barrier.pc)
            return
        barrier.pending -= count
        if "drop" in how:
            barrier.count -= count
        if "noComplete" in how and not barrier.pending:
            self._tell("mbarrier-misuse", pc, lane, f"completes a phase of {_at(barrier.start)} with noComplete")
        self._complete(barrier, pc, lane)

    def wait(self, pc: int, address: Array, mask: Mask, value: Array, how: str) -> Array:
        """test_wait and try_wait: whether the phase of a state, or of a parity ("parity" in how), is complete."""
        out, values = np.ones(self.machine.batch.lanes, bool), self._wide(value)
        for barrier, lanes in self._grouped(pc, address, mask):
            self.land(barrier)
            if "parity" in how:
                done = (values[lanes] & 1) != barrier.phase & 1
            else:
                phases = values[lanes] >> PENDING_BITS
                done = phases < barrier.phase
                for k in np.flatnonzero((phases > barrier.phase) | (phases < barrier.phase - 1))[:1]:
                    what = f"waits with the state of phase {phases[k]}, and {_at(barrier.start)} is in {barrier.phase}"
                    self._tell("wrong-phase", pc, int(lanes[k]), what)
            out[lanes] = done
            self.refused[lanes] = ~done
            barrier.refused |= not done.all()
            passed = lanes[done]
            if len(passed):
                barrier.waited = barrier.phase
                if self.machine.memory.checks is not None:
                    self.machine.memory.checks.barrier(np.isin(np.arange(len(out)), passed))
                if self.order is not None and "relaxed" not in how:
                    self.order.acquire(passed, padded(barrier.done, self.order.known.shape[1]))
        return out

    def track(self, pc: int, address: Array, mask: Mask, counted: bool) -> None:
        """cp.async.mbarrier.arrive: the lanes arrive once their earlier cp.async have landed. counted: with noinc, the
        arrivals are among those expected; else each one adds one to them first.
        """
        copies = tuple(self.copies.flying)
        for barrier, lanes in self._grouped(pc, address, mask):
            barrier.pending += 0 if counted else len(lanes)
            row = None if self.order is None else self.order.joined(lanes)
            self.tracked.append(Tracked(barrier, pc, lanes, copies, row))
        if self.order is not None:
            self.order.tick()
        self.machine.stores += 1

    def fence(self, mask: Mask, init_only: bool) -> None:
        """fence.mbarrier_init (init_only) and fence.proxy.async."""
        lanes = self.machine.lanes_of(mask)
        for barrier in self.known.values():
            barrier.fenced |= bool(lanes[barrier.owner])
        if self.order is not None and not init_only:
            self.order.fence(lanes)

    def rank(self, pc: int, address: Array, rank: Array, mask: Mask) -> Array:
        """mapa: the address for a rank of a block in a cluster of one."""
        ranks = self._wide(rank)
        for lane in np.flatnonzero(self.machine.lanes_of(mask) & (ranks != 0))[:1]:
            what = f"asks for block {ranks[lane]} of its cluster, which has one block"
            self._tell("shared-out-of-bounds", pc, int(lane), what)
        return address

    # Copies.

    def wait_copies(self, mask: Mask, count: int) -> None:
        """cp.async.wait_group: complete the lanes' copies except those of their `count` newest groups. -1: wait_all,
        which includes copies that no group has.
        """
        lanes, newest = self.machine.lanes_of(mask), self.copies.group - count
        self.land_waited(lanes, newest)
        self.copies.land(self.copies.flying, lanes, newest)

    def at(self, pc: int, lane: int, start: int) -> Barrier | None:
        """The mbarrier of a copy, which needs one whose initialisation is visible to copies."""
        barrier = self._find(pc, lane, start)
        if barrier is not None and not barrier.fenced:
            what = f"copies with {_at(start)}, whose mbarrier.init no fence.mbarrier_init or fence.proxy.async follows"
            self._tell("unfenced-init", pc, lane, what, barrier.pc)  # libcu++ itself leaves the fence out
            barrier.fenced = True
        return barrier

    def send(self, barrier: Barrier, box: Box) -> None:
        """Issue copies to shared memory that complete on an mbarrier."""
        barrier.flights.append((box, box.read(), barrier.phase))
        if self.order is not None:
            self.order.fill(box.site, box.lanes, box.starts, box.layout.bytes, barrier.number, barrier.phase + 1)
        self.machine.stores += 1

    def land(self, barrier: Barrier) -> None:
        """Complete the copies of an mbarrier, in the order in which they were issued."""
        self._land_tracked([tracked for tracked in self.tracked if tracked.barrier is barrier])
        flights, barrier.flights = barrier.flights, []
        for box, data, phase in flights:
            shared, size = self.machine.shared, box.layout.bytes
            if shared.values:
                places = (shared.lane_base[box.lanes] + box.starts)[:, None] + np.arange(size)
                shared.bytes[places], shared.written[places] = data, True
            self.machine.stores += 1
            for lane in box.lanes.tolist():
                if phase != barrier.phase:
                    what = f"copies {size} bytes that {_at(barrier.start)} has not expected in phase {phase}, which "
                    what += "completed without them"
                    self._tell("byte-count", box.site.pc, lane, what, barrier.expected[0])
                barrier.bytes -= size
                self._complete(barrier, box.site.pc, lane)

    def land_waited(self, lanes: Array, newest: Array) -> None:
        """Land the arrivals of lanes that wait for the same copies themselves, those older than group `newest`."""

        def due(tracked: Tracked) -> bool:
            flying = (copy.lanes & lanes & (copy.group < newest) for copy in tracked.copies)
            return any(each[tracked.lanes].any() for each in flying)

        self._land_tracked([*filter(due, self.tracked)], lanes, newest)

    def _land_tracked(self, due: Sequence[Tracked], waiting: Array | bool = False, newest: Array | int = 0) -> None:
        """Land these arrivals, and with them the earlier ones of the same lanes. waiting: lanes that wait for their own
        copies older than group `newest`.
        """
        for last in due:
            earlier = self.tracked[: self.tracked.index(last) + 1] if last in self.tracked else []
            for tracked in earlier:
                if np.isin(tracked.lanes, last.lanes).any():
                    self.tracked.remove(tracked)
                    self._land(tracked, waiting, newest)

    def _land(self, tracked: Tracked, waiting: Array | bool, newest: Array | int) -> None:
        barrier, lanes = tracked.barrier, np.zeros(self.machine.batch.lanes, bool)
        lanes[tracked.lanes] = True
        for copy, landing in self.copies.land(tracked.copies, lanes):
            if self.order is not None:
                self.order.arrived(copy.visit, landing, barrier.number, barrier.phase + 1)
                if (own := landing & waiting & (copy.group < newest)).any():
                    self.order.waited(copy.visit, own)
        if tracked.row is not None:
            barrier.gathered = latest(barrier.gathered, tracked.row)
        self.machine.stores += 1
        self._count_down(barrier, tracked.pc, tracked.lanes, len(tracked.lanes), "")

    def _complete(self, barrier: Barrier, pc: int, lane: int) -> None:
        """Begin the next phase if nothing of this one is pending."""
        if barrier.pending or barrier.bytes:
            return
        if barrier.waited < barrier.phase:
            what = f"completes phase {barrier.phase} of {_at(barrier.start)} before any thread has waited for phase "
            what += f"{barrier.phase - 1}: some wait takes the wrong parity, or is missing"
            self._tell("wrong-phase", pc, lane, what)
            barrier.waited = barrier.phase
        barrier.phase += 1
        barrier.pending, barrier.refused = barrier.count, False
        if self.order is not None:
            width = self.order.known.shape[1]
            row = padded(barrier.gathered, width).copy()
            row[self.order.size + barrier.number] = barrier.phase
            barrier.gathered = barrier.done = row

    # When no thread can run.

    def stir(self) -> bool:
        """Land all copies in flight; whether there were any."""
        tracked = {id(each.barrier) for each in self.tracked}
        flying = [barrier for barrier in self.known.values() if barrier.flights or id(barrier) in tracked]
        for barrier in flying:
            self.land(barrier)
        return bool(flying)

    def explain(self, lanes: Array) -> str:
        """What the mbarriers lack that threads wait for, of the block of the first of these lanes. Raises Aborted,
        after a finding, where one lacks nothing but the right number of bytes.
        """
        block, out = int(lanes.argmax()) // self.machine.batch.block_lanes, ""
        for (owner, _), barrier in self.known.items():
            if owner == block and barrier.bytes and not barrier.pending:
                more = "more" if barrier.bytes > 0 else "fewer"
                what = f"expects {abs(barrier.bytes)} bytes {more} than the copies of phase {barrier.phase} bring to "
                self._tell("byte-count", *barrier.expected, f"{what}{_at(barrier.start)}, so that it never completes")
                raise Aborted
            if owner == block and barrier.refused:
                out += f"\nphase {barrier.phase} of {_at(barrier.start)} lacks {barrier.pending} of {barrier.count} "
                out += f"arrivals and {barrier.bytes} bytes" if barrier.bytes else "arrivals"
        return out

    # Lanes and places.

    def _wide(self, values: Array) -> Array:
        return np.broadcast_to(values.astype(np.int64), (self.machine.batch.lanes,))

    def _grouped(self, pc: int, address: Array, mask: Mask) -> list[tuple[Barrier, Array]]:
        """The mbarriers that active lanes name, with these lanes."""
        lanes = np.flatnonzero(self.machine.lanes_of(mask))
        if not len(lanes):
            return []
        blocks = lanes // self.machine.batch.block_lanes
        starts = self._wide(address)[lanes]
        order = np.lexsort((lanes, starts, blocks))
        lanes, blocks, starts = lanes[order], blocks[order], starts[order]
        first = np.flatnonzero((np.diff(blocks, prepend=-1) != 0) | (np.diff(starts, prepend=-1) != 0))
        parts = zip(starts[first].tolist(), np.split(lanes, first[1:]), strict=True)
        found = ((self._find(pc, int(part[-1]), start), part) for start, part in parts)
        return [(barrier, part) for barrier, part in found if barrier is not None]

    def _find(self, pc: int, lane: int, start: int) -> Barrier | None:
        """The mbarrier at a byte of the lane's shared memory; a finding where there is none that the lane may use."""
        if self._outside(pc, lane, start):
            return None
        size = self.machine.batch.block_lanes
        barrier = self.known.get((lane // size, start))
        if barrier is None:
            self._tell("mbarrier-misuse", pc, lane, f"uses {_at(start)}, which no thread has initialised")
        elif (
            self.order is not None
            and lane != barrier.owner
            and not self.order.knows(lane, barrier.owner, barrier.clock)
        ):
            what = f"uses {_at(start)} with no __syncthreads() after its mbarrier.init"
            self._tell("mbarrier-misuse", pc, lane, what, barrier.pc)
        return barrier

    def _outside(self, pc: int, lane: int, start: int) -> bool:
        size = self.machine.shared.size
        if 0 <= start <= size - 8 and start % 8 == 0:
            return False
        kind = "misaligned" if start % 8 and 0 <= start <= size - 8 else "shared-out-of-bounds"
        self._tell(kind, pc, lane, f"uses an mbarrier at byte {start} of the block's {size} bytes of shared memory")
        return True

    def _tell(self, kind: str, pc: int, lane: int, what: str, other: int | None = None) -> None:
        self.machine.batch.tell(kind, self.code[pc], lane, what, None if other is None else self.code[other])


def _at(start: int) -> str:
    return f"the mbarrier at shared byte {start}"
