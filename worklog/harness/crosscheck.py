"""A cross-check of the events' reading by other timers: the wall clock and a CUDA graph.

Events measure only the stream that they are recorded on. They miss work that a launch puts on another stream, waits for
on the host, or does on the host; the other timers don't. All read with a warm L2, since only events can follow a flush
that isn't timed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from worklog.errors import LaunchFailed
from worklog.harness.batches import LONGEST_BATCH, bubble_us, host_us_of, take_batch
from worklog.harness.launch import Launch, Timed, as_graph, timed
from worklog.settings import Harness

if TYPE_CHECKING:
    from worklog.harness.cuda_timeline import CudaTimeline

# Microseconds and share by which a timer may differ: a graph has gaps between its nodes, and launches in a row overlap.
WALL_CLOCK = "wall clock"
ALLOWED = {"graph": (2.0, 0.02), WALL_CLOCK: (2.0, 0.02)}
BATCHES = 3
WARM_US = 10_000.0  # work of one batch by events
WALL_US = 5_000.0  # work between two readings of the clock
WALL_ROUNDS = 3
HOST_BOUND = 3.0  # x the host's launch cost: the wall clock can't see shorter kernels


@dataclass(frozen=True)
class CrossCheck:
    """Microseconds of one launch with a warm L2: by events, without the event overhead, and by the other timers.
    absent: why a timer has no reading. bubble_us: the launch bubble in the events' reading where nothing was queued,
    from a kernel of known length. limit: share of the time by which a timer may differ (default: ALLOWED).
    host_us: what a queued launch costs the host.
    """

    events_us: float
    others: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    bubble_us: float = 0.0
    limit: float | None = None
    host_us: float = 0.0

    @property
    def disagreements(self) -> list[str]:
        """What the result must state."""
        bubble = f", and events with a launch bubble of some {self.bubble_us:.1f} µs" if self.bubble_us else ""
        said = []
        for name, us in self.others.items():
            least, share = ALLOWED[name] if self.limit is None else (0.0, self.limit)
            allowed_us = max(least, share * self.events_us)
            if not -allowed_us - self.bubble_us <= us - self.events_us <= allowed_us:
                readings = f"the {name} reads {us:.2f} µs, events read {self.events_us:.2f} µs"
                bound = name == WALL_CLOCK and self.host_us > self.events_us
                slow = f"; the host takes {self.host_us:.1f} µs to launch it" if bound else ""
                said.append(f"cross-check: {readings} (both with a warm L2{bubble}{slow})")
        return said


def cross_check(
    timeline: CudaTimeline,
    launch: Launch,
    offset_us: float,
    launch_us: float,
    queue: bool = True,
    every_timer: bool = True,
    limit: float | None = None,
) -> CrossCheck:
    """Read the launch by every timer there is, or by the wall clock alone. launch_us: host time per launch, from the
    calibration. The launch must have run before, and take the same inputs each time, so that they are in L2. queue:
    whether it may be queued; a launch that waits for the GPU may not. limit: share of the time that is allowed.
    """
    warm = Harness().but(l2="warm", queue=queue)
    events_us = _median_us(timeline, timed(launch), warm) - offset_us
    bubble = 0.0 if queue else max(0.0, bubble_us(timeline, warm))
    others: dict[str, float] = {}
    absent: dict[str, str] = {}
    if every_timer:
        try:
            graph = as_graph(timeline, timed(launch), warm.l2, warm.graph_launches)
            others["graph"] = _median_us(timeline, graph, warm) - offset_us / graph.count
        except LaunchFailed as error:
            absent["graph"] = str(error)
    host_us = 0.0
    if events_us - bubble < HOST_BOUND * launch_us:
        absent[WALL_CLOCK] = f"a kernel of {events_us - bubble:.1f} µs is hidden by its launch of {launch_us:.1f} µs"
    else:
        host_us = host_us_of(timeline, launch) if queue else 0.0
        others[WALL_CLOCK] = _wall_us(timeline, launch, events_us)
    return CrossCheck(events_us, others, absent, bubble, limit, host_us)


def _median_us(timeline: CudaTimeline, launch: Timed, harness: Harness) -> float:
    """Median of some batches, the first left out, which has one launch and shows how many the others may have."""

    def batch(count: int) -> list[float]:
        return [pair[0].us for pair in take_batch(timeline, [launch], count, harness)[0]]

    count = int(np.clip(WARM_US / max(batch(1)[0], 1.0), 1, LONGEST_BATCH))
    return float(np.median([us for _ in range(BATCHES) for us in batch(count)]))


def _wall_us(timeline: CudaTimeline, launch: Launch, events_us: float) -> float:
    """Host time per launch in a row: the time of 2n launches minus that of n, so that what occurs once cancels."""
    count = int(np.clip(WALL_US / events_us, 1, 512))

    def duration_us(launches: int) -> float:
        timeline.synchronize()
        started = timeline.host_us()
        for _ in range(launches):
            launch()
        timeline.synchronize()
        return timeline.host_us() - started

    rounds = WALL_ROUNDS if count > 1 else 1
    return float(np.median([(duration_us(2 * count) - duration_us(count)) / count for _ in range(rounds)]))
