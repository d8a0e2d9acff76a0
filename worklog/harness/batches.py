"""Samples of launches in batches, by the timer that the harness names.

Beside the samples: launches in a row (the hot time), and a cross-check by the wall clock.

An unbiased sample is: clock stamp, L2 flush, event, launch, event, reading of the output, clock
stamp. All of it is queued behind a blocking kernel so that the GPU doesn't wait for the host
between the events, and nothing is queued behind it. A GPU fetches its commands from the host's
memory a few at a time, and with more samples in the queue a fetch could fall between the events.
The launch descriptors lie in a ring of a few places. A short kernel takes longer from some places
than from others, so a random number of empty kernels goes before each sample.

Launches in a row give the hot time, as NVBench's batch measurement does: each launch finds in L2
what the launch before left, and the end of one launch overlaps with the start of the next. A CUDA
graph replays recorded launches as one, so that no launch waits for the host. The gaps between its
nodes are in the number, its launches share the event overhead, and nothing can flush L2 between
nodes, so the inputs must rotate to be cold. Events measure only the stream that they are recorded
on. The wall clock also reads work that a launch puts on another stream, waits for on the host, or
does on the host.
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
from worklog.runs.statistics import Sample
from worklog.settings import WALL_CLOCK, Harness

if TYPE_CHECKING:
    from worklog.gpu.timeline import CudaTimeline

Launch = Callable[[], None]
Turns = list[list[Sample]]  # turn by turn, a sample of each launch
ROTATION = 3.0  # x L2: bytes that go through the cache before a set is used again
GRAPH_US = 20_000.0  # fewer launches of slow kernels: a graph of about this length
# GPU time between two reads of the events: long enough to be cheap, short enough to stop in time
BATCH_US = 60_000.0
LONGEST_BATCH = 16  # turns
SPIN_US = 10  # length of the kernel that shows the launch bubble
ROUNDS = 8  # batches of each launch that count, after one that doesn't
MOST_IN_A_BATCH = 64
# Host time for what is enqueued behind a blocking kernel. The stream's queue holds about 1000
# kernels, each of which takes the host 2 µs or more. A launch of a library or of PyTorch may be
# hundreds, and a full queue would never drain.
QUEUED_US = 1000.0
# Of all rounds together. A launch that is so long isn't made faster by what L2 holds.
LONGEST_US = 1e6
# The wall clock may differ by this many µs or this share: launches in a row overlap.
ALLOWED_US = 2.0
ALLOWED = 0.02
# Batches of the cross-check that are timed by events, and the work in each
BATCHES = 3
WARM_US = 10_000.0
# Rounds that are timed by the wall clock, and the work between two readings
WALL_ROUNDS = 3
WALL_US = 5_000.0
HOST_BOUND = 3.0  # x the host's launch cost: the wall clock can't see shorter kernels


def nothing() -> None:
    """Enqueue nothing."""


@dataclass(frozen=True)
class TimedLaunch:
    """A launch of a kernel, with untimed work around it.

    A launch with several sets of inputs takes another set each time, so that no set is still in
    L2 when its turn comes again. Unlike a flush, this keeps the GPU as busy as a real program
    does, and leaves no dirty lines.
    """

    launch: Callable[..., Any]  # takes nothing; a Stopwatch if it is `partly` timed
    name: str = ""  # of the kernel
    # the number of kernels per launch, after the loop; None if that isn't known
    kernels: Callable[[], int | None] = lambda: None
    before: Launch = nothing  # untimed, before the flush, e.g. new inputs
    behind: Launch = nothing  # untimed, behind the end event, e.g. reading the output
    after: Launch = nothing  # untimed, after everything else, e.g. checking what was read
    moved: Launch = nothing  # called after the buffers have moved
    partly: bool = False  # the launch times a part of itself
    sets: int = 1  # sets of inputs that the launch rotates over
    set_bytes: int = 0  # size of a set
    count: int = 1  # launches of the kernel in one call: the launches of a graph
    repeats: int = 1  # calls in a row


class Stopwatch:
    """Times a part of a launch: start(), then stop(), once each.

    Any other order raises BadSetting.
    """

    def __init__(self, start: Launch = nothing, stop: Launch = nothing) -> None:
        self._left = [("start", start), ("stop", stop)]

    def start(self, button: str = "start") -> None:
        """Begin the timed part."""
        if not self._left or self._left[0][0] != button:
            raise BadSetting(
                f"stopwatch.{button}() out of turn: "
                "call start() once, then stop() once, in each launch"
            )
        self._left.pop(0)[1]()

    def stop(self) -> None:
        """End the timed part."""
        self.start("stop")

    def require_pressed(self) -> None:
        """Raise BadSetting for a launch that has no time."""
        if self._left:
            raise BadSetting(
                f"the launch returned without stopwatch.{self._left[0][0]}(): it has no time"
            )


def rotating(launches: Sequence[Launch], set_bytes: int) -> TimedLaunch:
    """Combine launches on several sets of inputs: each call takes the next set."""
    launch_cycle = cycle(launches)
    return TimedLaunch(lambda: next(launch_cycle)(), sets=len(launches), set_bytes=set_bytes)


def input_sets(set_bytes: int, l2_bytes: int) -> int:
    """Return the number of sets of inputs (and outputs) to rotate over.

    They fill three times the L2 in total, and there are at least two.
    """
    if set_bytes <= 0:
        raise BadSetting(
            "l2 = rotate: a set of inputs without a byte can't be rotated: take l2 = flush"
        )
    return max(2, ceil(ROTATION * l2_bytes / set_bytes))


@contextmanager
def blocked(timeline: CudaTimeline) -> Iterator[None]:
    """Hold what is enqueued while the context is open behind a blocking kernel."""
    timeline.hold()
    try:
        yield
    finally:
        timeline.release()


def as_graph(
    timeline: CudaTimeline, launch: TimedLaunch, l2: str, max_launches: int
) -> TimedLaunch:
    """Return a launch as a graph of up to `max_launches` launches.

    With l2 = "rotate" a graph holds whole rounds of the inputs, so that each replay finds each set
    as cold as the replay before. The graph is recorded again after the buffers have moved, since it
    holds their addresses. Raises LaunchFailed if the launch can't be recorded.
    """
    launch.launch()  # loads the kernel
    timeline.synchronize()
    timeline.record_event(0)
    launch.launch()
    timeline.record_event(1)
    timeline.synchronize()
    launch_us = max(timeline.elapsed_us(0, 1), 1.0)
    launches = min(max_launches, ceil(GRAPH_US / launch_us))
    sets = launch.sets if l2 == "rotate" else 1
    count = sets * ceil(launches / sets)
    replay = nothing

    def record() -> None:
        nonlocal replay
        replay = timeline.capture([launch.launch] * count)

    record()
    return replace(launch, launch=lambda: replay(), count=count, moved=record)


def turn_orders(launches: int, turns: str = "balanced") -> list[list[int]]:
    """Return the order of the launches in each turn, until the orders repeat.

    "balanced" is Williams' design (1949). Within turns, each launch follows each other launch
    equally often. If possible, the last launch of a turn is the first of the next.
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


