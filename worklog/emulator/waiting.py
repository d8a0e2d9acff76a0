"""Threads that wait in a loop for what another thread writes: a lock, a flag, the ticket of another block.

Of diverged groups of lanes the machine runs the lowest first, so such a loop would keep the writer from running. A
group that comes back to the head of a loop with the registers and the memory that it found there before only waits, and
so may one whose loop ends by what an atomic or an ordered load reads, after many iterations. It is parked until the
others have exited, wait too, or are parked too. As on a GPU, threads of all warps, and of all blocks that run together,
make progress then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from worklog.emulator.core.tell_blocks import IN_VAIN, waits_forever
from worklog.emulator.exchange import Exchange
from worklog.emulator.findings import Aborted, BudgetExceeded
from worklog.emulator.mbarrier import Barriers
from worklog.emulator.ptx import Array
from worklog.emulator.running import Running

PERIOD = 8  # iterations of a loop from one comparison to the next
MOST_COMPARED = 16  # of a loop that may wait, while others could run
MOST_VAIN = 256  # attempts after which no loop around an mbarrier's wait does anything else, though it counts them
SMS = 132  # of an H200: where blocks may wait for each other, as many run together as fit there


class State(NamedTuple):
    """Of a group at the head of a loop. due: iterations until it is compared. compared: how often it has been. changes:
    see Waiting. private: shared and local memory, None before all else has been found unchanged.
    """

    due: int
    compared: int
    lanes: Array
    registers: dict[str, Array]
    changes: int
    private: tuple[bytes, bytes] | None


class Waiting:
    """The groups of the running batch that wait."""

    def __init__(self, machine: Running, barriers: Barriers, exchange: Exchange) -> None:
        self.machine, self.barriers, self.exchange = machine, barriers, exchange
        self.live, self.polling = machine.program.flow.live_in, machine.program.flow.polling
        self.parked: list[tuple[int, Array]] = []
        self.states: dict[int, State] = {}
        self.woken = (-1, -1)
        self.polled = False  # whether a group is parked that may not only wait
        self.attempted = False  # whether a parked group's registers have changed in its loop
        self.vain = 0  # times that all groups continued, though nothing was written before
        self.waited: set[int] = set()  # heads of loops where one was

    @property
    def changes(self) -> int:
        """Of memory that other threads see, and of the clock: a loop in which there are any does not only wait."""
        return self.machine.version + self.machine.ticks

    def only_waits(self, number: int, lanes: Array, registers: dict[str, Array]) -> bool:
        """Park the group that has come back to this block of code if nothing has changed since."""
        old, refused = self.states.get(number), self.barriers.refused
        if refused[lanes].all():
            return self._yield(number, lanes, registers)
        if old is not None and old.due > 1:
            self.states[number] = old._replace(due=old.due - 1)
            return False
        now = {name: registers[name] for name in self.live[number] if name in registers}
        stayed = old is not None and np.array_equal(lanes, old.lanes)
        private, compared = None, old.compared + 1 if old is not None and stayed else 0
        enough = compared > (0 if number in self.waited else MOST_COMPARED)
        polls = enough and number in self.polling and bool(self.machine.groups or self.exchange.held)
        if polls:
            self.waited.add(number)
            self.polled = True
        elif old is not None and stayed and old.changes == self.changes and _equal(now, old.registers, lanes):
            private = self.machine.shared.bytes.tobytes(), self.machine.local_memory.bytes.tobytes()
        if polls or (old is not None and private is not None and private == old.private):
            self.parked.append((number, lanes))
            del self.states[number]
            return True
        due = 1 if private or number in self.waited else PERIOD
        self.states[number] = State(due, compared, lanes, now, self.changes, private)
        return False

    def _yield(self, number: int, lanes: Array, registers: dict[str, Array]) -> bool:
        """Park lanes whose last wait for an mbarrier has failed; they may count their attempts, or read a clock."""
        self.barriers.refused[lanes] = False
        now, old = {name: registers[name] for name in self.live[number]}, self.states.get(number)
        if old is None or not (np.array_equal(lanes, old.lanes) and _equal(now, old.registers, lanes)):
            self.attempted = True
        self.states[number] = State(PERIOD, 0, lanes, now, self.changes, None)
        self.parked.append((number, lanes))
        return True

    def wake(self) -> bool:
        """Continue all parked groups; False if there are none, or if nothing was written since they continued the last
        time, except that they count their attempts.
        """
        if not self.parked:
            return False
        written = (self.machine.version, self.machine.stores)
        if self.woken == written and not self.polled and not self.barriers.stir():
            self.vain += 1
            if not self.attempted or self.vain > MOST_VAIN:
                return False
        else:
            self.vain = 0
        parked, self.parked, self.woken, self.polled, self.attempted = self.parked, [], written, False, False
        for number, lanes in parked:
            self.machine.push(number, lanes)
        return True

    def end(self) -> None:
        """Raises BudgetExceeded for groups that are parked forever, or Aborted after a finding."""
        if self.parked:
            number, lanes = self.parked[0]
            why = IN_VAIN + self.barriers.explain(lanes)
            raise deadlock(self.machine, number, lanes, "deadlock or endless loop: ", why)


def deadlock(machine: Running, number: int, lanes: Array, what: str, why: str) -> BudgetExceeded | Aborted:
    """The error for lanes that wait forever, at this block of code."""
    first = int(lanes.argmax())
    return waits_forever(machine.program, machine.batch, machine.executed, machine.half, number, first, what, why)


def _equal(some: dict[str, Array], others: dict[str, Array], lanes: Array) -> bool:
    """Whether registers have the same bits in these lanes."""

    def same(one: Array, other: Array) -> bool:
        bits = [(each if len(each) == 1 else each[lanes]).tobytes() for each in (one, other)]
        return bits[0] == bits[1]

    return all(value is others[name] or same(value, others[name]) for name, value in some.items())
