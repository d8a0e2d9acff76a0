"""The energy of a launch: launches in a row, with NVML's energy counter read meanwhile.

A timed launch is too short for the counter, which moves in steps of milliseconds, and around it
the harness flushes L2, writes inputs and waits. So energy has a loop of its own, after the timed
loop: about a second of launches in a row with a warm L2. Two batches are always enqueued, so that
the GPU doesn't wait for the host between them.

Power comes from the first and the last step of the counter, and its time from the readings before
and after a step. A launch's energy is this power, times the loop's time per launch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from worklog.errors import NoEnergy
from worklog.harness.batches import Launch, TimedLaunch, host_us_of
from worklog.runs import CounterCheck, Energy

if TYPE_CHECKING:
    from worklog.gpu.timeline import CudaTimeline

WARM_US = 250_000.0  # before the first step that counts, so that clock and power settle
LEAST_STEPS = 10  # of the counter between its first and its last reading
LONGEST = 4.0  # x the requested time: how long the loop waits for so many steps
BLURRED = 0.02  # of the time between the two steps: the largest uncertainty of this time
BATCH_US = 50_000.0  # work that is enqueued at once; a reading of the counter takes some ms
MOST_IN_A_BATCH = 4096
POLL_S = 0.001
HOST_BOUND = 1.5  # x the host time to launch: between shorter launches, the GPU may wait
HOST_LAUNCHES = 16
HOST_WORK_US = 10_000.0
# The power reading of some GPUs is a mean over the last second
POWER_WARM_US = 2_000_000.0
PARTLY = "the call times a part of itself, and the counter reads the whole call"
WENT_BACK = "the energy counter went back: it wrapped, or the driver was loaded again"


class CounterReading(NamedTuple):
    """The counter at a time of the host."""

    us: float
    millijoules: int


class CounterStep(NamedTuple):
    """A change of the counter, between two readings."""

    us: float  # in the middle between the readings
    millijoules: int  # after the step
    blur_us: float  # half of the time between the readings


def launch_energy(
    timeline: CudaTimeline, launch: TimedLaunch, launch_us: float, seconds: float
) -> Energy:
    """Return the energy of a kernel's launch, or why there is no number.

    launch_us: the time of a call, which may be a graph of several launches
    seconds: length of the loop; it lasts up to LONGEST times as long if the counter is slow
    """
    if launch.partly:
        return Energy(reason=PARTLY)
    if timeline.energy.reason is not None:
        return Energy(reason=timeline.energy.reason)
    host_calls = int(np.clip(HOST_WORK_US / launch_us, 1, HOST_LAUNCHES))
    host_us = host_us_of(timeline, launch.launch, host_calls) / host_calls
    watch = CounterWatch(timeline, 1e6 * seconds)
    calls, loop_us, waits = in_a_row(timeline, launch.launch, launch_us, watch.look)
    call_us = loop_us / calls
    reason = watch.missing()
    if waits:
        reason = f"the GPU waited for the host {waits} times between launches in a row"
    if call_us < HOST_BOUND * host_us:
        reason = (
            f"a launch in a row takes {call_us:.1f} µs, and the host {host_us:.1f} µs to enqueue "
            "it: the GPU would wait between launches"
        )
    if reason:
        return Energy(reason=reason)
    us = call_us / launch.count
    return Energy(
        watch.watts() * us * 1e-6,
        us,
        launches=calls * launch.count,
        seconds=watch.span_us * 1e-6,
        steps=len(watch.steps) - 1,
    )


def in_a_row(
    timeline: CudaTimeline, launch: Launch, launch_us: float, look: Callable[[], bool]
) -> tuple[int, float, int]:
    """Launch in a row until `look` returns True.

    Returns the launches, their time in µs, and how often the GPU had nothing to do between them.

    launch_us: the expected time of a launch
    look: called about every POLL_S, and at least once in each batch
    """
    batch = int(np.clip(BATCH_US / launch_us, 1, MOST_IN_A_BATCH))
    timeline.synchronize()
    started_us = timeline.host_us()
    _enqueue(timeline, launch, batch, slot=0)
    launches = batch
    slot = 0
    waits = 0
    while not look():
        waits += timeline.is_reached(slot)
        _enqueue(timeline, launch, batch, slot=1 - slot)
        launches += batch
        while not timeline.is_reached(slot):
            look()
            timeline.pause(POLL_S)
        slot = 1 - slot
    timeline.synchronize()
    return launches, timeline.host_us() - started_us, waits


def _enqueue(timeline: CudaTimeline, launch: Launch, batch: int, *, slot: int) -> None:
    """Enqueue a batch of launches, and an event behind it."""
    for _ in range(batch):
        launch()
    timeline.record_event(slot)


@dataclass
class CounterWatch:
    """The steps of the energy counter while launches run.

    loop_us: the requested time between the first and the last step
    warm_us: time before the first step that counts
    """

    timeline: CudaTimeline
    loop_us: float
    warm_us: float = WARM_US
    steps: list[CounterStep] = field(default_factory=list)  # after the warm-up
    _previous: CounterReading | None = None
    _started_us: float | None = None
    _went_back: bool = False

    @property
    def span_us(self) -> float:
        """The time from the first to the last step; 0 without a step."""
        return self.steps[-1].us - self.steps[0].us if self.steps else 0.0

    def look(self) -> bool:
        """Read the counter, and return whether the loop is long enough."""
        millijoules = self.timeline.energy.millijoules()
        now_us = self.timeline.host_us()
        if self._started_us is None:
            self._started_us = now_us
        if millijoules is None:
            return True
        reading = CounterReading(now_us, millijoules)
        previous = self._previous
        self._previous = reading
        if previous is None:
            return False
        if millijoules < previous.millijoules:
            self._went_back = True
            return True
        middle_us = (previous.us + now_us) / 2
        begins_us = self._started_us + self.warm_us
        if millijoules > previous.millijoules and middle_us >= begins_us:
            self.steps.append(CounterStep(middle_us, millijoules, (now_us - previous.us) / 2))
        spent_us = now_us - begins_us
        return self._has_enough() or spent_us > LONGEST * self.loop_us

    def _has_enough(self) -> bool:
        """Return whether enough steps cover the requested time."""
        return self.span_us >= self.loop_us and len(self.steps) > LEAST_STEPS

    def missing(self) -> str:
        """Return why the counter gives no power; "" if it does."""
        if self.timeline.energy.reason is not None:
            return self.timeline.energy.reason
        if self._went_back:
            return WENT_BACK
        if not self._has_enough():
            return (
                f"the energy counter is too coarse: it moved {len(self.steps)} times over "
                f"{self.span_us / 1e6:.2g} s, and {LEAST_STEPS + 1} times over "
                f"{self.loop_us / 1e6:.2g} s are needed"
            )
        blur = (self.steps[0].blur_us + self.steps[-1].blur_us) / self.span_us
        if blur > BLURRED:
            return (
                f"the energy counter was read too rarely: its time is uncertain by {blur:.1%}, "
                f"more than {BLURRED:.0%}"
            )
        return ""

    def watts(self) -> float:
        """Return the power between the first and the last step."""
        return 1e3 * (self.steps[-1].millijoules - self.steps[0].millijoules) / self.span_us


def check_counter(timeline: CudaTimeline, seconds: float) -> CounterCheck:
    """Compare the energy counter with the integral of power samples.

    The load is FP32 multiply-adds on all SMs.

    Raises NoEnergy if NVML can't read either, or the counter is too coarse.
    """
    _, burn = timeline.ceilings()["FP32"]
    launch_us = host_us_of(timeline, burn, wait=True)
    watch = CounterWatch(timeline, 1e6 * seconds, POWER_WARM_US)
    times_us = list[float]()
    milliwatts = list[int]()

    def look() -> bool:
        """Read the power and the counter."""
        power = timeline.energy.milliwatts()
        if power is not None:
            times_us.append(timeline.host_us())
            milliwatts.append(power)
        return watch.look()

    in_a_row(timeline, burn, launch_us, look)
    reason = watch.missing()
    if reason:
        raise NoEnergy(f"no energy can be measured: {reason}")
    steps = watch.steps
    start_us = steps[0].us
    end_us = steps[-1].us
    samples_us = [us for us in times_us if start_us < us < end_us]
    moments_us = np.array([start_us, *samples_us, end_us])
    watts = 1e-3 * np.interp(moments_us, times_us, milliwatts)
    means = (watts[1:] + watts[:-1]) / 2
    step_lengths_us = np.diff([step.us for step in steps])
    return CounterCheck(
        seconds=1e-6 * watch.span_us,
        counter_joules=1e-3 * (steps[-1].millijoules - steps[0].millijoules),
        integral_joules=1e-6 * float(np.sum(means * np.diff(moments_us))),
        power_samples=len(samples_us),
        step_ms=1e-3 * float(np.median(step_lengths_us)),
        longest_step_ms=1e-3 * float(np.max(step_lengths_us)),
    )
