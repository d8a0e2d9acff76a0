"""The timer `graph`: launches recorded once in a CUDA graph and replayed as one, so that no launch waits for the host.

A cross-check more than a ruler: the gaps between the graph's nodes are in the number (`worklog peers` shows them in
do_bench_cudagraph's), the event pair's own length is too, shared by the graph's launches, and nothing can be flushed
between nodes, so the inputs must rotate for the cache to be cold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from worklog.harness.l2 import Rotating
from worklog.harness.timeline import Launch, Timeline
from worklog.settings import Harness

GRAPH_LAUNCHES = 10  # FlashInfer's number of calls in a graph
GRAPH_US = 20_000.0  # of slow kernels, fewer: a graph of about this length


@dataclass(frozen=True)
class GraphLaunch:
    """One replay of a graph that holds so many launches; a sample of it is the replay's time over them."""

    replay: Launch
    launches: int

    def __call__(self) -> None:
        """Enqueue the whole graph."""
        self.replay()


def as_graphs(timeline: Timeline, launches: Sequence[Launch], harness: Harness) -> list[GraphLaunch]:
    """Each launch as a graph of launches. With l2 = "rotate" a graph goes whole rounds of the inputs, so that its next
    replay finds each set as cold as this one did. Raises LaunchFailed where a launch cannot be recorded.
    """
    graphs = []
    for launch in launches:
        wanted = int(min(GRAPH_LAUNCHES, max(1.0, ceil(GRAPH_US / _rough_us(timeline, launch)))))
        sets = launch.sets if isinstance(launch, Rotating) and harness.l2 == "rotate" else 1
        count = sets * ceil(wanted / sets)
        graphs.append(GraphLaunch(timeline.capture([launch] * count), count))
    return graphs


def launches_in(launch: Launch) -> int:
    """How many launches of the kernel one call enqueues."""
    return launch.launches if isinstance(launch, GraphLaunch) else 1


def _rough_us(timeline: Timeline, launch: Launch) -> float:
    """One launch by unqueued events, after one that loads the kernel; only to choose the graph's length."""
    launch()
    timeline.synchronize()
    timeline.record_event(0)
    launch()
    timeline.record_event(1)
    timeline.synchronize()
    return max(timeline.elapsed_us(0, 1), 1.0)
