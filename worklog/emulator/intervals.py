"""Races in shared memory where only barriers and __syncwarp() order threads.

Between two barriers the accesses of a block are only logged. At the barrier they are replayed for what orders them; an
interval with the same accesses at the same addresses as an earlier one without races (the next iteration of a loop) has
none either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from worklog.emulator.findings import Array
from worklog.emulator.ordering import Ordering

if TYPE_CHECKING:
    from worklog.emulator.shared import SharedMemory, Visit

KEPT_INTERVALS = 4096


class Access(NamedTuple):
    """One logged access. before: number of the interval's events before it. lanes: None for all."""

    visit: Visit
    before: int
    lanes: Array | None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for equal accesses. Visits live as long as `Interval.clean`, so their identity is enough."""
        lanes = None if self.lanes is self.visit.mask or self.lanes is None else self.lanes.tobytes()
        return id(self.visit), self.before, lanes

    def limited(self, lanes: Array) -> Access:
        """Only these lanes of it."""
        return self._replace(lanes=lanes & (self.visit.places.active if self.lanes is None else self.lanes))


class Interval:
    """Accesses since the last barrier of a whole block, and the events among them that order some lanes."""

    def __init__(self, shared: SharedMemory) -> None:
        self.shared = shared
        self.clean: set[tuple[Any, ...]] = set()
        self.start()

    def start(self) -> None:
        """Begin a new batch."""
        self.log: list[Access] = []
        self.events: list[Callable[[Ordering], None]] = []

    def add(self, visit: Visit, lanes: Array | None) -> None:
        """Log an access of these lanes."""
        self.log.append(Access(visit, len(self.events), lanes))

    def synchronise_warps(self, lanes: Array) -> None:
        """__syncwarp of these lanes of each warp."""
        self.events.append(lambda order: order.synchronise_warps(lanes))

    def synchronise_blocks(self, number: int, arrived: Array, released: Array) -> None:
        """Whole warps at the barrier of this number, which not all warps of their blocks wait for."""
        self.events.append(lambda order: order.synchronise_blocks(number, arrived, released))

    def close(self, lanes: Array | None, flying: Sequence[tuple[Visit, Array]]) -> None:
        """A barrier of all blocks (lanes None) or of the blocks of these lanes. flying: copies in flight."""
        log, rest = self.log, list[Access]()
        if lanes is not None:
            rest = [access.limited(~lanes) for access in log]
            log = [access.limited(lanes) for access in log]
        # An access that a loop repeats between two barriers is compared once.
        accesses = {access.key: access for access in log}
        key = tuple(accesses) if lanes is None and not self.events else ()
        if not key or key not in self.clean:
            found = self._replay([*accesses.values()])
            if key and not found:
                if len(self.clean) > KEPT_INTERVALS:
                    self.clean.clear()
                self.clean.add(key)
        self.log = [access for access in rest if access.lanes is not None and access.lanes.any()]
        self.events = self.events if self.log else []
        self.log += [Access(visit, len(self.events), own) for visit, own in flying]

    def _replay(self, accesses: Sequence[Access]) -> bool:
        """Whether there are races, which are reported."""
        if not any(access.visit.site.writes for access in accesses):
            return False
        order, passed = Ordering(self.shared, replayed=True), 0
        for access in accesses:
            for event in self.events[passed : access.before]:
                event(order)
            passed = max(passed, access.before)
            order.add(access.visit, access.lanes)
        return order.report()
