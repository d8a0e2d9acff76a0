"""The timed loop: warm up until steady, then take interleaved samples of the subject and the baseline until the
interval is narrow.

Samples taken at another clock, or while NVML reports throttling, stay in the record, marked, and are taken again, up to
a limit. The buffers' addresses matter too (the pitfall `placement`): they move to a new random placement every few
turns, and so does the code of short kernels. The first launch in a placement counts like the others: the kernel that
writes new inputs, or the copy that moves the old ones, has touched the same pages just before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from worklog.errors import BadSetting
from worklog.harness import batches
from worklog.harness.batches import LONGEST_BATCH, Launch, Timed, Turns
from worklog.harness.rules import Evidence, Stopping, is_known, placements_needed, salykova_replays
from worklog.runs import (
    PILOT,
    Sample,
    Samples,
    duration,
    estimate_of,
    median,
    paired_ratio,
    throttled,
)
from worklog.settings import Harness, split_rule

if TYPE_CHECKING:
    from worklog.gpu.timeline import CudaTimeline

IDLE_S = (
    1.0  # idle time before a cold start: long enough for the SM clock to fall to its idle value
)
# of a warm-up until steady: host time of a window, and windows
WINDOW_US = 10_000.0
LEAST_WINDOWS = 3
WARMUP_LIMIT_US = 3_000_000.0
STEADY = 0.005  # two windows in a row that agree this well are steady,
BLURRED = 0.02  # or within their intervals, up to this,
STILL_WARMING = (
    0.001  # unless each of the last three was faster than the one before, by this in total
)
ONE_PLACEMENT = "placement: fixed, {}; the interval is of launches in one place only"
STOPPED = "not converged: stopped"
CLOCK_TOLERANCE = 0.01
MOST_REJECTED = 0.5  # of all samples: above this share, the clock itself has shifted
SETTLED = 12  # samples before that share is judged,
SETTLED_US = 250_000.0  # and host time: a batch of short kernels lasts milliseconds, and a dip of the clock may pass
# Turns in one placement: enough for a median that ignores an interrupted launch, since further placements narrow the
# interval more than further turns do. One turn, if four take longer than PLACEMENT_US.
PLACEMENT_TURNS = 4
PLACEMENT_US = 4_000.0


@dataclass
class Reading:
    """What was read of the launches of one loop, and what went wrong meanwhile."""

    samples: Samples = field(default_factory=Samples)
    converged: bool = False
    warmup_launches: int = 0
    degradations: list[str] = field(default_factory=list)

    def us(self, statistic: str, side: int = 0) -> float:
        """Microseconds of a kernel's launches that count, as read."""
        return estimate_of(self.samples.counted(side), statistic).value


