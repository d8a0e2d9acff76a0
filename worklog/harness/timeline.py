"""What the harness needs from a machine: a queue of work in which it can flush, stamp, record and launch.

The CUDA timeline (worklog.harness.cuda_timeline) is the real one. The tests use a simulated one whose true kernel
times, clocks and event overhead are known, so that each fix can be shown to recover the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

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
