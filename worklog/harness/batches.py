"""Samples in batches, taken by the timer that the harness names; and launches in a row, beside the samples.

An unbiased sample is: clock stamp, L2 flush, event, launch, event, clock stamp, all of it queued behind a blocking
kernel so that the GPU doesn't wait for the host between the events, and nothing queued behind it. A GPU fetches its
commands from the host's memory a few at a time, and with more samples in the queue a fetch could fall between the
events.

The launch descriptors lie in a ring of a few places, and a short kernel takes longer from some places than from others.
A regular loop would give the subject some places and the baseline others. So a random number of empty kernels goes
before each sample.

Launches in a row give the hot time, as NVBench's batch measurement. They follow each other without a flush, so they
find in L2 what the one before left, and the end of one overlaps with the start of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from worklog.harness.launch import Launch, Timed, blocked
from worklog.runs import Sample
from worklog.settings import Harness

if TYPE_CHECKING:
    from worklog.harness.cuda_timeline import CudaTimeline

BATCH_US = 60_000.0  # GPU time between two reads of the events: long enough to be cheap, short enough to stop in time
LONGEST_BATCH = 16  # turns
SPIN_US = 10  # length of the kernel that shows the launch bubble
ROUNDS = 8  # batches of each launch that count, after one that doesn't
MOST_IN_A_BATCH = 64
# Host time for what is enqueued behind a blocking kernel. The stream's queue holds about 1000 kernels, each of which
# takes the host 2 µs or more; a launch of a library or of PyTorch may be hundreds, and a full queue would never drain.
QUEUED_US = 1000.0
LONGEST_US = 1e6  # of all rounds together; a launch that is so long isn't made faster by what L2 holds

Turns = list[list[Sample]]  # turn by turn, a sample of each launch


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
    return [sum(launch.count * sample.us for launch, sample in zip(launches, turn, strict=True)) for turn in taken]


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
    place: Callable[[int], int] = lambda turn: 0,
) -> tuple[Turns, int]:
    """`count` samples of each launch, turn by turn, and the throttle mask seen while they ran.

    first: number of turns taken before. place: called before each turn of the batch; may move the buffers, and gives
    the number of their placement.
    """
    orders = turn_orders(len(launches), harness.turns)
    placed: list[int] = []
    host_us: dict[int, float] = {}
    timeline.make_room(2 * count * len(launches))
    for turn in range(count):
        placed.append(place(turn))
        for side in orders[(first + turn) % len(orders)]:
            launch, slot = launches[side], 2 * (turn * len(launches) + side)
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
                    host_us[slot] = host_us_of(timeline, launch.enqueue)
                else:
                    launch.enqueue(partial(timeline.record_event, slot), partial(timeline.record_event, slot + 1))
                if launch.at_once:
                    launch.behind()
                timeline.stamp_clock(slot + 1)
                if not launch.at_once:
                    launch.behind()
            timeline.synchronize()
            launch.after()
    mask = timeline.throttle_reasons()  # once: reading NVML takes longer than a short kernel
    turns: Turns = []
    for turn in range(count):
        turns.append([])
        for side, launch in enumerate(launches):
            slot = 2 * (turn * len(launches) + side)
            us = host_us[slot] if host_us else timeline.elapsed_us(slot, slot + 1)
            turns[turn].append(Sample(us / launch.count, timeline.clock_mhz(slot, slot + 1), placement=placed[turn]))
    return turns, mask


def bubble_us(timeline: CudaTimeline, harness: Harness) -> float:
    """Microseconds that events read more without a blocking kernel, from a kernel of known length read both ways."""
    medians = []
    for queue in (False, True):
        spin = Timed(partial(timeline.spin, 1000 * SPIN_US))
        turns, _ = take_batch(timeline, [spin], LONGEST_BATCH, harness.but(timer="events", queue=queue))
        medians.append(float(np.median([sample.us for (sample,) in turns])))
    return medians[0] - medians[1]


def host_us_of(timeline: CudaTimeline, launch: Launch) -> float:
    """Microseconds of host time for one launch, alone on an idle stream."""
    timeline.synchronize()
    started = timeline.host_us()
    launch()
    host_us = timeline.host_us() - started
    timeline.synchronize()
    return host_us


def hot(
    timeline: CudaTimeline, launches: Sequence[Timed], us: Sequence[float], harness: Harness, offset_us: float
) -> list[list[float]]:
    """Microseconds of one launch in each batch, for each of the launches in turn; [] where the harness or a launch
    doesn't allow it. us: the time of each. offset_us: the event overhead, which a batch has once.
    """
    cold = harness.timer == "events" and harness.queue and harness.l2 != "warm"
    if not (harness.hot_ms and cold) or any(launch.partly for launch in launches) or ROUNDS * sum(us) > LONGEST_US:
        return []
    counts = []
    for launch, time_us in zip(launches, us, strict=True):
        fitting = QUEUED_US / max(host_us_of(timeline, launch.launch), 1.0)
        counts.append(int(np.clip(min(1e3 * harness.hot_ms / max(time_us, 1.0), fitting), 1, MOST_IN_A_BATCH)))
    rows = [Timed(partial(_repeat, launch.launch, n), count=n) for launch, n in zip(launches, counts, strict=True)]
    turns, _ = take_batch(timeline, rows, ROUNDS + 1, harness.but(l2="warm", sleep_ms=0.0))
    return [
        [sample.us - offset_us / count for sample in samples]
        for count, samples in zip(counts, zip(*turns[1:], strict=True), strict=True)
    ]


def _repeat(launch: Launch, count: int) -> None:
    for _ in range(count):
        launch()
