"""The events' reading against other witnesses of the same launches: the wall clock, a CUDA graph, the GPU's tracer.

Events see only the stream that they are recorded on. Work that a launch puts elsewhere, waits for on the host, or does
there itself escapes them, and not the others. All witnesses read with a warm L2, since only events can be preceded by a
flush that is not timed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from worklog.errors import BadSetting, LaunchFailed
from worklog.harness.batches import LONGEST_BATCH, bubble_us, take_batch
from worklog.harness.graph_timer import as_graphs
from worklog.harness.launchers import waits
from worklog.harness.timeline import Launch, Timeline
from worklog.settings import Harness

# Microseconds and share by which a witness may differ: a graph's nodes stand a little apart, the tracer reads a little
# long, and launches in a row overlap their ends. `worklog peers` says by how much on a machine.
ALLOWED = {"graph": (2.0, 0.02), "cupti": (1.5, 0.02), "wall clock": (2.0, 0.02)}
BATCHES = 3
WALL_US = 20_000.0  # work between two looks at the clock
WALL_ROUNDS = 5
HOST_BOUND = 3.0  # a kernel shorter than so many launches costs the host is waited for by nobody


@dataclass(frozen=True)
class CrossCheck:
    """Microseconds of one launch with a warm L2: by events, the offset taken off, and by each other witness. absent:
    why a witness was not heard. bubble_us: what is in the events' reading besides where nothing was queued, as on a
    kernel of known length.
    """

    events_us: float
    others: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    bubble_us: float = 0.0

    @property
    def disagreements(self) -> list[str]:
        """What must be said on the result."""
        bubble = f", and events with a launch bubble of some {self.bubble_us:.1f} µs" if self.bubble_us else ""
        found = []
        for name, us in self.others.items():
            allowed_us = max(ALLOWED[name][0], ALLOWED[name][1] * self.events_us)
            if not -allowed_us - self.bubble_us <= us - self.events_us <= allowed_us:
                said = f"the {name} says {us:.2f} µs, events say {self.events_us:.2f} µs"
                found.append(f"cross-check: {said} (both with a warm L2{bubble})")
        return found


def cross_check(
    timeline: Timeline, launch: Launch, offset_us: float, launch_us: float, queue: bool = True
) -> CrossCheck:
    """Hear every witness that there is. launch_us: what a launch costs the host, from the calibration. The launch must
    have run before, and take the same inputs each time: going round several sets, it would not find them in L2.
    queue: whether it may be queued, as one that waits for the GPU may not.
    """
    warm = Harness().but(l2="warm", queue=queue)
    events_us = _median_us(timeline, launch, warm) - offset_us
    bubble = 0.0 if queue and not waits([launch]) else max(0.0, bubble_us(timeline, warm))
    others: dict[str, float] = {}
    absent: dict[str, str] = {}
    try:
        (graph,) = as_graphs(timeline, [launch], warm)
        others["graph"] = _median_us(timeline, graph, warm) - offset_us / graph.launches
    except LaunchFailed as error:
        absent["graph"] = str(error)
    try:
        others["cupti"] = _median_us(timeline, launch, warm.but(timer="cupti"))
    except BadSetting as error:
        absent["cupti"] = str(error)
    if events_us - bubble < HOST_BOUND * launch_us:
        absent["wall clock"] = f"a kernel of {events_us - bubble:.1f} µs hides behind its launch of {launch_us:.1f} µs"
    else:
        others["wall clock"] = _wall_us(timeline, launch, events_us)
    return CrossCheck(events_us, others, absent, bubble)


def _median_us(timeline: Timeline, launch: Launch, harness: Harness) -> float:
    """Median of some batches, the first left out."""
    batches = [take_batch(timeline, [launch], LONGEST_BATCH, harness)[0] for _ in range(BATCHES + 1)]
    return float(np.median([pair[0].us for batch in batches[1:] for pair in batch]))


def _wall_us(timeline: Timeline, launch: Launch, events_us: float) -> float:
    """Host time that each further launch in a row adds: twice as many against once, so that what comes once cancels."""
    count = int(np.clip(WALL_US / events_us, 4, 512))

    def lasts(launches: int) -> float:
        timeline.synchronize()
        started = timeline.host_us()
        for _ in range(launches):
            launch()
        timeline.synchronize()
        return timeline.host_us() - started

    return float(np.median([(lasts(2 * count) - lasts(count)) / count for _ in range(WALL_ROUNDS)]))
