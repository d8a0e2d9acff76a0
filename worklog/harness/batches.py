"""One batch of samples, taken by the timer that the harness names.

An unbiased sample is: clock stamp, L2 flush, event, launch, event, clock stamp, all of it queued behind a blocking
kernel so that the GPU doesn't wait for the host between the events, and nothing queued behind it. A GPU fetches its
commands from the host's memory a few at a time. If more samples waited in the queue, the fetch would fall between the
events and make them read longer, by an amount that depends on the position in the queue's ring.

The launch descriptors lie in a ring of a few places as well, and a short kernel takes longer from some places than
from others. A regular loop would give the subject some places and the baseline others, and the ratio of a kernel to
itself would not be 1. So a random number of empty kernels goes before each sample.

The buffers' addresses matter too (the pitfall `placement`): they move to a new random placement every few turns. The
first launch in a placement counts like the others: the kernel that writes new inputs, or the copy that moves the old
ones, has touched the same pages just before, and the flush evicts the same lines before every launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from worklog.harness.graph_timer import launches_in
from worklog.harness.launchers import bracketed, compare, look_at, prepare, timed_part, waits
from worklog.harness.timeline import Launch, Timeline
from worklog.runs.samples import Sample
from worklog.settings import Harness

BATCH_US = (
    60_000.0  # GPU time between two reads of the events: long enough to cost little, short enough to stop in time
)
LONGEST_BATCH = 16  # turns
SPIN_US = 10  # length of the kernel that shows the launch bubble
# Turns in one placement: enough for a median that ignores an interrupted launch, since further placements narrow the
# interval more than further turns. Of kernels so long that four take more than this, one.
PLACEMENT_TURNS, PLACEMENT_US = 4, 4_000.0


@dataclass
class Placements:
    """Moves the buffers of all launches to a new placement before every `turns` turns. move: does it, for subject and
    baseline alike, without allocating. number: of the present placement.
    """

    move: Callable[[], None]
    turns: int = 1
    number: int = 0
    chosen: bool = False

    def choose_turns(self, taken: Sequence[Sequence[Sample]], launches: Sequence[Launch], most: int) -> None:
        """Four turns in each placement, or one if four take longer than 4 ms or there may be no more than `most`."""
        if taken and not self.chosen:
            us = float(np.median(_turns_us(taken, launches)))
            self.turns = PLACEMENT_TURNS if PLACEMENT_TURNS * us <= PLACEMENT_US and most >= PLACEMENT_TURNS else 1
            self.chosen = True

    def next(self) -> int:
        """Move; the new placement's number."""
        self.move()
        self.number += 1
        return self.number


def batch_size(taken: Sequence[Sequence[Sample]], launches: Sequence[Launch], most_us: float = BATCH_US) -> int:
    """Turns between two reads of the events, from the longest turn so far; one if there is none."""
    longest = max(_turns_us(taken, launches), default=most_us)
    return int(np.clip(most_us / max(longest, 1.0), 1, LONGEST_BATCH))


def _turns_us(taken: Sequence[Sequence[Sample]], launches: Sequence[Launch]) -> list[float]:
    weights = [launches_in(launch) for launch in launches]
    return [sum(weight * sample.us for weight, sample in zip(weights, turn, strict=True)) for turn in taken]


