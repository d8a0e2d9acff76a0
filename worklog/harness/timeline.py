"""What the harness needs from a machine, and the launches that it enqueues there.

The CUDA timeline (worklog.harness.cuda_timeline) is the real one. The tests use a simulated one whose true kernel
times, clocks and event overhead are known, so that each fix can be shown to recover the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Protocol

from worklog.errors import BadSetting

Launch = Callable[[], None]


class Tracer(Protocol):
    """From a launch to the microseconds that its kernels took."""

    def __call__(self, launch: Launch, before: Sequence[Launch] = ()) -> float:
        """before: one kernel each, enqueued right before the launch and not in its time."""


class Timeline(Protocol):
    """One in-order queue of a device. Everything but `synchronize`, `release` and the readings only enqueues."""

    @property
    def l2_bytes(self) -> int:
        """Size of the device's L2 cache."""

    def draw_place(self) -> None:
        """Enqueue a random number of empty kernels, so that the next launch has a random place in the launch ring."""

    def lift_marks(self) -> None:
        """Reset persisting L2 lines, so that the flush evicts them. Work that is enqueued afterwards waits for all
        streams of the process.
        """

    def hold(self) -> None:
        """Block the queue until `release`: what is enqueued meanwhile runs back to back."""

    def release(self) -> None:
        """Let a blocked queue run."""

    def flush_l2(self) -> None:
        """Overwrite 2 x L2 with data that is not constant."""

    def stamp_clock(self, slot: int) -> None:
        """Store the SMs' cycle counters and the global timer in slot `slot`."""

    def record_event(self, slot: int) -> None:
        """Record a timing event."""

    def synchronize(self) -> None:
        """Wait for the queue. Raises LaunchFailed if work in it failed."""

    def elapsed_us(self, start: int, stop: int) -> float:
        """Microseconds between two recorded events."""

    def clock_mhz(self, start: int, stop: int) -> float:
        """SM clock in MHz between an even stamp and the next; NaN where it could not be read."""

    def stamped_us(self, start: int, stop: int) -> float:
        """Microseconds between these stamps by the global timer, independent of events; NaN where not readable."""

    def host_us(self) -> float:
        """The host's clock in microseconds."""

    def throttle_reasons(self) -> int:
        """NVML's mask of clock event reasons now, 0 where it cannot be read."""

    def capture(self, launches: Sequence[Launch]) -> Launch:
        """One launch that replays all of these, in this order. Raises LaunchFailed if one can't be recorded."""

    def tracer(self, queued: bool = True) -> AbstractContextManager[Tracer]:
        """While open, the device's own tracer. queued: whether launches are enqueued behind a blocking kernel, which a
        launch that waits for the GPU must not be. Raises BadSetting where there is no tracer.
        """

    def remarks(self) -> list[str]:
        """What the timeline could not do, for the result."""

    def spin(self, ns: int) -> None:
        """Enqueue a kernel that lasts `ns` nanoseconds by the device's global timer."""

    def probe_l2(self) -> Sequence[float]:
        """Cycles of single reads, one after the other and past L1, from a buffer much smaller than L2."""

    def burn(self, flops: float) -> None:
        """Enqueue `flops` FP32 operations of multiply-adds on all SMs."""

    def pause(self, seconds: float) -> None:
        """Let the host sleep."""

    def go_cold(self) -> None:
        """Idle until the clocks have fallen."""


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
