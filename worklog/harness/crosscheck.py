"""A cross-check of the events' reading by the wall clock.

Events measure only the stream that they are recorded on. They miss work that a launch puts on another stream, waits for
on the host, or does on the host; the wall clock doesn't. Both read with a warm L2, since only events can follow a flush
that isn't timed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from worklog.harness.batches import batch_size, bubble_us, host_us_of, take_batch
from worklog.harness.launch import Launch, Timed
from worklog.settings import Harness

if TYPE_CHECKING:
    from worklog.harness.cuda_timeline import CudaTimeline

WALL_CLOCK = "wall clock"
ALLOWED_US, ALLOWED = 2.0, 0.02  # microseconds and share by which it may differ: launches in a row overlap
BATCHES, WARM_US = 3, 10_000.0  # by events, and work of one
WALL_ROUNDS, WALL_US = 3, 5_000.0  # by the wall clock, and work between two readings
HOST_BOUND = 3.0  # x the host's launch cost: the wall clock can't see shorter kernels


def cross_check(
    timeline: CudaTimeline,
    launch: Launch,
    offset_us: float,
    launch_us: float,
    queue: bool = True,
    limit: float | None = None,
) -> tuple[float | str, list[str]]:
    """What the wall clock reads of one launch with a warm L2 in microseconds, or why it can't; and what the result must
    state: a disagreement with the events.

    offset_us, launch_us: the event overhead and the host time per launch, from the calibration. The launch must have
    run before, and take the same inputs each time, so that they are in L2. queue: whether it may be queued; a launch
    that waits for the GPU may not, and events then read a launch bubble too, which is known from a kernel of known
    length. limit: share of the time that is allowed (default: 2 %, and at least 2 µs).
    """
    warm, times = Harness().but(l2="warm", queue=queue), list[float]()
    turns, _ = take_batch(timeline, [Timed(launch)], 1, warm)
    size = batch_size(turns, [Timed(launch)], WARM_US)
    for _ in range(BATCHES):
        turns, _ = take_batch(timeline, [Timed(launch)], size, warm)
        times += [sample.us for (sample,) in turns]
    events_us = float(np.median(times)) - offset_us
    bubble = 0.0 if queue else max(0.0, bubble_us(timeline, warm))
    if events_us - bubble < HOST_BOUND * launch_us:
        return f"a kernel of {events_us - bubble:.1f} µs is hidden by its launch of {launch_us:.1f} µs", []
    count = int(np.clip(WALL_US / events_us, 1, 512))

    def duration_us(launches: int) -> float:
        timeline.synchronize()
        started = timeline.host_us()
        for _ in range(launches):
            launch()
        timeline.synchronize()
        return timeline.host_us() - started

    rounds = range(WALL_ROUNDS if count > 1 else 1)  # in each, what occurs once cancels
    wall_us = float(np.median([(duration_us(2 * count) - duration_us(count)) / count for _ in rounds]))
    allowed_us = max(ALLOWED_US, ALLOWED * events_us) if limit is None else limit * events_us
    if -allowed_us - bubble <= wall_us - events_us <= allowed_us:
        return wall_us, []
    readings = f"the {WALL_CLOCK} reads {wall_us:.2f} µs, events read {events_us:.2f} µs (both with a warm L2"
    if bubble:
        readings += f", and events with a launch bubble of some {bubble:.1f} µs"
    if queue and (host_us := host_us_of(timeline, launch)) > events_us:
        readings += f"; the host takes {host_us:.1f} µs to launch it"
    return wall_us, [f"cross-check: {readings})"]