def time_in_turn(
    timeline: CudaTimeline,
    launches: Sequence[Launch | Timed],
    harness: Harness,
    *,
    size: float | None = None,
    offset_us: float = 0.0,
    move: Callable[[], None] | None = None,
) -> Reading:
    """Samples of the launches, of the kernel and then of its baselines, if any: every turn has one of each. Raises
    LaunchFailed if a launch fails, and BadSetting where the launches can't do what the harness names: rotate over
    enough sets of inputs.

    size: N of the square problem of the same work, for the rules that need it; without it they raise BadSetting.
    offset_us: the event overhead. It stays in the samples; the stopping criterion subtracts it. move: moves the buffers
    of all launches to a new random placement; without it they stay in one.
    """
    of = [launch if isinstance(launch, Timed) else Timed(launch) for launch in launches]
    for launch in of if harness.l2 == "rotate" else ():
        if not launch.set_bytes or launch.sets < batches.input_sets(
            launch.set_bytes, timeline.l2_bytes
        ):
            raise BadSetting(
                f"l2 = rotate: {launch.sets} set(s) of {launch.set_bytes / 2**20:.2f} MiB would come round while "
                f"still in the L2 of {timeline.l2_bytes / 2**20:.0f} MiB: take l2 = flush"
            )
    if harness.timer == "graph":
        of = [
            batches.as_graph(timeline, launch, harness.l2, harness.graph_launches) for launch in of
        ]
    moved = move if harness.placement == "varied" else None
    loop = _Loop(timeline, of, harness, size, offset_us, moved, [float("nan") for _ in of])
    reading = loop.reading
    sides = range(len(of))
    if harness.warmup != "none":
        # A first launch may load a module, which waits for the GPU: it can't be queued behind a blocking kernel.
        batches.take_batch(timeline, of, 1, harness.but(queue=False, sleep_ms=0.0))
    steady = loop.until_steady() if harness.warmup == "steady" else loop.warm_up()
    started = timeline.host_us()
    if harness.order == "interleaved" or len(of) == 1:
        room = harness.most_samples
        if moved:  # an even share of them is for this placement, so that the others get samples too
            room = max(2, room // PILOT // 2 * 2)
        first = steady[-room:] if harness.stopping == "interval" else []
        reading.warmup_launches -= len(first)
        reading.converged = loop.sample(sides, first)
    else:
        converged = [loop.sample([side], []) for side in sides]
        reading.converged = all(converged)
        # They may end at different counts; a sample without counting partners doesn't count.
        both = [all(sample.counts for sample in turn) for turn in zip(*loop.samples, strict=False)]
        for samples in loop.samples:
            samples[:] = [
                replace(s, counts=turn < len(both) and both[turn]) for turn, s in enumerate(samples)
            ]
    rough = [
        float(np.median([sample.us for sample in samples])) for samples in loop.samples if samples
    ]
    hot_us = batches.hot(timeline, of, rough, harness, offset_us) if len(rough) == len(of) else []
    if hot_us:  # one more launch that is checked: a kernel may have stopped computing
        batches.take_batch(timeline, of, 1, harness.but(queue=False, sleep_ms=0.0))
    kernels = [launch.kernels() for launch in of]
    names = [launch.name for launch in of]
    reading.samples = Samples.of_turns(names, loop.samples, hot_us, kernels, loop.throttle_mask)
    placed = len(set(reading.samples.placements()))
    if moved and placed < PILOT:
        reading.degradations.append(f"placement: {placed} instead of {PILOT}, for lack of samples")
    reading.degradations += timeline.remarks
    if not reading.converged and not any(said.startswith(STOPPED) for said in reading.degradations):
        reading.degradations.append(
            f"not converged: ±{100 * harness.precision:g} % was not reached in {len(loop.samples[0])} samples "
            f"and {duration(timeline.host_us() - started)}"
        )
    return reading


@dataclass
class _Loop:
    """One measurement under way: the arguments of time_in_turn, and what was found.

    plateaus: each launch's SM clock in MHz at the end of the warm-up. A kernel's clock is compared with its own: a
    kernel that starts on all SMs at once lowers the clock for a moment, more visibly the shorter it is.
    """

    timeline: CudaTimeline
    launches: Sequence[Timed]
    harness: Harness
    size: float | None
    offset_us: float
    move: Callable[[], None] | None
    plateaus: list[float]
    reading: Reading = field(default_factory=Reading)
    samples: list[list[Sample]] = field(default_factory=list)
    throttle_mask: int = 0
    placement: int = 0
    turns_in_placement: int = 1

    def warm_up(self) -> Turns:
        """By another rule, which doesn't check that time and clock are steady. No turn counts as a sample."""
        timeline = self.timeline
        reading = self.reading
        word = self.harness.warmup
        if word == "none":
            timeline.synchronize()
            timeline.pause(IDLE_S)
            return []
        name, numbers = split_rule("warmup", word)
        if name == "salykova":
            numbers = [salykova_replays("warmup", self.size) // 2]
        if name == "tensara":
            size, products, pause_ms = numbers
            for _ in range(round(products)):
                timeline.burn(2 * size**3)
            timeline.synchronize()
            timeline.pause(pause_ms / 1e3)
        started = timeline.host_us()
        enough = name == "tensara"
        while not enough:
            batches.take_batch(timeline, self.launches, 1, self.harness, reading.warmup_launches)
            reading.warmup_launches += 1
            spent = timeline.host_us() - started
            enough = (
                spent >= 1e3 * numbers[0]
                if name == "time"
                else reading.warmup_launches >= numbers[0]
            )
            if spent > WARMUP_LIMIT_US and not enough:
                reading.degradations.append(f"warm-up: {word} not done after {spent / 1e6:.1f} s")
                return []
        reading.degradations.append(
            f"warm-up: {word}, which doesn't check that time and clock are steady; "
            "the samples' clock is compared with nothing"
        )
        return []

    def until_steady(self) -> Turns:
        """Take windows of samples until they are steady. The last one's clock is the plateau. The buffers stay in the
        first placement: where they moved, a steady kernel would not look steady. Returns the turns of the last two
        windows, which count as samples.
        """
        timeline = self.timeline
        reading = self.reading
        launches = self.launches
        windows: list[Window] = []
        taken: list[tuple[Turns, int]] = []
        started = timeline.host_us()
        while not is_steady(windows):
            if (spent := timeline.host_us() - started) > WARMUP_LIMIT_US:
                reading.degradations.append(f"warm-up: not steady after {spent / 1e6:.1f} s")
                return []
            window = Turns()
            window_mask = 0
            spent = 0.0
            opened = timeline.host_us()
            while spent < WINDOW_US:
                size = batches.batch_size(window, launches, WINDOW_US)
                if window:  # no more than fit into the rest of it, flushes included
                    size = min(size, ceil((WINDOW_US - spent) * len(window) / max(spent, 1.0)))
                batch, mask = batches.take_batch(
                    timeline, launches, size, self.harness, first=len(window)
                )
                window += batch
                window_mask |= mask
                spent = timeline.host_us() - opened
            reading.warmup_launches += len(window)
            self.plateaus = [
                float(np.median([sample.sm_mhz for sample in of]))
                for of in zip(*window, strict=True)
            ]
            middle = median([turn[0].us for turn in window])
            windows.append(Window(middle.value, middle.half_width, self.plateaus[0]))
            taken = [*taken[-1:], (window, window_mask)]
        kept: Turns = []
        for (
            window,
            mask,
        ) in (
            taken
        ):  # an even number of turns of each (see Samples.comparisons), judged like the others
            kept += [self.judged(turn, self.plateaus, mask) for turn in window[len(window) % 2 :]]
            self.throttle_mask |= mask
        return kept

    def sample(self, sides: Sequence[int], first: Turns) -> bool:
        """Take batches of some launches, beside the samples that the warm-up ended with, until the stopping criterion
        has enough of the first one, or the limits are reached. Returns whether its median is known to the precision.
        """
        harness = self.harness
        reading = self.reading
        most = self.harness.most_samples
        rule = Stopping(harness.stopping, harness.precision, harness.least_samples, self.size)
        launches = [self.launches[side] for side in sides]
        plateaus = [self.plateaus[side] for side in sides]
        started = self.timeline.host_us()
        budget_us = harness.budget_s * 1e6
        taken = list(first)
        spent = 0.0
        watching = True
        look = pilot = PILOT if self.move and harness.stopping == "interval" else 0
        enough: bool | None = None
        while True:
            counting = [turn[0] for turn in taken if turn[0].counts]
            rejected = len(taken) - len(counting)
            settled = (
                spent > budget_us
                or len(taken) >= most
                or (len(taken) >= SETTLED and spent > SETTLED_US)
            )
            if rejected > MOST_REJECTED * len(taken) and settled:
                reading.degradations.append(
                    f"clocks: {rejected} of {len(taken)} samples were more than {CLOCK_TOLERANCE:.0%} off "
                    f"{plateaus[0]:.0f} MHz ({throttled(self.throttle_mask) or 'not throttled'}); "
                    "all were kept"
                )
                taken = [[replace(sample, counts=True) for sample in turn] for turn in taken]
                counting = [turn[0] for turn in taken]
                rejected = 0
                watching = False
            times = [sample.us - self.offset_us for sample in counting]
            seen = Evidence(times, spent, [sample.placement for sample in counting])
            if seen.placed >= look:
                enough = rule.check(seen)
                look = look and placements_needed(seen, harness.precision)
            late = spent > budget_us and len(times) >= min(3, harness.least_samples)
            if enough is not None or late or len(taken) >= most:
                break
            watched = (
                harness.least_share and seen.placed >= pilot and len(times) >= harness.least_samples
            )
            if watched and self.is_below(taken):
                share = f"its share of the baseline is below {harness.least_share:.4g}, with its interval"
                reading.degradations.append(f"{STOPPED} after {len(times)} samples: {share}")
                break
            wanted = min(batches.batch_size(taken[-LONGEST_BATCH:], launches), most - len(taken))
            wanted = min(
                wanted, rule.step or wanted, wanted if rule.most is None else rule.most - len(times)
            )
            missing = harness.least_samples - len(times)
            if self.move:
                if taken:
                    four_us = PLACEMENT_TURNS * float(
                        np.median(batches.turns_us(taken[-LONGEST_BATCH:], launches))
                    )
                    roomy = min(most, rule.most or most) >= PILOT * PLACEMENT_TURNS
                    self.turns_in_placement = (
                        PLACEMENT_TURNS if four_us <= PLACEMENT_US and roomy else 1
                    )
                turns = self.turns_in_placement
                missing = max(missing, (look - seen.placed) * turns)
                wanted = max(wanted - wanted % turns, min(wanted, turns))
            wanted = min(wanted, missing) if missing > 0 else wanted
            if (
                spent
            ):  # no more than fit into the budget: a host clock doesn't read how long a turn takes
                wanted = min(
                    wanted, max(1, int((len(taken) - len(first)) * (budget_us / spent - 1)))
                )
            how = harness if taken or harness.warmup != "none" else harness.but(queue=False)
            where = (self.move, self.turns_in_placement, self.placement)
            batch, mask = batches.take_batch(
                self.timeline, launches, wanted, how, len(taken), *where
            )
            self.placement = batch[-1][0].placement
            self.throttle_mask |= mask
            taken += [self.judged(turn, plateaus, mask) for turn in batch] if watching else batch
            spent = self.timeline.host_us() - started
        if not enough and harness.stopping != "interval":
            reading.degradations.append(
                f"stopping: the criterion of {harness.stopping} was not met in {len(seen.times)} samples"
            )
        if rejected:
            reading.degradations.append(
                f"clocks: {rejected} of {len(taken)} samples were off the clock and taken again"
            )
        self.samples += [[turn[column] for turn in taken] for column in range(len(sides))]
        return len(seen.times) >= harness.least_samples and is_known(seen, harness.precision)

    def is_below(self, turns: Turns) -> bool:
        """Whether the first baseline's time over the kernel's is below the harness's least share, by its interval."""
        counting = [turn for turn in turns if turn[0].counts]
        ours, theirs = ([turn[side].us - self.offset_us for turn in counting] for side in (0, 1))
        return (
            paired_ratio(theirs, ours, [turn[0].placement for turn in counting]).high
            < self.harness.least_share
        )

    def judged(self, turn: Sequence[Sample], plateaus: Sequence[float], mask: int) -> list[Sample]:
        """A turn, marked whether it counts: not if a sample ran at another clock than at the end of the warm-up, or
        while the GPU was throttled. An unknown clock (NaN) counts.
        """
        off = any(
            abs(sample.sm_mhz - plateau) > CLOCK_TOLERANCE * plateau
            for sample, plateau in zip(turn, plateaus, strict=True)
        )
        rejected = self.harness.clocks != "ignored" and (off or throttled(mask) != "")
        return [replace(sample, counts=not rejected) for sample in turn]


class Window(NamedTuple):
    """A part of a warm-up: the subject's median in microseconds, its interval's half-width, the SM clock in MHz."""

    us: float
    half_width_us: float
    mhz: float


def is_steady(windows: Sequence[Window]) -> bool:
    """Clock and time of the last window are within 0.5 % of the window before, and don't ramp over the last three.

    One window doesn't determine a short kernel's median so well; then the two must agree within their intervals. A
    slowly rising clock can pass this check twice, but each window is then faster than the one before.
    """
    if len(windows) < LEAST_WINDOWS:
        return False
    first, before, now = windows[-LEAST_WINDOWS:]
    known = min(before.half_width_us + now.half_width_us, BLURRED * before.us)
    if (
        abs(now.us - before.us) > max(STEADY * before.us, known)
        or abs(now.mhz - before.mhz) > STEADY * before.mhz
    ):
        return False  # an unknown clock (NaN) never fails the comparison
    faster = first.us > before.us > now.us and first.us - now.us > STILL_WARMING * now.us
    climbing = first.mhz < before.mhz < now.mhz and now.mhz - first.mhz > STILL_WARMING * now.mhz
    return not (faster or climbing)


def off_the_lock(clocks: str, sm_mhz: float | None) -> str | None:
    """The remark if the clocks setting is a lock, and the samples ran at another clock."""
    _, _, locked = clocks.partition(":")
    if not locked or sm_mhz is None or abs(sm_mhz / float(locked) - 1) <= CLOCK_TOLERANCE:
        return None
    return f"clocks: locked to {locked} MHz, but the samples ran at {sm_mhz:.0f} MHz"
