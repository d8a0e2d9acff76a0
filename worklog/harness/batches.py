"""One batch of samples, taken by the timer that the harness names.

One sample, honestly: clock stamp, L2 flush, event, launch, event, clock stamp, all of it queued behind a blocking
kernel so that the GPU never waits for the host inside the pair, and nothing queued behind it. A GPU fetches its
commands from the host's memory a few at a time: with more samples waiting in the queue, fetching comes into the pair,
which then reads longer, by how much depending on where in the queue's ring its commands lie. The other ways are here
too, the lies among them.

What describes a launch to the GPU lies in a ring as well, of a few places, and a short kernel takes longer from some
than from others. A loop as regular as this one would meet the same few for ever, a subject its own and the baseline
others, and the ratio of a kernel to itself would not be 1. So before each sample chance moves on by a few places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from worklog.errors import LaunchFailed
from worklog.harness.graph_timer import launches_in
from worklog.harness.launchers import bracketed, compare, look_at, prepare, timed_part, waits
from worklog.harness.timeline import Launch, Timeline
from worklog.settings import Harness

BATCH_US = 60_000.0  # read the events after so much work: seldom enough to cost little, often enough to stop in time
LONGEST_BATCH = 16  # pairs
SPIN_US = 10  # length of the kernel on which the launch bubble is shown


@dataclass(frozen=True)
class Sample:
    """One timed launch: microseconds as read (offset included), SM clock in MHz, and whether it counts. around_us: what
    a second clock says of the launch and all that was enqueued with it, the flush above all.
    """

    us: float
    sm_mhz: float
    counts: bool = True
    around_us: float = float("nan")

    def __post_init__(self) -> None:
        if not 0 <= self.us < math.inf:
            raise LaunchFailed(
                f"a launch was read as {self.us} µs: the driver's events or the tracer cannot be relied on here "
                "(some virtual GPUs, confidential computing): compare with --set timer=cupti"
            )


def batch_size(taken: Sequence[Sequence[Sample]], launches: Sequence[Launch], most_us: float = BATCH_US) -> int:
    """Pairs between two readings, from the longest pair seen so far; one where none was."""
    weights = [launches_in(launch) for launch in launches]
    pairs = (sum(weight * sample.us for weight, sample in zip(weights, pair, strict=True)) for pair in taken)
    longest = max(pairs, default=most_us)
    return int(np.clip(most_us / max(longest, 1.0), 1, LONGEST_BATCH))


def take_batch(
    timeline: Timeline, launches: Sequence[Launch], count: int, harness: Harness, held: bool = True, first: int = 0
) -> tuple[list[list[Sample]], int]:
    """`count` samples of each launch, and the throttle mask seen while they ran. Launches take turns, and turn about
    who is first; `first` is the number of turns taken before.
    """
    turns = [_turn(launches, first + number) for number in range(count)]
    if harness.timer in ("host", "cupti") or not harness.queue or not held or waits(launches):
        return _take_unqueued(timeline, launches, turns, harness)
    order = [index for turn in turns for index in turn]
    for slot, index in enumerate(order):
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
        )
        for slot, index in enumerate(order)
    ]
    width = len(launches)
    return [[samples[width * n + turns[n].index(i)] for i in range(width)] for n in range(count)], mask


def bubble_us(timeline: Timeline, harness: Harness) -> float:
    """Microseconds that events read more where nothing is queued, from a kernel of known length read both ways."""
    spin = partial(timeline.spin, 1000 * SPIN_US)
    queued, alone = (
        np.median([pair[0].us for pair in take_batch(timeline, [spin], LONGEST_BATCH, harness.but(**how))[0]])
        for how in ({"timer": "events", "queue": True}, {"timer": "events", "queue": False})
    )
    return float(alone - queued)


def _turn(launches: Sequence[Launch], number: int) -> list[int]:
    """Indices in the order of one turn: forwards and backwards by turns, so that going first favours nobody."""
    forwards = list(range(len(launches)))
    return forwards if number % 2 == 0 else forwards[::-1]


def _take_unqueued(
    timeline: Timeline, launches: Sequence[Launch], turns: Sequence[Sequence[int]], harness: Harness
) -> tuple[list[list[Sample]], int]:
    """One launch at a time on a stream that has run dry: by the tracer, which queues it for itself where that is
    allowed, by a host clock, or by events with the bubble.
    """
    mask = 0
    batch: list[list[Sample]] = []
    with _stopwatch(timeline, harness) as timed:
        for turn in turns:
            pair: dict[int, Sample] = {}
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
                pair[index] = Sample(us, timeline.clock_mhz(0, 1))
            mask |= timeline.throttle_reasons()
            batch.append([pair[index] for index in range(len(launches))])
    return batch, mask


@contextmanager
def _stopwatch(timeline: Timeline, harness: Harness) -> Iterator[Callable[[Launch, Sequence[Launch]], float]]:
    """A function from a launch, and what goes before it, to the launch's microseconds, by the harness's timer."""

    def dry(before: Sequence[Launch]) -> None:
        for one in before:
            one()
        timeline.synchronize()

    def by_host(launch: Launch, before: Sequence[Launch]) -> float:
        dry(before)
        timed = timed_part(launch)
        started = timeline.host_us()
        timed()
        us = timeline.host_us() - started
        look_at(launch)
        return us

    def by_events(launch: Launch, before: Sequence[Launch]) -> float:
        dry(before)
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
