"""What is timed, samples of it in batches by the timer that the harness names, and beside them launches in a row and
a cross-check by the wall clock.

An unbiased sample is: clock stamp, L2 flush, event, launch, event, reading of the output, clock stamp, all of it queued
behind a blocking kernel so that the GPU doesn't wait for the host between the events, and nothing queued behind it. A
GPU fetches its commands from the host's memory a few at a time, and with more samples in the queue a fetch could fall
between the events. The launch descriptors lie in a ring of a few places, and a short kernel takes longer from some
places than from others, so a random number of empty kernels goes before each sample.

Launches in a row give the hot time, as NVBench's batch measurement: each finds in L2 what the one before left, and the
end of one overlaps with the start of the next. A CUDA graph replays recorded launches as one, so that no launch waits
for the host. The gaps between its nodes are in the number, its launches share the event overhead, and nothing can flush
L2 between nodes, so the inputs must rotate to be cold. Events measure only the stream that they are recorded on; the
wall clock also reads work that a launch puts on another stream, waits for on the host, or does on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from worklog.errors import BadSetting
from worklog.runs import Sample
from worklog.settings import WALL_CLOCK, Harness

if TYPE_CHECKING:
    from worklog.gpu.timeline import CudaTimeline

Launch = Callable[[], None]
Turns = list[list[Sample]]  # turn by turn, a sample of each launch
ROTATION = 3.0  # x L2: bytes that go through the cache before a set is used again
GRAPH_US = 20_000.0  # fewer launches of slow kernels: a graph of about this length
BATCH_US = 60_000.0  # GPU time between two reads of the events: long enough to be cheap, short enough to stop in time
LONGEST_BATCH = 16  # turns
SPIN_US = 10  # length of the kernel that shows the launch bubble
ROUNDS = 8  # batches of each launch that count, after one that doesn't
MOST_IN_A_BATCH = 64
# Host time for what is enqueued behind a blocking kernel. The stream's queue holds about 1000 kernels, each of which
# takes the host 2 µs or more; a launch of a library or of PyTorch may be hundreds, and a full queue would never drain.
QUEUED_US = 1000.0
LONGEST_US = (
    1e6  # of all rounds together; a launch that is so long isn't made faster by what L2 holds
)
# microseconds and share by which it may differ: launches in a row overlap
ALLOWED_US = 2.0
ALLOWED = 0.02
# by events, and work of one
BATCHES = 3
WARM_US = 10_000.0
# by the wall clock, and work between two readings
WALL_ROUNDS = 3
WALL_US = 5_000.0
HOST_BOUND = 3.0  # x the host's launch cost: the wall clock can't see shorter kernels


def nothing() -> None:
    """Enqueue nothing."""


@dataclass(frozen=True)
class Timed:
    """One launch of a kernel, with untimed work around it: before (before the flush, e.g. new inputs), behind (behind
    the end event, e.g. reading the output), and after everything else (e.g. checking what was read).

    launch: takes nothing, or, if it is `partly` timed, a Stopwatch. name: of the kernel; kernels: gives their number
    per launch, after the loop, if that is known. sets, set_bytes: that it rotates over, one each time, so that no set
    is still in L2 when its turn comes again; unlike a flush, this keeps the GPU as busy as a real program does, and
    leaves no dirty lines. count: launches of the kernel in one call, of a graph. repeats: calls in a row. moved: called
    after the buffers have moved.
    """

    launch: Callable[..., Any]
    name: str = ""
    kernels: Callable[[], int | None] = lambda: None
    before: Launch = nothing
    behind: Launch = nothing
    after: Launch = nothing
    moved: Launch = nothing
    partly: bool = False
    sets: int = 1
    set_bytes: int = 0
    count: int = 1
    repeats: int = 1


class Stopwatch:
    """For a launch that times a part of itself: start(), then stop(), once each; any other order is a BadSetting."""

    def __init__(self, start: Launch = nothing, stop: Launch = nothing) -> None:
        self._left = [("start", start), ("stop", stop)]

    def start(self, button: str = "start") -> None:
        """The timed part begins here."""
        if not self._left or self._left[0][0] != button:
            raise BadSetting(
                f"stopwatch.{button}() out of turn: call start() once, then stop() once, in each launch"
            )
        self._left.pop(0)[1]()

    def stop(self) -> None:
        """The timed part ends here."""
        self.start("stop")

    def require_pressed(self) -> None:
        """Raise BadSetting for a launch that has no time."""
        if self._left:
            raise BadSetting(
                f"the launch returned without stopwatch.{self._left[0][0]}(): it has no time"
            )


def rotating(launches: Sequence[Launch], set_bytes: int) -> Timed:
    """The launches on several sets of inputs as one that takes the next set each time."""
    following = cycle(launches)
    return Timed(lambda: next(following)(), sets=len(launches), set_bytes=set_bytes)


def input_sets(set_bytes: int, l2_bytes: int) -> int:
    """Sets of inputs (and outputs) of `set_bytes` to rotate over: three times the L2 in total, and at least two."""
    if set_bytes <= 0:
        raise BadSetting(
            "l2 = rotate: a set of inputs without a byte cannot be rotated; take l2 = flush"
        )
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
    launch.launch()  # loads the kernel
    timeline.synchronize()
    timeline.record_event(0)
    launch.launch()
    timeline.record_event(1)
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


def turn_orders(launches: int, turns: str = "balanced") -> list[list[int]]:
    """The order of the launches in each turn, until the orders repeat. "balanced": Williams' design (1949): within
    turns, each follows each other one equally often, and where possible the last of a turn is the first of the next.
    """
    if turns == "fixed":
        return [[*range(launches)]]
    zigzag = [-(place // 2) - 1 if place % 2 else place // 2 for place in range(launches)]
    rows = [[(first + step) % launches for step in zigzag] for first in range(launches)]
    if launches % 2:
        rows += [row[::-1] for row in rows]
    orders = [rows.pop(0)]
    while rows:
        follows = next((row for row in rows if row[0] == orders[-1][-1]), rows[0])
        rows.remove(follows)
        orders.append(follows)
    return orders


def turns_us(taken: Turns, launches: Sequence[Timed]) -> list[float]:
    """GPU time of each turn."""
    return [
        sum(launch.count * sample.us for launch, sample in zip(launches, turn, strict=True))
        for turn in taken
    ]


def batch_size(taken: Turns, launches: Sequence[Timed], most_us: float = BATCH_US) -> int:
    """Turns between two reads of the events, from the longest turn so far; one if there is none."""
    longest = max(turns_us(taken, launches), default=most_us)
    return int(np.clip(most_us / max(longest, 1.0), 1, LONGEST_BATCH))


def take_batch(
    timeline: CudaTimeline,
    launches: Sequence[Timed],
    count: int,
    harness: Harness,
    first: int = 0,
    move: Launch | None = None,
    in_placement: int = 1,
    placement: int = 0,
) -> tuple[Turns, int]:
    """`count` samples of each launch, turn by turn, and the throttle mask seen while they ran.

    first: number of turns taken before. move: moves the buffers to a new placement, before every in_placement turns.
    placement: the number of the present one.
    """
    orders = turn_orders(len(launches), harness.turns)
    placed: list[int] = []
    host_us: dict[int, float] = {}
    timeline.make_room(2 * count * len(launches))
    for turn in range(count):
        if move and turn % in_placement == 0:
            move()
            for launch in launches:
                launch.moved()
            placement += 1
        placed.append(placement)
        for side in orders[(first + turn) % len(orders)]:
            launch = launches[side]
            slot = 2 * (turn * len(launches) + side)
            if harness.sleep_ms:
                timeline.pause(harness.sleep_ms / 1e3)
            timeline.draw_place()
            if harness.l2 != "warm":
                timeline.lift_marks()
            with blocked(timeline) if harness.queues else nullcontext():
                launch.before()
                timeline.stamp_clock(slot)
                if harness.l2 == "flush":
                    timeline.flush_l2()
                if not harness.queues:
                    timeline.synchronize()
                if harness.timer == "host":
                    host_us[slot] = host_us_of(timeline, launch.launch)
                elif launch.partly:
                    watch = Stopwatch(
                        partial(timeline.record_event, slot),
                        partial(timeline.record_event, slot + 1),
                    )
                    launch.launch(watch)
                    watch.require_pressed()
                else:
                    timeline.record_event(slot)
                    for _ in range(launch.repeats):
                        launch.launch()
                    timeline.record_event(slot + 1)
                launch.behind()  # at once: the launch may still work on a stream of its own
                timeline.stamp_clock(slot + 1)
            timeline.synchronize()
            launch.after()
    mask = timeline.watch.reasons()  # once: reading NVML takes longer than a short kernel
    turns: Turns = []
    for turn in range(count):
        turns.append([])
        for side, launch in enumerate(launches):
            slot = 2 * (turn * len(launches) + side)
            us = host_us[slot] if host_us else timeline.elapsed_us(slot, slot + 1)
            us /= launch.count * launch.repeats
            turns[turn].append(
                Sample(us, timeline.clock_mhz(slot, slot + 1), placement=placed[turn])
            )
    return turns, mask


def bubble_us(timeline: CudaTimeline, harness: Harness) -> float:
    """Microseconds that events read more without a blocking kernel, from a kernel of known length read both ways."""
    medians = []
    for queue in (False, True):
        spin = Timed(partial(timeline.spin, 1000 * SPIN_US))
        turns, _ = take_batch(
            timeline, [spin], LONGEST_BATCH, harness.but(timer="events", queue=queue)
        )
        medians.append(float(np.median([sample.us for (sample,) in turns])))
    return medians[0] - medians[1]


def host_us_of(
    timeline: CudaTimeline, enqueue: Launch, times: int = 1, wait: bool = False
) -> float:
    """Microseconds of host time to enqueue some times, alone on an idle stream. wait: until the work has ended."""
    timeline.synchronize()
    started = timeline.host_us()
    for _ in range(times):
        enqueue()
    enqueued = timeline.host_us()
    timeline.synchronize()
    return (timeline.host_us() if wait else enqueued) - started


def hot(
    timeline: CudaTimeline,
    launches: Sequence[Timed],
    us: Sequence[float],
    harness: Harness,
    offset_us: float,
) -> list[list[float]]:
    """Microseconds of one launch in each batch, for each of the launches in turn; [] where the harness or a launch
    doesn't allow it. us: the time of each. offset_us: the event overhead, which a batch has once.
    """
    cold = harness.timer == "events" and harness.queue and harness.l2 != "warm"
    if (
        not (harness.hot_ms and cold)
        or any(launch.partly for launch in launches)
        or ROUNDS * sum(us) > LONGEST_US
    ):
        return []

    rows = []
    for timed, time_us in zip(launches, us, strict=True):
        fitting = QUEUED_US / max(host_us_of(timeline, timed.launch), 1.0)
        count = int(
            np.clip(min(1e3 * harness.hot_ms / max(time_us, 1.0), fitting), 1, MOST_IN_A_BATCH)
        )
        rows.append(Timed(timed.launch, repeats=count))
    turns, _ = take_batch(timeline, rows, ROUNDS + 1, harness.but(l2="warm", sleep_ms=0.0))
    return [
        [turn[side].us - offset_us / row.repeats for turn in turns[1:]]
        for side, row in enumerate(rows)
    ]


def cross_check(
    timeline: CudaTimeline,
    launch: Launch,
    offset_us: float,
    launch_us: float,
    limit: float | None = None,
) -> tuple[float | str, list[str]]:
    """What the wall clock reads of one launch with a warm L2 in microseconds, or why it can't; and what the result must
    state: a disagreement with the events.

    offset_us, launch_us: the event overhead and the host time per launch, from the calibration. The launch must have
    run before, and take the same inputs each time, so that they are in L2. limit: share of the time that is allowed
    (default: 2 %, and at least 2 µs).
    """
    warm = Harness().but(l2="warm")
    alone = [Timed(launch)]
    size = batch_size(take_batch(timeline, alone, 1, warm)[0], alone, WARM_US)
    batches = [take_batch(timeline, alone, size, warm)[0] for _ in range(BATCHES)]
    events_us = (
        float(np.median([sample.us for turns in batches for (sample,) in turns])) - offset_us
    )
    if events_us < HOST_BOUND * launch_us:
        return f"a kernel of {events_us:.1f} µs is hidden by its launch of {launch_us:.1f} µs", []
    count = int(np.clip(WALL_US / events_us, 1, 512))
    differences = [  # in each, what occurs once cancels
        (
            host_us_of(timeline, launch, 2 * count, wait=True)
            - host_us_of(timeline, launch, count, wait=True)
        )
        / count
        for _ in range(WALL_ROUNDS if count > 1 else 1)
    ]
    wall_us = float(np.median(differences))
    if abs(wall_us - events_us) <= (
        max(ALLOWED_US, ALLOWED * events_us) if limit is None else limit * events_us
    ):
        return wall_us, []
    readings = f"the {WALL_CLOCK} reads {wall_us:.2f} µs, events read {events_us:.2f} µs (both with a warm L2"
    if (host_us := host_us_of(timeline, launch)) > events_us:
        readings += f"; the host takes {host_us:.1f} µs to launch it"
    return wall_us, [f"cross-check: {readings})"]