def turns_us(turns: Turns, launches: Sequence[TimedLaunch]) -> list[float]:
    """Return the GPU time of each turn."""
    return [
        sum(launch.count * sample.us for launch, sample in zip(launches, turn, strict=True))
        for turn in turns
    ]


def batch_size(turns: Turns, launches: Sequence[TimedLaunch], max_us: float = BATCH_US) -> int:
    """Return how many turns to take between two reads of the events.

    It follows from the longest turn so far. Without any turn it is 1.
    """
    longest_us = max(turns_us(turns, launches), default=max_us)
    return int(np.clip(max_us / max(longest_us, 1.0), 1, LONGEST_BATCH))


def take_batch(
    timeline: CudaTimeline,
    launches: Sequence[TimedLaunch],
    count: int,
    harness: Harness,
    *,
    first: int = 0,
    move: Launch | None = None,
    in_placement: int = 1,
    placement: int = 0,
) -> tuple[Turns, int]:
    """Take `count` samples of each launch, turn by turn.

    first: number of turns taken before
    move: moves the buffers to a new placement, before every `in_placement` turns
    placement: the number of the present placement

    Returns the turns, and the throttle mask seen while they ran.
    """
    orders = turn_orders(len(launches), harness.turns)
    placements: list[int] = []
    host_us: dict[int, float] = {}
    timeline.make_room(2 * count * len(launches))
    for turn in range(count):
        if move and turn % in_placement == 0:
            move()
            for launch in launches:
                launch.moved()
            placement += 1
        placements.append(placement)
        for side in orders[(first + turn) % len(orders)]:
            slot = 2 * (turn * len(launches) + side)
            us = _take_sample(timeline, launches[side], slot, harness)
            if us is not None:
                host_us[slot] = us
    mask = timeline.watch.reasons()  # once: reading NVML takes longer than a short kernel
    turns: Turns = []
    for turn in range(count):
        turns.append([])
        for side, launch in enumerate(launches):
            slot = 2 * (turn * len(launches) + side)
            us = host_us[slot] if host_us else timeline.elapsed_us(slot, slot + 1)
            us /= launch.count * launch.repeats
            mhz = timeline.clock_mhz(slot, slot + 1)
            turns[turn].append(Sample(us, mhz, placement=placements[turn]))
    return turns, mask


def _take_sample(
    timeline: CudaTimeline, launch: TimedLaunch, slot: int, harness: Harness
) -> float | None:
    """Take a sample, with the stamps and events `slot` and `slot + 1`.

    Returns µs by the host's clock; None if events time it.
    """
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
        us = _time_launch(timeline, launch, slot, harness.timer)
        launch.behind()  # at once: the launch may still work on a stream of its own
        timeline.stamp_clock(slot + 1)
    timeline.synchronize()
    launch.after()
    return us


