"""Samples in batches, taken by the timer that the harness names; and launches in a row, beside the samples.

An unbiased sample is: clock stamp, L2 flush, event, launch, event, clock stamp, all of it queued behind a blocking
kernel so that the GPU doesn't wait for the host between the events, and nothing queued behind it. A GPU fetches its
commands from the host's memory a few at a time, and with more samples in the queue a fetch could fall between the
events.

The launch descriptors lie in a ring of a few places, and a short kernel takes longer from some places than from others.
A regular loop would give the subject some places and the baseline others. So a random number of empty kernels goes
before each sample.

The buffers' addresses matter too (the pitfall `placement`): they move to a new random placement every few turns, and
so does the code of short kernels. The first launch in a placement counts like the others: the kernel that writes new
inputs, or the copy that moves the old ones, has touched the same pages just before.

Launches in a row give the hot time, as NVBench's batch measurement. They follow each other without a flush, so they
find in L2 what the one before left, and the end of one overlaps with the start of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from worklog.harness.launch import Launch, Timed, blocked, bracketed, timed
from worklog.runs import Sample
from worklog.settings import Harness

if TYPE_CHECKING:
    from worklog.harness.cuda_timeline import CudaTimeline

BATCH_US = 60_000.0  # GPU time between two reads of the events: long enough to be cheap, short enough to stop in time
LONGEST_BATCH = 16  # turns
SPIN_US = 10  # length of the kernel that shows the launch bubble
# Turns in one placement: enough for a median that ignores an interrupted launch, since further placements narrow the
# interval more than further turns do. One turn, if four take longer than PLACEMENT_US.
PLACEMENT_TURNS, PLACEMENT_US = 4, 4_000.0

ROUNDS = 8  # batches of each launch that count, after one that doesn't
MOST_IN_A_BATCH = 64
# Host time for what is enqueued behind a blocking kernel. The stream's queue holds about 1000 kernels, each of which
# takes the host 2 µs or more; a launch of a library or of PyTorch may be hundreds, and a full queue would never drain.
QUEUED_US = 1000.0
LONGEST_US = 1e6  # of all rounds together; a launch that is so long isn't made faster by what L2 holds

Turns = list[list[Sample]]  # turn by turn, a sample of each launch


@dataclass
class Placements:
    """Moves the buffers of all launches to a new placement before every `turns` turns. move: does it, for subject and
    baseline alike, without allocating. number: of the present placement.
    """

    move: Callable[[], None]
    turns: int = 1
    number: int = 0
    chosen: bool = False

    def choose_turns(self, taken: Turns, launches: Sequence[Timed], most: int) -> None:
        """Four turns in each placement, or one if four take longer than 4 ms or there may be no more than `most`."""
        if taken and not self.chosen:
            us = float(np.median(_turns_us(taken, launches)))
            self.turns = PLACEMENT_TURNS if PLACEMENT_TURNS * us <= PLACEMENT_US and most >= PLACEMENT_TURNS else 1
            self.chosen = True

    def of_turn(self, turn: int) -> int:
        """The number of a turn's placement, moved to if the turn begins one."""
        if turn % self.turns == 0:
            self.move()
            self.number += 1
        return self.number


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


def batch_size(taken: Turns, launches: Sequence[Timed], most_us: float = BATCH_US) -> int:
    """Turns between two reads of the events, from the longest turn so far; one if there is none."""
    longest = max(_turns_us(taken, launches), default=most_us)
    return int(np.clip(most_us / max(longest, 1.0), 1, LONGEST_BATCH))


def _turns_us(taken: Turns, launches: Sequence[Timed]) -> list[float]:
    return [sum(launch.count * sample.us for launch, sample in zip(launches, turn, strict=True)) for turn in taken]


