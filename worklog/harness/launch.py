"""What the harness enqueues on a timeline (worklog.harness.cuda_timeline): launches with the untimed work around them.

A CUDA graph replays recorded launches as one, so that no launch waits for the host. The gaps between the graph's nodes
are in the number (`worklog peers` shows them in do_bench_cudagraph's), its launches share the event overhead, and
nothing can flush L2 between nodes, so the inputs must rotate to be cold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from math import ceil
from typing import TYPE_CHECKING, Any

from worklog.errors import BadSetting

if TYPE_CHECKING:
    from worklog.harness.cuda_timeline import CudaTimeline

Launch = Callable[[], None]
ROTATION = 3.0  # x L2: bytes that go through the cache before a set is used again
GRAPH_US = 20_000.0  # fewer launches of slow kernels: a graph of about this length


def nothing() -> None:
    """Enqueue nothing."""


@dataclass(frozen=True)
class Timed:
    """One launch of a kernel, with untimed work around it: before (before the flush, e.g. new inputs), behind (behind
    the end event, e.g. reading the output), and after everything else (e.g. checking what was read).

    launch: takes nothing, or, if it is `partly` timed, a Stopwatch. name: of the kernel; kernels: gives their number
    per launch, after the loop, if that is known. at_once: whether not even the clock stamp may come between the end
    event and `behind`, for a launch that may still work on a stream of its own. sets, set_bytes: that it rotates over,
    one each time, so that no set is still in L2 when its turn comes again. count: launches of the kernel in one call,
    of a graph. moved: called after the buffers have moved.

    A flush leaves the GPU idle for a moment and L2 full of dirty lines; rotation keeps the GPU as busy as a real
    program does. Both are cold, and their times may differ.
    """

    launch: Callable[..., Any]
    name: str = ""
    kernels: Callable[[], int | None] = lambda: None
    before: Launch = nothing
    behind: Launch = nothing
    after: Launch = nothing
    moved: Launch = nothing
    at_once: bool = False
    partly: bool = False
    sets: int = 1
    set_bytes: int = 0
    count: int = 1

    def enqueue(self, start: Launch = nothing, stop: Launch = nothing) -> None:
        """Launch once. start, stop: enqueue the events around it, or around the part that it times. Raises BadSetting
        where the launch presses its stopwatch otherwise than start, stop.
        """
        if not self.partly:
            start()
            self.launch()
            stop()
            return
        watch = Stopwatch(start, stop)
        self.launch(watch)
        if watch.left:
            raise BadSetting(f"the launch returned without stopwatch.{watch.left[0][0]}(): it has no time")

    def __call__(self) -> None:
        """Launch without timing, for a warm-up; this output is checked too."""
        self.before()
        self.enqueue()
        self.behind()
        self.after()


class Stopwatch:
    """Passed to a launch that times a part of itself: call start(), then stop(), once each, in stream order. Raises
    BadSetting for any other order.
    """

    def __init__(self, start: Launch, stop: Launch) -> None:
        self.left = [("start", start), ("stop", stop)]

    def start(self) -> None:
        """The timed part begins here."""
        self._press("start")

    def stop(self) -> None:
        """The timed part ends here."""
        self._press("stop")

    def _press(self, button: str) -> None:
        if not self.left or self.left[0][0] != button:
            raise BadSetting(f"stopwatch.{button}() out of turn: call start() once, then stop() once, in each launch")
        self.left.pop(0)[1]()


def rotating(launches: Sequence[Launch], set_bytes: int) -> Timed:
    """The launches on several sets of inputs as one that takes the next set each time."""
    following = cycle(launches)
    return Timed(lambda: next(following)(), sets=len(launches), set_bytes=set_bytes)


def input_sets(set_bytes: int, l2_bytes: int) -> int:
    """Sets of inputs (and outputs) of `set_bytes` to rotate over: three times the L2 in total, and at least two."""
    if set_bytes <= 0:
        raise BadSetting("l2 = rotate: a set of inputs without a byte cannot be rotated; take l2 = flush")
    return max(2, ceil(ROTATION * l2_bytes / set_bytes))


@contextmanager
def blocked(timeline: CudaTimeline) -> Iterator[None]:
    """What is enqueued while the context is open waits behind a blocking kernel."""
    timeline.hold()
    try:
        yield
    finally:
        timeline.release()


def as_graph(timeline: CudaTimeline, launch: Timed, l2: str, most: int) -> Timed:
    """A launch as a graph of up to `most` launches. With l2 = "rotate" a graph holds whole rounds of the inputs, so
    that each replay finds each set as cold as the one before. It is recorded again after the buffers have moved, since
    it holds their addresses. Raises LaunchFailed where it can't be recorded.
    """
    launch()  # loads the kernel
    timeline.synchronize()
    launch.enqueue(partial(timeline.record_event, 0), partial(timeline.record_event, 1))
    timeline.synchronize()
    wanted = min(most, ceil(GRAPH_US / max(timeline.elapsed_us(0, 1), 1.0)))
    sets = launch.sets if l2 == "rotate" else 1
    count = sets * ceil(wanted / sets)
    replay = nothing

    def record() -> None:
        nonlocal replay
        replay = timeline.capture([launch.launch] * count)

    record()
    return replace(launch, launch=lambda: replay(), count=count, moved=record)
