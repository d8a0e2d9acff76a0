"""What the ruler needs from a machine: a queue of work in which it can flush, stamp, record and launch.

The CUDA timeline (worklog.harness.cuda_timeline) is the real one. The tests use a simulated one whose true kernel
times, clocks and offsets are known, so that each fix can be shown to recover the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

Launch = Callable[[], None]


class Tracer(Protocol):
    """From a launch to the microseconds that its kernels took."""

    def __call__(self, launch: Launch, before: Sequence[Launch] = ()) -> float:
        """before: a kernel each, enqueued right before the launch and not in its time."""


class Timeline(Protocol):
    """One in-order queue of a device. Everything but `synchronize`, `release` and the readers only enqueues."""

    @property
    def l2_bytes(self) -> int:
        """Size of the device's L2 cache."""

    def draw_place(self) -> None:
        """Let chance say where in the device's ring of launches the next one lies."""

    def lift_marks(self) -> None:
        """Make lines of L2 that a kernel has marked to stay ordinary ones, which a flush evicts. What is enqueued
        afterwards waits for all streams of the process: for ever, where one of them does.
        """

    def hold(self) -> None:
        """Block the queue until `release`: what is enqueued meanwhile runs back to back."""

    def release(self) -> None:
        """Let a held queue run."""

    def flush_l2(self) -> None:
        """Overwrite 2 x L2 with data that is not constant."""

    def stamp_clock(self, slot: int) -> None:
        """Note the SMs' cycle counters and the global timer."""

    def record_event(self, slot: int) -> None:
        """Record a timing event."""

    def synchronize(self) -> None:
        """Wait for the queue. Raises LaunchFailed if work in it failed."""

    def elapsed_us(self, start: int, stop: int) -> float:
        """Microseconds between two recorded events."""

    def clock_mhz(self, start: int, stop: int) -> float:
        """SM clock between two stamps, in MHz; NaN where it could not be read."""

    def stamped_us(self, start: int, stop: int) -> float:
        """Microseconds between two stamps by the global timer, a clock that knows nothing of events; NaN where it could
        not be read.
        """

    def host_us(self) -> float:
        """The host's clock in microseconds."""

    def throttle_reasons(self) -> int:
        """NVML's mask of clock event reasons now, 0 where it cannot be read."""

    def capture(self, launches: Sequence[Launch]) -> Launch:
        """One launch that replays all of these, recorded in this order. Raises LaunchFailed where one cannot be."""

    def tracer(self, queued: bool = True) -> AbstractContextManager[Tracer]:
        """While open, what the device's own tracer says of launches. queued: whether each is enqueued behind a blocking
        kernel, as one that waits for the GPU must not be. Raises BadSetting where there is none.
        """

    def remarks(self) -> list[str]:
        """What the timeline could not do as asked, for the result."""

    def spin(self, ns: int) -> None:
        """Enqueue a kernel that lasts so many nanoseconds by the device's global timer."""

    def probe_l2(self) -> Sequence[float]:
        """Cycles of each of some reads, one after the other and past L1, from a buffer much smaller than L2."""

    def burn(self, flops: float) -> None:
        """Enqueue so many FP32 operations of multiply-adds on all SMs."""

    def pause(self, seconds: float) -> None:
        """Let the host do nothing."""

    def go_cold(self) -> None:
        """Idle until the clocks have fallen."""