def take_batch(
    timeline: Timeline,
    launches: Sequence[Launch],
    count: int,
    harness: Harness,
    held: bool = True,
    first: int = 0,
    placements: Placements | None = None,
) -> tuple[list[list[Sample]], int]:
    """`count` samples of each launch, turn by turn, and the throttle mask seen while they ran. The launches' order
    changes in every turn; `first` is the number of turns taken before. placements: moves the buffers between turns.
    """
    turns = [_turn(launches, first + number) for number in range(count)]
    if harness.timer in ("host", "cupti") or not harness.queue or not held or waits(launches):
        return _take_unqueued(timeline, launches, turns, harness, placements)
    order = [index for turn in turns for index in turn]
    places: list[int] = []
    for slot, index in enumerate(order):
        if slot % len(launches) == 0:
            places.append(_placement(placements, slot // len(launches)))
        timeline.draw_place()
        if harness.l2 != "warm":
            timeline.lift_marks()
        timeline.hold()
        try:
            prepare(launches[index])
            timeline.stamp_clock(2 * slot)
            if harness.l2 == "flush":
                timeline.flush_l2()
            bracketed(timeline, timed_part(launches[index]), 2 * slot)
            look_at(launches[index])
            timeline.stamp_clock(2 * slot + 1)
        finally:
            timeline.release()
        timeline.synchronize()
        compare(launches[index])
    mask = timeline.throttle_reasons()
    samples = [
        Sample(
            timeline.elapsed_us(2 * slot, 2 * slot + 1) / launches_in(launches[index]),
            timeline.clock_mhz(2 * slot, 2 * slot + 1),
            around_us=timeline.stamped_us(2 * slot, 2 * slot + 1) / launches_in(launches[index]),
            placement=places[slot // len(launches)],
        )
        for slot, index in enumerate(order)
    ]
    width = len(launches)
    return [[samples[width * n + turns[n].index(i)] for i in range(width)] for n in range(count)], mask


def bubble_us(timeline: Timeline, harness: Harness) -> float:
    """Microseconds that events read more without a blocking kernel, from a kernel of known length read both ways."""
    spin = partial(timeline.spin, 1000 * SPIN_US)
    queued, alone = (
        np.median([pair[0].us for pair in take_batch(timeline, [spin], LONGEST_BATCH, harness.but(**how))[0]])
        for how in ({"timer": "events", "queue": True}, {"timer": "events", "queue": False})
    )
    return float(alone - queued)


def _placement(placements: Placements | None, turn: int) -> int:
    """The number of a turn's placement, moved to if the turn begins one."""
    if placements is None:
        return 0
    return placements.number if turn % placements.turns else placements.next()


def _turn(launches: Sequence[Launch], number: int) -> list[int]:
    """The launches' order in one turn: forwards if it is even, backwards if odd, so that none is always first."""
    forwards = list(range(len(launches)))
    return forwards if number % 2 == 0 else forwards[::-1]


def _take_unqueued(
    timeline: Timeline,
    launches: Sequence[Launch],
    turns: Sequence[Sequence[int]],
    harness: Harness,
    placements: Placements | None,
) -> tuple[list[list[Sample]], int]:
    """One launch at a time on an idle stream: by the tracer, which queues it itself where that is allowed, by a host
    clock, or by events that include the launch bubble.
    """
    mask = 0
    batch: list[list[Sample]] = []
    with _stopwatch(timeline, harness) as timed:
        for number, turn in enumerate(turns):
            pair: dict[int, Sample] = {}
            placement = _placement(placements, number)
            for index in turn:
                timeline.draw_place()
                if harness.l2 != "warm":
                    timeline.lift_marks()
                prepare(launches[index])
                timeline.stamp_clock(0)
                before = [timeline.flush_l2] if harness.l2 == "flush" else []
                us = timed(launches[index], before) / launches_in(launches[index])
                timeline.stamp_clock(1)
                compare(launches[index])
                timeline.synchronize()
                pair[index] = Sample(us, timeline.clock_mhz(0, 1), placement=placement)
            mask |= timeline.throttle_reasons()
            batch.append([pair[index] for index in range(len(launches))])
    return batch, mask


@contextmanager
def _stopwatch(timeline: Timeline, harness: Harness) -> Iterator[Callable[[Launch, Sequence[Launch]], float]]:
    """A function from a launch, and the launches before it, to its microseconds by the harness's timer."""

    def drain(before: Sequence[Launch]) -> None:
        for one in before:
            one()
        timeline.synchronize()

    def by_host(launch: Launch, before: Sequence[Launch]) -> float:
        drain(before)
        timed = timed_part(launch)
        started = timeline.host_us()
        timed()
        us = timeline.host_us() - started
        look_at(launch)
        return us

    def by_events(launch: Launch, before: Sequence[Launch]) -> float:
        drain(before)
        bracketed(timeline, timed_part(launch), 0)
        look_at(launch)
        timeline.synchronize()
        return timeline.elapsed_us(0, 1)

    if harness.timer == "cupti":
        with timeline.tracer(harness.queue) as by_tracer:

            def traced(launch: Launch, before: Sequence[Launch]) -> float:
                us = by_tracer(timed_part(launch), before)
                look_at(launch)
                return us

            yield traced
    else:
        yield by_host if harness.timer == "host" else by_events
