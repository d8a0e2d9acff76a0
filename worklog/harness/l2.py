"""A cold L2 without a flush: launches that go round so many sets of inputs that no set is still cached when its turn
comes again.

A flush leaves the GPU idle for a moment and the cache full of its own dirty lines; rotation keeps the GPU as busy as
a real program does. Both are cold, and they may differ: that is why both are here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from worklog.errors import BadSetting
from worklog.harness.timeline import Launch

ROTATION = 3.0  # x L2: what goes through the cache before a set is used again


def input_sets(set_bytes: int, l2_bytes: int) -> int:
    """Sets of inputs (and outputs) to go round, each of `set_bytes`: three times the L2 in all, and at least two."""
    if set_bytes <= 0:
        raise BadSetting("l2 = rotate: a set of inputs without a byte cannot be rotated; take l2 = flush")
    return max(2, ceil(ROTATION * l2_bytes / set_bytes))


@dataclass
class Rotating:
    """A launch that takes the next set of inputs each time; `last` is the index of the set that it took."""

    launches: Sequence[Launch]
    set_bytes: int
    start: int = 0

    def __post_init__(self) -> None:
        self.last = (self.start - 1) % len(self.launches)

    def __call__(self) -> None:
        """Enqueue one launch on the next set."""
        self.last = (self.last + 1) % len(self.launches)
        self.launches[self.last]()

    @property
    def sets(self) -> int:
        """How many sets there are."""
        return len(self.launches)


def require_rotation(launches: Sequence[Launch], l2_bytes: int) -> None:
    """Raise BadSetting unless every launch rotates over enough sets: a warm cache that calls itself cold is refused."""
    for launch in launches:
        if not isinstance(launch, Rotating):
            raise BadSetting("l2 = rotate needs several sets of inputs, and this launch has one: take l2 = flush")
        needed = input_sets(launch.set_bytes, l2_bytes)
        if launch.sets < needed:
            raise BadSetting(
                f"l2 = rotate: {launch.sets} sets of {launch.set_bytes / 2**20:.2f} MiB would come round while still "
                f"in the L2 of {l2_bytes / 2**20:.0f} MiB: give {needed}"
            )
