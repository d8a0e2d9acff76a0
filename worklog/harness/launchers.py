"""Launches that need more than a call between two events: one that goes round several sets of inputs, one that times
only a part of itself, one that waits for the GPU, and one whose inputs and output are prepared and checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

from worklog.errors import BadSetting
from worklog.harness.timeline import Launch, Timeline

PARTLY = "timer: the call itself says which part of it is timed, the rest is not in the number"
ROTATION = 3.0  # x L2: bytes that go through the cache before a set is used again


def input_sets(set_bytes: int, l2_bytes: int) -> int:
    """Sets of inputs (and outputs) of `set_bytes` to go round: three times the L2 in total, and at least two."""
    if set_bytes <= 0:
        raise BadSetting("l2 = rotate: a set of inputs without a byte cannot be rotated; take l2 = flush")
    return max(2, ceil(ROTATION * l2_bytes / set_bytes))


@dataclass
class Rotating:
    """A launch that takes the next set of inputs each time, so that no set is still in L2 when its turn comes again.
    `last` is the index of the set that it took.

    A flush leaves the GPU idle for a moment and L2 full of dirty lines; rotation keeps the GPU as busy as a real
    program does. Both are cold, and their times may differ.
    """

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
        """The number of sets."""
        return len(self.launches)


def require_rotation(launches: Sequence[Launch], l2_bytes: int) -> None:
    """Raise BadSetting unless every launch rotates over enough sets: otherwise the cache would be warm."""
    for launch in launches:
        if not isinstance(launch, Rotating):
            raise BadSetting("l2 = rotate needs several sets of inputs, and this launch has one: take l2 = flush")
        needed = input_sets(launch.set_bytes, l2_bytes)
        if launch.sets < needed:
            raise BadSetting(
                f"l2 = rotate: {launch.sets} sets of {launch.set_bytes / 2**20:.2f} MiB would come round while still "
                f"in the L2 of {l2_bytes / 2**20:.0f} MiB: give {needed}"
            )


class Stopwatch:
    """Given to a launch that times a part of itself: start it once, then stop it once, in stream order."""

    def __init__(self, start: Launch, stop: Launch) -> None:
        self._left = [("start", start), ("stop", stop)]

    def start(self) -> None:
        """The timed part begins here. Raises BadSetting the second time."""
        self._press("start")

    def stop(self) -> None:
        """The timed part ends here. Raises BadSetting before the start, or the second time."""
        self._press("stop")

    def require_both(self) -> None:
        """Raise BadSetting unless the launch did both."""
        if self._left:
            raise BadSetting(f"the launch returned without stopwatch.{self._left[0][0]}(): it has no time")

    def _press(self, button: str) -> None:
        if not self._left or self._left[0][0] != button:
            raise BadSetting(f"stopwatch.{button}() out of turn: call start() once, then stop() once, in each launch")
        self._left.pop(0)[1]()


def nothing() -> None:
    """Enqueue nothing."""


@dataclass(frozen=True)
class Partly:
    """A launch that times only a part of itself, with the stopwatch that it is given."""

    run: Callable[[Stopwatch], object]

    def __call__(self) -> None:
        """Launch without timing, for a warm-up."""
        self.run(Stopwatch(nothing, nothing))


@dataclass(frozen=True)
class Waiting:
    """A launch that waits for the GPU before it returns, so it cannot be queued behind a blocking kernel."""

    launch: Launch

    def __call__(self) -> None:
        """Launch and wait."""
        self.launch()


@dataclass(frozen=True)
class Witnessed:
    """A launch with untimed work around it: before (before the flush, e.g. new inputs), behind (right behind the end
    event, e.g. reading the output), and after everything else (e.g. checking what was read).
    """

    launch: Launch
    before: Launch = nothing
    behind: Launch = nothing
    after: Launch = nothing

    def __call__(self) -> None:
        """Launch without timing, for a warm-up; this output is checked too."""
        self.before()
        self.launch()
        self.behind()
        self.after()


def waits(launches: Sequence[Launch]) -> bool:
    """Whether one of them must not be queued."""
    return any(isinstance(launch, Waiting) for launch in launches)


def witnessed(launch: Launch) -> Witnessed:
    """Any launch as one with work around it, none by default."""
    return launch if isinstance(launch, Witnessed) else Witnessed(launch)


def bracketed(timeline: Timeline, launch: Launch, slot: int) -> None:
    """Enqueue a launch with events `slot` and `slot` + 1 around it, or around the part that it times."""
    if isinstance(launch, Partly):
        watch = Stopwatch(partial(timeline.record_event, slot), partial(timeline.record_event, slot + 1))
        launch.run(watch)
        watch.require_both()
        return
    timeline.record_event(slot)
    launch()
    timeline.record_event(slot + 1)
