"""The timers beside events, as cross-checks: a CUDA graph of launches, and the GPU's own tracer.

`graph` replays recorded launches as one, so that no launch waits for the host. The gaps between the graph's nodes are
in the number (`worklog peers` shows them in do_bench_cudagraph's), its launches share the event overhead, and nothing
can flush L2 between nodes, so the inputs must rotate to be cold.

`cupti` reads when a launch's kernels started and ended. It depends on neither events nor launch times. It reads kernels
of known length slightly long (`worklog peers` says by how much), needs NVIDIA's cupti-python package, and a process can
have only one tracer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from math import ceil
from typing import Any

from worklog.errors import BadSetting, LaunchFailed
from worklog.harness.timeline import Launch, Rotating, Timeline, Tracer, Waiting
from worklog.settings import Harness

GRAPH_LAUNCHES = 10  # FlashInfer's number of calls in a graph
GRAPH_US = 20_000.0  # fewer launches of slow kernels: a graph of about this length
BLOCKING = "harness_hold"  # the blocking kernel's name
BUFFER_BYTES = 2**20
FORCED = 1  # cupti_activity.h, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: hand over buffers that are not full


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


def load_cupti() -> Any:
    """The module cupti.cupti. Raises BadSetting, with the remedy, where it cannot be imported."""
    try:
        from cupti import cupti
    except ImportError as error:
        raise BadSetting(
            f"timer = cupti needs NVIDIA's tracer, which cannot be imported ({error}): pip install cupti-python "
            "(CUDA 13), or take timer = events"
        ) from error
    return cupti


class KernelTracer:
    """Records start and end, in nanoseconds, of every kernel while it traces. CUPTI takes one pair of callbacks per
    process, so get it from the_tracer.
    """

    def __init__(self, cupti: Any) -> None:
        self._cupti = cupti
        self._records: list[tuple[int, int]] = []
        with self._as_bad_setting():
            cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), self._completed)

    @contextmanager
    def tracing(
        self, synchronize: Callable[[], None], blocked: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> Iterator[Tracer]:
        """Trace while the context is open; it yields a function from a launch to microseconds.

        A launch may enqueue several kernels: its time is from the first start to the last end. blocked: a context in
        which work waits behind a blocking kernel, so that the GPU doesn't wait for the host between two kernels. Raises
        BadSetting where CUPTI can't trace (another tracer in the process, no permission).
        """
        kind = self._cupti.ActivityKind.CONCURRENT_KERNEL

        def span_us(launch: Launch, before: Sequence[Launch] = ()) -> float:
            synchronize()
            self._cupti.activity_flush_all(FORCED)
            self._records.clear()
            with nullcontext() if isinstance(launch, Waiting) else blocked():
                for one in (*before, launch):
                    one()
            synchronize()
            self._cupti.activity_flush_all(FORCED)
            spans = sorted(self._records)[len(before) :]
            if not spans:
                raise LaunchFailed("timer = cupti: the tracer saw no kernel for this launch: take timer = events")
            return (max(end for _, end in spans) - spans[0][0]) / 1e3

        with self._as_bad_setting():
            self._cupti.activity_enable(kind)
        try:
            yield span_us
        finally:
            self._cupti.activity_disable(kind)

    def _completed(self, activities: list[Any]) -> None:
        self._records.extend((each.start, each.end) for each in activities if str(each.name) != BLOCKING)

    @contextmanager
    def _as_bad_setting(self) -> Iterator[None]:
        try:
            yield
        except self._cupti.cuptiError as error:
            raise BadSetting(f"timer = cupti: CUPTI can't trace here ({error}): take timer = events") from error


the_tracer = cache(KernelTracer)  # the process's one tracer
