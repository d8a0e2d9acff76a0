"""The 16 barriers of each block of the running batch: which threads wait there, and for how many.

PTX ISA, "bar, barrier": a barrier counts the warps that arrive, at whichever instructions; a warp arrives with the last
of its threads that have not exited. `bar` and .aligned want all threads of a warp at the same instruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from worklog.emulator.findings import Aborted
from worklog.emulator.isa import defined
from worklog.emulator.ptx import Array, Mask
from worklog.emulator.running import Running
from worklog.emulator.waiting import deadlock

COUNT = 16


@dataclass(eq=False)
class Arrival:
    """Lanes that have executed a barrier instruction. count: the threads that they want, 0 for all of the block."""

    lanes: Array
    pc: int
    follow: int
    number: int
    count: int
    predicate: Array | None


class BlockBarriers:
    """What generated code calls, as `S.block`."""

    def __init__(self, machine: Running) -> None:
        self.machine, self.code = machine, machine.program.kernel.instructions
        self.waiting: list[Arrival] = []
        self.arrived: dict[int, Array] = {}  # how often each warp did without waiting: (blocks, warps)
        machine.exited = self.release

    def arrive(
        self,
        mask: Mask,
        executing: Mask,
        pc: int,
        follow: int,
        number: Array,
        count: Array | None = None,
        predicate: Array | None = None,
    ) -> int:
        """Called by generated code: bar in any form. executing: the lanes of the mask whose guard is true. predicate:
        of bar.red. Returns the next block of code for __syncthreads() that all live lanes reach, else -1.
        """
        machine, lanes = self.machine, self.machine.lanes_of(executing)
        plain = len(number) == 1 and number[0] == 0 and count is None and predicate is None
        if plain and 0 not in self.arrived and machine.census(lanes)[1] == machine.census(machine.live)[1]:
            self._check_exited(lanes, pc)
            self._order(0, lanes, lanes)
            return follow
        if (others := machine.lanes_of(mask) & ~lanes).any():
            machine.push(follow, others)
        wanted = np.zeros(1, np.uint32) if count is None else count
        both = np.broadcast_to(number.astype(np.int64) << 32 | wanted, lanes.shape)
        least = 0 if count is None else 32
        wrong = lanes & ((both >> 32 >= COUNT) | (both % 2**32 > machine.batch.block_lanes))
        wrong |= lanes & ((both % 32 > 0) | (both % 2**32 < least))
        if wrong.any():
            first = int(both[wrong.argmax()])
            what = f"names barrier {first >> 32} for {first % 2**32} threads: there are 0 to {COUNT - 1}, for a "
            what += f"multiple of 32 threads up to the block's {machine.batch.block_lanes}"
            machine.batch.tell("barrier-count", self.code[pc], wrong, what)
            raise Aborted
        whole = None if predicate is None else np.broadcast_to(predicate, lanes.shape)
        for name in np.unique(both[lanes] if len(number) + len(wanted) > 2 else both[:1]).tolist():
            own = lanes & (both == name)
            self.waiting.append(Arrival(own, pc, follow, name >> 32, name % 2**32, whole))
        self.release()
        return -1

    # Waiting.

    def release(self) -> None:
        """Continue the lanes of every barrier that all have reached for which it waits."""
        for number in sorted({arrival.number for arrival in self.waiting}):
            self._release(number)
        self.waiting = [arrival for arrival in self.waiting if arrival.lanes.any()]

    def _release(self, number: int) -> None:
        machine, here = self.machine, [arrival for arrival in self.waiting if arrival.number == number]
        waits = [arrival for arrival in here if "arrive" not in self.code[arrival.pc].parts]
        present, live = (self._by_warp(lanes) for lanes in (_union(here), machine.live))
        coming = np.repeat(present.any(axis=2) & ~(live & ~present).any(axis=2), 32, axis=1).ravel()
        wanted = np.max([self._by_block(arrival.lanes & coming) * arrival.count for arrival in here], axis=0)
        concerned = self._by_block(_union(here) & coming)
        for arrival in here:
            if arrival not in waits and (going := arrival.lanes & coming).any():
                self._count(arrival, going)
        gone = self.arrived.get(number, np.zeros(live.shape[:2], np.int64))
        waiting = (_union(waits) if waits else np.zeros(len(coming), bool)) & coming
        total = (gone + self._by_warp(waiting).any(axis=2)).sum(axis=1)
        everyone = (live.any(axis=2) | (gone > 0)).sum(axis=1)
        needed = np.where(wanted > 0, wanted // 32, everyone)
        ready = concerned & (total >= needed)
        released = waiting & np.repeat(ready, machine.batch.block_lanes)
        if number in self.arrived:
            gone[ready] = 0
            if not gone.any():
                del self.arrived[number]
        if released.any():
            # A barrier for 32 threads: each warp completes it alone, one after the other.
            alone = np.repeat(wanted == 32, machine.batch.block_lanes)
            for lanes, size in ((released & alone, 32), (released & ~alone, machine.batch.block_lanes)):
                if lanes.any():
                    self._complete([arrival for arrival in waits if (arrival.lanes & lanes).any()], lanes, size)
            if (wrong := released & ~alone & np.repeat(total > needed, machine.batch.block_lanes)).any():
                what = f"waits at barrier {number} for {waits[0].count} threads, but more arrive"
                machine.batch.tell("barrier-count", self.code[waits[0].pc], wrong, what)

    def _count(self, arrival: Arrival, lanes: Array) -> None:
        """Whole warps arrive without waiting."""
        number, warps = arrival.number, self._by_warp(lanes).any(axis=2)
        before = self.arrived.get(number, np.zeros(warps.shape, np.int64))
        if (again := np.repeat((before > 0) & warps, 32, axis=1).ravel() & lanes).any():
            what = f"arrives at barrier {number} again before that is complete"
            self.machine.batch.tell("barrier-count", self.code[arrival.pc], again, what)
        self.arrived[number] = before + warps
        self._order(number, lanes, lanes & False)
        self._go_on(arrival, lanes)

    def _complete(self, waits: list[Arrival], released: Array, size: int) -> None:
        """Lanes that waited continue. size: lanes that wait for each other, of a block or of a warp."""
        self._check_places(waits, released)
        with_count, without = (_union([w for w in waits if (w.count > 0) == counted]) for counted in (True, False))
        if (mixed := self._by_block(with_count & released) & self._by_block(without & released)).any():
            what = f"waits at barrier {waits[0].number} with a number of threads and others without one, which an H200 "
            what += "ends with an illegal instruction"
            lanes = released & with_count & np.repeat(mixed, self.machine.batch.block_lanes)
            self.machine.batch.tell("barrier-count", self.code[waits[0].pc], lanes, what)
        if not any(arrival.count for arrival in waits):
            self._check_exited(released, waits[0].pc)
        self._order(waits[0].number, released, released, size)
        if waits[0].predicate is not None:
            self._reduce(waits, released, size)
        for arrival in waits:
            self._go_on(arrival, arrival.lanes & released)

    def _go_on(self, arrival: Arrival, lanes: Array) -> None:
        arrival.lanes = arrival.lanes & ~lanes
        if lanes.any():
            self.machine.push(arrival.follow, lanes)

    def _reduce(self, waits: list[Arrival], released: Array, size: int) -> None:
        """bar.red: the result for all lanes that wait, from the predicates of these."""
        yes = reduce(np.bitwise_or, (arrival.lanes & arrival.predicate for arrival in waits)) & released
        rows = yes.reshape(-1, size)
        count, most = rows.sum(axis=1, dtype=np.uint32), released.reshape(rows.shape).sum(axis=1)
        registers = self.machine.registers
        values: dict[str, Array] = {"popc": count, "and": count == most, "or": count > 0}
        for arrival in waits:
            instruction, lanes = self.code[arrival.pc], arrival.lanes & released
            (target,) = defined(instruction)
            value = next(values[part] for part in instruction.parts if part in values)
            registers[target.name] = np.where(lanes, np.repeat(value, size), registers[target.name])

    def _by_warp(self, lanes: Array) -> Array:
        """(blocks, warps, 32)."""
        return lanes.reshape(-1, self.machine.batch.block_lanes // 32, 32)

    def _by_block(self, lanes: Array) -> Array:
        """Whether any lane of each block is among these."""
        return np.asarray(self._by_warp(lanes).any(axis=(1, 2)))

    def _order(self, number: int, arrived: Array, released: Array, group: int = 0) -> None:
        """What these lanes did comes before what the released ones do next. group: 32 if each warp is alone."""
        machine, order = self.machine, self.machine.shared.order
        if order is None:
            return
        size = machine.batch.block_lanes
        if group == 32 < size:
            order.synchronise_warps(released)
            if machine.memory.checks is not None:
                machine.memory.checks.synchronise_warps(released)
            return
        if machine.memory.checks is not None:
            machine.memory.checks.barrier(arrived | released)
        whole = self._by_block(released) & ~self._by_block(machine.live & ~released)
        some = np.repeat(self._by_block(arrived) & ~whole, size)
        if some.any():
            order.synchronise_blocks(number, arrived & some, released & some)
        if whole.any():
            # With the accesses of threads that have exited: they came before the barrier, too.
            everyone = (whole | ~self._by_block(machine.live)).all()
            order.synchronise_all(None if everyone else np.repeat(whole, size))

    def end(self) -> None:
        """Raises BudgetExceeded for lanes that wait forever."""
        if self.waiting:
            first = self.waiting[0]
            block = int(self._by_block(first.lanes).argmax())
            here = _union([arrival for arrival in self.waiting if arrival.number == first.number])
            count = int(self._by_warp(here)[block].sum())
            why = f"{count} threads wait at barrier {first.number}, and no other thread of the block will arrive there"
            at = next(b.index for b in self.machine.program.flow.blocks if b.start <= first.pc < b.stop)
            raise deadlock(self.machine, at, first.lanes, "deadlock: ", why)

    # Findings.

    def _check_places(self, waits: list[Arrival], released: Array) -> None:
        """Report blocks whose threads wait at one barrier in several places."""
        there: dict[int, Array] = {}
        for arrival in waits:
            there[arrival.pc] = there.get(arrival.pc, False) | arrival.lanes & released
        if len(there) < 2:
            return
        by_warp = np.array([self._by_warp(lanes).any(axis=2) for lanes in there.values()]).sum(axis=0)
        by_block = np.array([self._by_block(lanes) for lanes in there.values()]).sum(axis=0)
        split, parts = (by_warp > 1).any(axis=1), self.code[waits[0].pc].parts
        whole = (by_block > 1) & ~split & (not waits[0].count)
        split = split & (parts[0] == "bar" or "aligned" in parts)
        kinds = {
            "divergent-barrier": (split, "all must reach the same __syncthreads()"),
            "barrier-by-warp": (whole, "a barrier counts warps, so this works while no warp is split; let all reach "
                                "the same __syncthreads()"),
        }  # fmt: skip
        for kind, (blocks, why) in kinds.items():
            if blocks.any():
                size = self.machine.batch.block_lanes
                start = int(blocks.argmax()) * size
                own = ((pc, lanes[start:][:size]) for pc, lanes in sorted(there.items()))
                (pc, lanes), (other, others) = [(pc, lanes) for pc, lanes in own if lanes.any()][:2]
                what = f"waits here, while {int(others.sum())} threads of its block wait at line "
                what += f"{self.code[other].line}: {why}"
                lane, count = start + int(lanes.argmax()), int(blocks.sum())
                self.machine.batch.tell(kind, self.code[pc], lane, what, self.code[other], count)

    def _check_exited(self, lanes: Array, pc: int) -> None:
        """Report threads that exited before a barrier which others of their block reach."""
        machine = self.machine
        if machine.census(machine.live)[1] < machine.census(machine.started)[1]:
            exited = machine.started & ~machine.live & np.repeat(self._by_block(lanes), machine.batch.block_lanes)
            if exited.any():
                what = "exits the kernel before this barrier, which other threads of its block reach"
                machine.batch.tell("barrier-after-exit", self.code[pc], exited, what)


def _union(arrivals: list[Arrival]) -> Array:
    out: Array = reduce(np.bitwise_or, (arrival.lanes for arrival in arrivals), np.zeros((), bool))
    return out