def _time_launch(
    timeline: CudaTimeline, launch: TimedLaunch, slot: int, timer: str
) -> float | None:
    """Launch between two events, or return µs by the host's clock."""
    if timer == "host":
        return host_us_of(timeline, launch.launch)
    start = partial(timeline.record_event, slot)
    stop = partial(timeline.record_event, slot + 1)
    if launch.partly:
        watch = Stopwatch(start, stop)
        launch.launch(watch)
        watch.require_pressed()
        return None
    start()
    for _ in range(launch.repeats):
        launch.launch()
    stop()
    return None


def bubble_us(timeline: CudaTimeline, harness: Harness) -> float:
    """Return how many µs more events read without a blocking kernel.

    A kernel of known length is read both ways.
    """
    medians = []
    for queue in (False, True):
        spin = TimedLaunch(partial(timeline.spin, 1000 * SPIN_US))
        turns, _ = take_batch(
            timeline, [spin], LONGEST_BATCH, harness.but(timer="events", queue=queue)
        )
        medians.append(_median_us(turns))
    return medians[0] - medians[1]


def _median_us(turns: Turns) -> float:
    """Return the median of the turns of a single launch, in µs."""
    return float(np.median([sample.us for (sample,) in turns]))


def host_us_of(
    timeline: CudaTimeline, enqueue: Launch, times: int = 1, wait: bool = False
) -> float:
    """Return the host time in µs to enqueue some times, alone on an idle stream.

    wait: until the work has ended
    """
    timeline.synchronize()
    started_us = timeline.host_us()
    for _ in range(times):
        enqueue()
    enqueued_us = timeline.host_us()
    timeline.synchronize()
    return (timeline.host_us() if wait else enqueued_us) - started_us


def hot(
    timeline: CudaTimeline,
    launches: Sequence[TimedLaunch],
    us: Sequence[float],
    harness: Harness,
    *,
    offset_us: float,
) -> list[list[float]]:
    """Time launches in a row: µs of one launch in each batch, for each launch.

    us: the time of each launch
    offset_us: the event overhead, which a batch has once

    Returns [] if the harness or a launch doesn't allow it.
    """
    if not harness.hot_ms or harness.timer != "events" or not harness.queue or harness.l2 == "warm":
        return []
    if any(launch.partly for launch in launches) or ROUNDS * sum(us) > LONGEST_US:
        return []
    rows = []
    for launch, launch_us in zip(launches, us, strict=True):
        fitting = QUEUED_US / max(host_us_of(timeline, launch.launch), 1.0)
        count = min(1e3 * harness.hot_ms / max(launch_us, 1.0), fitting)
        rows.append(TimedLaunch(launch.launch, repeats=int(np.clip(count, 1, MOST_IN_A_BATCH))))
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
    *,
    limit: float | None = None,
) -> tuple[float | str, list[str]]:
    """Compare the events with the wall clock, for one launch with a warm L2.

    The launch must have run before, and take the same inputs each time, so that they are in L2.

    offset_us: the event overhead, from the calibration
    launch_us: the host time per launch, from the calibration
    limit: share of the time that is allowed (default: 2 %, and at least 2 µs)

    Returns the wall clock's µs, or why it can't read them, and what the result must state: a
    disagreement with the events.
    """
    events_us = _warm_us(timeline, launch) - offset_us
    if events_us < HOST_BOUND * launch_us:
        return f"a kernel of {events_us:.1f} µs is hidden by its launch of {launch_us:.1f} µs", []
    count = int(np.clip(WALL_US / events_us, 1, 512))
    differences_us = []
    for _ in range(WALL_ROUNDS if count > 1 else 1):  # in each, what occurs once cancels
        twice_us = host_us_of(timeline, launch, 2 * count, wait=True)
        once_us = host_us_of(timeline, launch, count, wait=True)
        differences_us.append((twice_us - once_us) / count)
    wall_us = float(np.median(differences_us))
    allowed_us = max(ALLOWED_US, ALLOWED * events_us) if limit is None else limit * events_us
    if abs(wall_us - events_us) <= allowed_us:
        return wall_us, []
    readings = (
        f"the {WALL_CLOCK} reads {wall_us:.2f} µs, events read {events_us:.2f} µs "
        "(both with a warm L2"
    )
    host_us = host_us_of(timeline, launch)
    if host_us > events_us:
        readings += f"; the host takes {host_us:.1f} µs to launch it"
    return wall_us, [f"cross-check: {readings})"]


def _warm_us(timeline: CudaTimeline, launch: Launch) -> float:
    """Return the median of a launch with a warm L2 by events, in µs."""
    warm = Harness().but(l2="warm")
    launches = [TimedLaunch(launch)]
    size = batch_size(take_batch(timeline, launches, 1, warm)[0], launches, WARM_US)
    turns = Turns()
    for _ in range(BATCHES):
        turns += take_batch(timeline, launches, size, warm)[0]
    return _median_us(turns)
