"""The timed loop: warm up until steady, then take interleaved samples of the subject and the baseline until the
interval is narrow.

Samples taken at another clock, or while NVML reports throttling, stay in the record, marked, and are taken again, up to
a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from worklog.gpu import THROTTLING, reason_names
from worklog.harness.batches import (
    BATCH_US,
    LONGEST_BATCH,
    Placements,
    Turns,
    batch_size,
    hot,
    take_batch,
)
from worklog.harness.launch import Graph, Launch, Timed, as_graph, require_rotation, timed
from worklog.harness.rules import (
    Evidence,
    WarmUp,
    Window,
    is_known,
    placements_needed,
    stopping_rule,
    warm_up_rule,
)
from worklog.runs import PILOT, Sample, Samples, duration, median
from worklog.settings import Harness

if TYPE_CHECKING:
    from worklog.harness.cuda_timeline import CudaTimeline

IDLE_S = 1.0  # long enough for the SM clock to fall to its idle value
WARMUP_LIMIT_US = 3_000_000.0
ONE_PLACEMENT = "placement: fixed, {}; the interval is of launches in one place only"
CLOCK_TOLERANCE = 0.01
MOST_REJECTED = 0.5  # of all samples: above this share, the clock itself has shifted
SETTLED = 12  # samples before that share is judged,
SETTLED_US = 250_000.0  # and host time: a batch of short kernels lasts milliseconds, and a dip of the clock may pass


@dataclass
class Reading:
    """What was read of the launches of one loop, and what went wrong meanwhile."""

    samples: Samples = field(default_factory=Samples)
    throttle_mask: int = 0
    converged: bool = False
    warmup_launches: int = 0
    degradations: list[str] = field(default_factory=list)


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
    of = [timed(launch) for launch in launches]
    if harness.l2 == "rotate":
        require_rotation(of, timeline.l2_bytes)
    if harness.timer == "graph":
        of = [as_graph(timeline, launch, harness.l2, harness.graph_launches) for launch in of]

    def move_all() -> None:
        assert move is not None
        move()
        for launch in of:
            if isinstance(launch.launch, Graph):
                launch.launch.record()

    placements = Placements(move_all) if move and harness.placement == "varied" else None
    reading = Reading()
    loop = _Loop(timeline, of, harness, size, offset_us, placements, reading)
    remarks, sides = reading.degradations, range(len(of))
    steady: Turns = []
    if harness.warmup != "none":
        steady = loop.warm_up()
    else:
        timeline.synchronize()
        timeline.pause(IDLE_S)
    started = timeline.host_us()
    if harness.order == "interleaved" or len(of) == 1:
        room = harness.most_samples
        if placements:  # an even share of them is for this placement, so that the others get samples too
            room = max(2, room // PILOT // 2 * 2)
        first = steady[-room:] if harness.stopping == "interval" else []
        reading.warmup_launches -= len(first)
        reading.converged = loop.sample(sides, first)
    else:
        known = [loop.sample([side], []) for side in sides]
        reading.converged = all(known)
        loop.cut_to_pairs()
    rough = [float(np.median([sample.us for sample in samples])) for samples in loop.samples if samples]
    hot_us: list[list[float]] = []
    if len(rough) == len(of):
        hot_us = hot(timeline, of, rough, harness, offset_us)
        if hot_us:  # one more that is checked: a kernel may have stopped computing
            for launch in of:
                launch()
            timeline.synchronize()
    names, kernels = [launch.name for launch in of], [launch.kernels() for launch in of]
    reading.samples = Samples.of_turns(names, loop.samples, hot_us, kernels)
    placed = len(set(reading.samples.placements()))
    if placements and placed < PILOT:
        remarks.append(f"placement: {placed} instead of {PILOT}, for lack of samples")
    remarks += timeline.remarks
    if not reading.converged:
        remarks.append(
            f"not converged: ±{100 * harness.precision:g} % was not reached in {len(loop.samples[0])} samples "
            f"and {duration(timeline.host_us() - started)}"
        )
    return reading


class _Loop:
    """One measurement under way.

    plateaus: each launch's SM clock in MHz at the end of the warm-up. A kernel's clock is compared with its own: a
    kernel that starts on all SMs at once lowers the clock for a moment, more visibly the shorter it is.
    """

    def __init__(
        self,
        timeline: CudaTimeline,
        launches: Sequence[Timed],
        harness: Harness,
        size: float | None,
        offset_us: float,
        placements: Placements | None,
        reading: Reading,
    ) -> None:
        self.timeline, self.launches, self.harness, self.size = timeline, launches, harness, size
        self.offset_us, self.placements, self.reading = offset_us, placements, reading
        self.samples: list[list[Sample]] = [[] for _ in launches]
        self.plateaus = [float("nan")] * len(launches)

    def warm_up(self) -> Turns:
        """Launch once without a blocking kernel, since a first launch may load a module, which waits for the GPU; then
        take windows of samples until the rule has enough. The last window's clock is the plateau. The buffers stay in
        the first placement: where they moved, a steady kernel would not look steady.

        Returns the turns of the last two windows, which count as samples, or none if the rule compares no windows.
        """
        timeline, reading, word = self.timeline, self.reading, self.harness.warmup
        rule = warm_up_rule(word, self.size)
        for launch in self.launches:
            launch()
        timeline.synchronize()
        if rule.prepare:
            size, products, pause_ms = rule.prepare
            for _ in range(round(products)):
                timeline.burn(2 * size**3)
            timeline.synchronize()
            timeline.pause(pause_ms / 1e3)
        windows: list[Window] = []
        taken: list[tuple[Turns, int]] = []
        started = timeline.host_us()
        while rule.most is None or reading.warmup_launches < rule.most:
            window, mask = self.window(rule)
            reading.warmup_launches += len(window)
            self.plateaus = [float(np.median([sample.sm_mhz for sample in of])) for of in zip(*window, strict=True)]
            middle = median([turn[0].us for turn in window])
            windows.append(Window(middle.value, middle.half_width, self.plateaus[0]))
            taken = [*taken[-1:], (window, mask)]
            spent = timeline.host_us() - started
            if rule.enough(windows, reading.warmup_launches, spent):
                break
            if spent > WARMUP_LIMIT_US:
                how = "not steady" if rule.window_us else f"{word} not done"
                reading.degradations.append(f"warm-up: {how} after {spent / 1e6:.1f} s")
                return []
        if not rule.window_us:
            self.plateaus = [float("nan")] * len(self.launches)
            reading.degradations.append(
                f"warm-up: {word}, which doesn't check that time and clock are steady; "
                "the samples' clock is compared with nothing"
            )
            return []
        kept: Turns = []
        for window, mask in taken:  # an even number of turns of each (see Reading.comparisons), judged like the others
            kept += [self.judged(turn, self.plateaus, mask) for turn in window[len(window) % 2 :]]
            reading.throttle_mask |= mask
        return kept

    def window(self, rule: WarmUp) -> tuple[Turns, int]:
        """Turns that fill the rule's window, hardly more (one turn without a window), and the throttle mask."""
        window: Turns = []
        mask = 0
        opened, spent = self.timeline.host_us(), 0.0
        while not window or spent < rule.window_us:
            size = batch_size(window, self.launches, min(BATCH_US, rule.window_us))
            if window:  # no more than fit into the rest of it, flushes included
                size = min(size, ceil((rule.window_us - spent) * len(window) / max(spent, 1.0)))
            batch, seen = take_batch(self.timeline, self.launches, size, self.harness, first=len(window))
            window += batch
            mask |= seen
            spent = self.timeline.host_us() - opened
        return window, mask

    def sample(self, sides: Sequence[int], first: Turns) -> bool:
        """Take batches of some launches, beside the samples that the warm-up ended with, until the stopping criterion
        has enough of the first one, or the limits are reached. Returns whether its median is known to the precision.
        """
        harness, reading, placements = self.harness, self.reading, self.placements
        rule = stopping_rule(harness.stopping, harness.precision, harness.least_samples, self.size)
        most = min(harness.most_samples, rule.most or harness.most_samples)
        launches, plateaus = [self.launches[side] for side in sides], [self.plateaus[side] for side in sides]
        started = self.timeline.host_us()
        taken, spent, budget_us = list(first), 0.0, harness.budget_s * 1e6
        seen, rejected, late = self.evidence(taken, spent), sum(not turn[0].counts for turn in taken), False
        watching = True
        look = PILOT if placements and harness.stopping == "interval" else 0
        enough = rule.check(seen) if seen.times and not look else None
        while enough is None and not late and len(taken) < harness.most_samples:
            wanted = min(batch_size(taken[-LONGEST_BATCH:], launches), harness.most_samples - len(taken))
            wanted = min(wanted, rule.step or wanted, wanted if rule.most is None else rule.most - len(seen.times))
            missing = harness.least_samples - len(seen.times)
            missing += missing % 2
            if placements:
                placements.choose_turns(taken[-LONGEST_BATCH:], launches, most // PILOT)
                missing = max(missing, (look - seen.placed) * placements.turns)
                wanted = max(wanted - wanted % placements.turns, min(wanted, placements.turns))
            wanted = min(wanted, missing) if missing > 0 else wanted
            if spent:  # no more than fit into the budget: a host clock doesn't read how long a turn takes
                wanted = min(wanted, max(1, int((len(taken) - len(first)) * (budget_us / spent - 1))))
            # A first launch may load a module, which waits for the GPU: it can't be queued behind a blocking kernel.
            how = harness if taken or harness.warmup != "none" else harness.but(queue=False)
            batch, mask = take_batch(self.timeline, launches, wanted, how, len(taken), placements)
            reading.throttle_mask |= mask
            for turn in batch:
                taken.append(self.judged(turn, plateaus, mask) if watching else turn)
                rejected += not taken[-1][0].counts
            spent = self.timeline.host_us() - started
            last = spent > budget_us or len(taken) >= harness.most_samples
            settled = last or (len(taken) >= SETTLED and spent > SETTLED_US)
            if rejected > MOST_REJECTED * len(taken) and settled:
                throttling = reading.throttle_mask & THROTTLING
                reading.degradations.append(
                    f"clocks: {rejected} of {len(taken)} samples were more than {CLOCK_TOLERANCE:.0%} off "
                    f"{plateaus[0]:.0f} MHz ({reason_names(throttling) if throttling else 'not throttled'}); "
                    "all were kept"
                )
                taken = [[replace(sample, counts=True) for sample in turn] for turn in taken]
                watching, rejected = False, 0
            seen = self.evidence(taken, spent)
            if seen.placed >= look:
                enough = rule.check(seen)
                look = look and placements_needed(seen, harness.precision)
            late = spent > budget_us and len(seen.times) >= min(3, harness.least_samples)
        if not enough and harness.stopping != "interval":
            reading.degradations.append(
                f"stopping: the criterion of {harness.stopping} was not met in {len(seen.times)} samples"
            )
        if rejected:
            reading.degradations.append(
                f"clocks: {rejected} of {len(taken)} samples were off the clock and taken again"
            )
        for column, side in enumerate(sides):
            self.samples[side].extend(turn[column] for turn in taken)
        return len(seen.times) >= harness.least_samples and is_known(seen, harness.precision)

    def evidence(self, taken: Turns, spent_us: float) -> Evidence:
        """What the stopping criterion may use of these turns."""
        counting = [turn[0] for turn in taken if turn[0].counts]
        return Evidence([s.us - self.offset_us for s in counting], spent_us, [s.placement for s in counting])

    def judged(self, turn: Sequence[Sample], plateaus: Sequence[float], mask: int) -> list[Sample]:
        """A turn, marked whether it counts: not if a sample ran at another clock than at the end of the warm-up, or
        while the GPU was throttled. An unknown clock (NaN) counts.
        """
        off = any(
            abs(sample.sm_mhz - plateau) > CLOCK_TOLERANCE * plateau
            for sample, plateau in zip(turn, plateaus, strict=True)
        )
        rejected = self.harness.clocks != "ignored" and (off or bool(mask & THROTTLING))
        return [replace(sample, counts=not rejected) for sample in turn]

    def cut_to_pairs(self) -> None:
        """Sequential sampling may end at different counts; a sample without counting partners doesn't count."""
        both = [all(sample.counts for sample in turn) for turn in zip(*self.samples, strict=False)]
        for samples in self.samples:
            samples[:] = [
                replace(sample, counts=number < len(both) and both[number]) for number, sample in enumerate(samples)
            ]


def off_the_lock(clocks: str, sm_mhz: float | None) -> str | None:
    """The remark if the clocks setting is a lock, and the samples ran at another clock."""
    _, _, locked = clocks.partition(":")
    if not locked or sm_mhz is None or abs(sm_mhz / float(locked) - 1) <= CLOCK_TOLERANCE:
        return None
    return f"clocks: locked to {locked} MHz, but the samples ran at {sm_mhz:.0f} MHz"
