"""The timer `graph`: launches recorded once in a CUDA graph and replayed as one, so that no launch waits for the host.

It is a cross-check more than a timer. The gaps between the graph's nodes are in the number (`worklog peers` shows them
in do_bench_cudagraph's), the event overhead is shared by the graph's launches, and nothing can flush L2 between nodes,
so the inputs must rotate to be cold.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from worklog.harness.l2 import Rotating
from worklog.harness.timeline import Launch, Timeline
from worklog.settings import Harness

GRAPH_LAUNCHES = 10  # FlashInfer's number of calls in a graph
GRAPH_US = 20_000.0  # fewer launches of slow kernels: a graph of about this length


class GraphLaunch:
    """One replay of a graph of `launches` launches; a sample of it is the replay's time divided by them."""

    def __init__(self, timeline: Timeline, launch: Launch, launches: int) -> None:
        self.timeline, self.launch, self.launches = timeline, launch, launches
        self.record()

    def record(self) -> None:
        """Record the graph, again after the buffers have moved: a graph holds their addresses."""
        self.replay = self.timeline.capture([self.launch] * self.launches)

    def __call__(self) -> None:
        """Enqueue the whole graph."""
        self.replay()


def as_graphs(timeline: Timeline, launches: Sequence[Launch], harness: Harness) -> list[GraphLaunch]:
    """Each launch as a graph of launches. With l2 = "rotate" a graph holds whole rounds of the inputs, so that each
    replay finds each set as cold as the one before. Raises LaunchFailed where a launch can't be recorded.
    """
    graphs = []
    for launch in launches:
        wanted = int(min(GRAPH_LAUNCHES, max(1.0, ceil(GRAPH_US / _rough_us(timeline, launch)))))
        sets = launch.sets if isinstance(launch, Rotating) and harness.l2 == "rotate" else 1
        graphs.append(GraphLaunch(timeline, launch, sets * ceil(wanted / sets)))
    return graphs


def launches_in(launch: Launch) -> int:
    """The number of launches of the kernel in one call."""
    return launch.launches if isinstance(launch, GraphLaunch) else 1


def _rough_us(timeline: Timeline, launch: Launch) -> float:
    """One launch by events, after a first one that loads the kernel; only chooses the graph's length."""
    launch()
    timeline.synchronize()
    timeline.record_event(0)
    launch()
    timeline.record_event(1)
    timeline.synchronize()
    return max(timeline.elapsed_us(0, 1), 1.0)