def take_batch(
    timeline: CudaTimeline,
    launches: Sequence[Timed],
    count: int,
    harness: Harness,
    first: int = 0,
    placements: Placements | None = None,
) -> tuple[Turns, int]:
    """`count` samples of each launch, turn by turn, and the throttle mask seen while they ran.

    first: number of turns taken before. placements: moves the buffers between turns.
    """
    orders = turn_orders(len(launches), harness.turns)
    placed: list[int] = []
    read: dict[tuple[int, int], float] = {}
    timeline.make_room(2 * count * len(launches))
    for turn in range(count):
        placed.append(placements.of_turn(turn) if placements else 0)
        for side in orders[(first + turn) % len(orders)]:
            if harness.sleep_ms:
                timeline.pause(harness.sleep_ms / 1e3)
            timeline.draw_place()
            if harness.l2 != "warm":
                timeline.lift_marks()
            slot = 2 * (turn * len(launches) + side)
            if harness.queues:
                take_queued(timeline, launches[side], harness, slot)
            else:
                read[turn, side] = _take_unqueued(timeline, launches[side], harness, slot)
    mask = timeline.throttle_reasons()  # once: reading NVML takes longer than a short kernel
    turns: Turns = []
    for turn in range(count):
        turns.append([])
        for side, launch in enumerate(launches):
            slot = 2 * (turn * len(launches) + side)
            us = read[turn, side] if read else timeline.elapsed_us(slot, slot + 1)
            sample = Sample(us / launch.count, timeline.clock_mhz(slot, slot + 1), placement=placed[turn])
            turns[turn].append(sample)
    return turns, mask


def take_queued(timeline: CudaTimeline, launch: Timed, harness: Harness, slot: int) -> None:
    """One launch behind a blocking kernel of its own, with events and stamps `slot` and `slot` + 1 around it."""
    with blocked(timeline):
        launch.before()
        timeline.stamp_clock(slot)
        if harness.l2 == "flush":
            timeline.flush_l2()
        bracketed(timeline, launch, slot)
        if launch.at_once:
            launch.behind()
        timeline.stamp_clock(slot + 1)
        if not launch.at_once:
            launch.behind()
    timeline.synchronize()
    launch.after()


def _take_unqueued(timeline: CudaTimeline, launch: Timed, harness: Harness, slot: int) -> float:
    """Microseconds of one launch on an idle stream, by a host clock, or by events that include the launch bubble."""
    launch.before()
    timeline.stamp_clock(slot)
    if harness.l2 == "flush":
        timeline.flush_l2()
    timeline.synchronize()
    started = timeline.host_us()
    if harness.timer == "host":
        launch.enqueue()
    else:
        bracketed(timeline, launch, slot)
    us = timeline.host_us() - started
    launch.behind()
    timeline.stamp_clock(slot + 1)
    launch.after()
    timeline.synchronize()
    return us if harness.timer == "host" else timeline.elapsed_us(slot, slot + 1)


def bubble_us(timeline: CudaTimeline, harness: Harness) -> float:
    """Microseconds that events read more without a blocking kernel, from a kernel of known length read both ways."""
    spin = timed(partial(timeline.spin, 1000 * SPIN_US))

    def median_us(queue: bool) -> float:
        turns, _ = take_batch(timeline, [spin], LONGEST_BATCH, harness.but(timer="events", queue=queue))
        return float(np.median([turn[0].us for turn in turns]))

    return median_us(queue=False) - median_us(queue=True)


def hot(
    timeline: CudaTimeline, launches: Sequence[Timed], us: Sequence[float], harness: Harness, offset_us: float
) -> list[list[float]]:
    """Microseconds of one launch in each batch, for each of the launches in turn; [] where the harness or a launch
    doesn't allow it. us: the time of each. offset_us: the event overhead, which a batch has once.
    """
    cold = harness.timer == "events" and harness.queue and harness.l2 != "warm"
    if not (harness.hot_ms and cold) or any(launch.partly for launch in launches):
        return []
    if ROUNDS * sum(us) > LONGEST_US:
        return []
    counts = []
    for launch, time_us in zip(launches, us, strict=True):
        wanted = min(1e3 * harness.hot_ms / max(time_us, 1.0), QUEUED_US / host_us_of(timeline, launch.launch))
        counts.append(int(np.clip(wanted, 1, MOST_IN_A_BATCH)))
    read: list[list[float]] = [[] for _ in launches]
    for number in range(ROUNDS + 1):
        for side in range(len(launches))[:: 1 if number % 2 else -1]:

            def batch(launch: Launch = launches[side].launch, count: int = counts[side]) -> None:
                for _ in range(count):
                    launch()

            with blocked(timeline):
                bracketed(timeline, Timed(batch), 0)
            timeline.synchronize()
            if number:
                read[side].append((timeline.elapsed_us(0, 1) - offset_us) / counts[side])
    return read


def host_us_of(timeline: CudaTimeline, launch: Launch) -> float:
    """Microseconds of host time for one launch, alone on an idle stream; 1 at least."""
    timeline.synchronize()
    started = timeline.host_us()
    launch()
    host_us = timeline.host_us() - started
    timeline.synchronize()
    return max(host_us, 1.0)
