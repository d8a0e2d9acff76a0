"""The timed loop: warm up until steady, then sample until the interval is narrow.

The samples of the subject and the baseline are interleaved. Samples taken at another clock, or
while NVML reports throttling, stay in the record, marked, and are taken again, up to a limit. The
buffers' addresses also matter (the pitfall `placement`): they move to a new random placement
every few turns, and so does the code of short kernels. The first launch in a placement counts
like the others: the kernel that writes new inputs, or the copy that moves the old inputs, has
touched the same pages just before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from worklog.errors import BadSetting
from worklog.harness import batches
from worklog.harness.batches import LONGEST_BATCH, Launch, TimedLaunch, Turns
from worklog.harness.energy import launch_energy
from worklog.harness.rules import Evidence, Stopping, is_known, placements_needed, salykova_replays
from worklog.runs import Energy
from worklog.runs.nvml import throttled
from worklog.runs.statistics import PILOT, Sample, Samples, estimate_of, median, paired_ratio
from worklog.runs.text import duration
from worklog.settings import Harness, split_rule

if TYPE_CHECKING:
    from worklog.gpu.timeline import CudaTimeline

# Idle time before a cold start: long enough for the SM clock to fall to its idle value
IDLE_S = 1.0
# Of a warm-up until steady: host time of a window, and windows
WINDOW_US = 10_000.0
LEAST_WINDOWS = 3
WARMUP_LIMIT_US = 3_000_000.0
STEADY = 0.005  # two windows in a row that agree this well are steady,
BLURRED = 0.02  # or within their intervals, up to this,
# unless each of the last three was faster than the window before, by this in total
STILL_WARMING = 0.001
ONE_PLACEMENT = "placement: fixed, {}; the interval is of launches in one place only"
STOPPED = "not converged: stopped"
CLOCK_TOLERANCE = 0.01
MOST_REJECTED = 0.5  # of all samples: above this share, the clock itself has shifted
SETTLED = 12  # samples before that share is judged,
# and host time: a batch of short kernels lasts milliseconds, and a dip of the clock may pass
SETTLED_US = 250_000.0
# Turns in one placement: enough for a median that ignores an interrupted launch, since further
# placements narrow the interval more than further turns do. One turn, if four take longer than
# PLACEMENT_US.
PLACEMENT_TURNS = 4
PLACEMENT_US = 4_000.0


@dataclass
class LoopResult:
    """The samples of the launches of one loop, and what went wrong meanwhile."""

    samples: Samples = field(default_factory=Samples)
    converged: bool = False
    warmup_launches: int = 0
    degradations: list[str] = field(default_factory=list)
    energy: Energy | None = None  # of the first launch; None if the harness doesn't ask for it

    def us(self, statistic: str, side: int = 0) -> float:
        """Return the µs of a kernel's launches that count, as read."""
        return estimate_of(self.samples.counted(side), statistic).value


def time_in_turn(
    timeline: CudaTimeline,
    launches: Sequence[Launch | TimedLaunch],
    harness: Harness,
    *,
    size: float | None = None,
    offset_us: float = 0.0,
    move: Callable[[], None] | None = None,
) -> LoopResult:
    """Take samples of the kernel and of its baselines: each turn has one of each.

    launches: of the kernel, then of its baselines, if any
    size: N of the square problem of the same work, for the rules that need it; without it they
        raise BadSetting
    offset_us: the event overhead; it stays in the samples, and the stopping criterion subtracts it
    move: moves the buffers of all launches to a new random placement; without it they stay in one

    Raises LaunchFailed if a launch fails, and BadSetting if the launches can't do what the harness
    names: rotate over enough sets of inputs.
    """
    timed = [
        launch if isinstance(launch, TimedLaunch) else TimedLaunch(launch) for launch in launches
    ]
    if harness.l2 == "rotate":
        for launch in timed:
            _require_cold_sets(launch, timeline.l2_bytes)
    if harness.timer == "graph":
        timed = [
            batches.as_graph(timeline, launch, harness.l2, harness.graph_launches)
            for launch in timed
        ]
    mover = move if harness.placement == "varied" else None
    plateaus = [float("nan") for _ in timed]
    loop = _Sampling(timeline, timed, harness, size, offset_us, mover, plateaus)
    reading = loop.reading
    if harness.warmup != "none":
        # A first launch may load a module, which waits for the GPU: it can't be queued behind a
        # blocking kernel.
        loop.check_once()
    steady = loop.until_steady() if harness.warmup == "steady" else loop.warm_up()
    started_us = timeline.host_us()
    if harness.order == "interleaved" or len(timed) == 1:
        loop.sample_interleaved(steady)
    else:
        loop.sample_one_by_one()
    reading.samples = Samples.of_turns(
        [launch.name for launch in timed],
        loop.samples,
        hot=loop.hot_us(),
        kernels=[launch.kernels() for launch in timed],
        throttle_mask=loop.throttle_mask,
    )
    if harness.energy_s:
        reading.energy = loop.energy()
    placements = len(set(reading.samples.placements()))
    if mover and placements < PILOT:
        reading.degradations.append(
            f"placement: {placements} instead of {PILOT}, for lack of samples"
        )
    reading.degradations += timeline.remarks
    is_stopped = any(remark.startswith(STOPPED) for remark in reading.degradations)
    if not reading.converged and not is_stopped:
        reading.degradations.append(
            f"not converged: ±{100 * harness.precision:g} % was not reached in "
            f"{len(loop.samples[0])} samples and {duration(timeline.host_us() - started_us)}"
        )
    return reading


def _require_cold_sets(launch: TimedLaunch, l2_bytes: int) -> None:
    """Raise BadSetting if a launch rotates over fewer bytes than evict its own inputs."""
    if launch.set_bytes and launch.sets >= batches.input_sets(launch.set_bytes, l2_bytes):
        return
    raise BadSetting(
        f"l2 = rotate: {launch.sets} set(s) of {launch.set_bytes / 2**20:.2f} MiB would come round "
        f"while still in the L2 of {l2_bytes / 2**20:.0f} MiB: take l2 = flush"
    )


@dataclass
class _Sampling:
    """A measurement under way: the arguments of time_in_turn, and the results so far."""

    timeline: CudaTimeline
    launches: Sequence[TimedLaunch]
    harness: Harness
    size: float | None
    offset_us: float
    move: Callable[[], None] | None
    # Each launch's SM clock in MHz at the end of the warm-up. A kernel's clock is compared with its
    # own plateau: a kernel that starts on all SMs at once lowers the clock for a moment, more
    # visibly the shorter it is.
    plateaus: list[float]
    reading: LoopResult = field(default_factory=LoopResult)
    samples: list[list[Sample]] = field(default_factory=list)
    throttle_mask: int = 0
    placement: int = 0
    turns_in_placement: int = 1

    @property
    def _budget_us(self) -> float:
        """The time budget of a loop."""
        return self.harness.budget_s * 1e6

    def check_once(self) -> None:
        """Launch each kernel once, unqueued. No sample is kept."""
        unqueued = self.harness.but(queue=False, sleep_ms=0.0)
        batches.take_batch(self.timeline, self.launches, 1, unqueued)

    def warm_up(self) -> Turns:
        """Warm up by a rule that doesn't check that time and clock are steady.

        Returns []: no turn counts as a sample.
        """
        rule = self.harness.warmup
        if rule == "none":
            self.timeline.synchronize()
            self.timeline.pause(IDLE_S)
            return []
        name, numbers = split_rule("warmup", rule)
        if name == "salykova":
            numbers = [salykova_replays("warmup", self.size) // 2]
        if name == "tensara":
            self._warm_up_as_tensara(*numbers)
        elif not self._launch_until(name, numbers[0]):
            return []
        self.reading.degradations.append(
            f"warm-up: {rule}, which doesn't check that time and clock are steady; "
            "the samples' clock is compared with nothing"
        )
        return []

    def _warm_up_as_tensara(self, size: float, products: float, pause_ms: float) -> None:
        """Compute products of a square size without timing them, then let the GPU idle."""
        for _ in range(round(products)):
            self.timeline.burn(2 * size**3)
        self.timeline.synchronize()
        self.timeline.pause(pause_ms / 1e3)

    def _launch_until(self, rule: str, limit: float) -> bool:
        """Launch for `limit` ms if the rule is "time", else `limit` times.

        Returns False, and states it, if that takes longer than WARMUP_LIMIT_US.
        """
        reading = self.reading
        started_us = self.timeline.host_us()
        is_done = False
        while not is_done:
            batches.take_batch(
                self.timeline, self.launches, 1, self.harness, first=reading.warmup_launches
            )
            reading.warmup_launches += 1
            spent_us = self.timeline.host_us() - started_us
            spent = spent_us / 1e3 if rule == "time" else reading.warmup_launches
            is_done = spent >= limit
            if spent_us > WARMUP_LIMIT_US and not is_done:
                reading.degradations.append(
                    f"warm-up: {self.harness.warmup} not done after {spent_us / 1e6:.1f} s"
                )
                return False
        return True

    def until_steady(self) -> Turns:
        """Take windows of samples until they are steady.

        The last window's clock is the plateau. The buffers stay in the first placement: if they
        moved, a steady kernel would not look steady. Returns the turns of the last two windows,
        which count as samples.
        """
        windows: list[Window] = []
        last_two: list[tuple[Turns, int]] = []
        started_us = self.timeline.host_us()
        while not is_steady(windows):
            spent_us = self.timeline.host_us() - started_us
            if spent_us > WARMUP_LIMIT_US:
                self.reading.degradations.append(
                    f"warm-up: not steady after {spent_us / 1e6:.1f} s"
                )
                return []
            turns, mask = self._take_window()
            self.reading.warmup_launches += len(turns)
            self.plateaus = [
                float(np.median([sample.sm_mhz for sample in samples]))
                for samples in zip(*turns, strict=True)
            ]
            middle = median([turn[0].us for turn in turns])
            windows.append(Window(middle.value, middle.half_width, self.plateaus[0]))
            last_two = [*last_two[-1:], (turns, mask)]
        steady: Turns = []
        for turns, mask in last_two:
            # an even number of turns of each (see Samples.comparisons), judged like the others
            even_turns = turns[len(turns) % 2 :]
            steady += [self.judged(turn, self.plateaus, mask) for turn in even_turns]
            self.throttle_mask |= mask
        return steady

    def _take_window(self) -> tuple[Turns, int]:
        """Take batches for WINDOW_US of host time."""
        turns = Turns()
        window_mask = 0
        spent_us = 0.0
        opened_us = self.timeline.host_us()
        while spent_us < WINDOW_US:
            size = batches.batch_size(turns, self.launches, WINDOW_US)
            if turns:  # no more than fit into the rest of the window, flushes included
                rest_us = WINDOW_US - spent_us
                size = min(size, ceil(rest_us * len(turns) / max(spent_us, 1.0)))
            batch, mask = batches.take_batch(
                self.timeline, self.launches, size, self.harness, first=len(turns)
            )
            turns += batch
            window_mask |= mask
            spent_us = self.timeline.host_us() - opened_us
        return turns, window_mask

    def sample_interleaved(self, steady: Turns) -> None:
        """Sample all launches in turn.

        steady: the warm-up's turns, which count for the stopping criterion "interval"
        """
        limit = self.harness.most_samples
        if self.move:  # an even share is for this placement, so that the others get samples too
            limit = max(2, limit // PILOT // 2 * 2)
        first = steady[-limit:] if self.harness.stopping == "interval" else []
        self.reading.warmup_launches -= len(first)
        self.reading.converged = self.sample(range(len(self.launches)), first)

    def sample_one_by_one(self) -> None:
        """Sample the launches one after the other.

        They may end at different counts. A sample without counting partners doesn't count.
        """
        converged = [self.sample([side], []) for side in range(len(self.launches))]
        self.reading.converged = all(converged)
        turn_counts = [
            all(sample.counts for sample in turn) for turn in zip(*self.samples, strict=False)
        ]
        for samples in self.samples:
            for turn, sample in enumerate(samples):
                counts = turn < len(turn_counts) and turn_counts[turn]
                samples[turn] = replace(sample, counts=counts)

    def hot_us(self) -> list[list[float]]:
        """Time launches in a row, in µs of one launch; [] if that isn't possible."""
        medians_us = [
            float(np.median([sample.us for sample in samples]))
            for samples in self.samples
            if samples
        ]
        if len(medians_us) < len(self.launches):
            return []
        hot_us = batches.hot(
            self.timeline, self.launches, medians_us, self.harness, offset_us=self.offset_us
        )
        if hot_us:  # one more launch that is checked: a kernel may have stopped computing
            self.check_once()
        return hot_us

    def energy(self) -> Energy:
        """Measure the energy of the first launch, after all samples."""
        launch = self.launches[0]
        median_us = float(np.median([sample.us for sample in self.samples[0]]))
        energy = launch_energy(
            self.timeline, launch, median_us * launch.count, self.harness.energy_s
        )
        self.check_once()  # the kernel may have stopped computing in the row
        return energy

    def sample(self, sides: Sequence[int], first: Turns) -> bool:
        """Take batches until the first launch's median is known, or a limit is reached.

        sides: the numbers of the launches
        first: the warm-up's turns that count

        Returns whether the median is known to the harness's precision.
        """
        harness = self.harness
        launches = [self.launches[side] for side in sides]
        plateaus = [self.plateaus[side] for side in sides]
        rule = Stopping(harness.stopping, harness.precision, harness.least_samples, self.size)
        pilot = PILOT if self.move and harness.stopping == "interval" else 0
        next_check = pilot  # the number of placements at which the rule is checked
        started_us = self.timeline.host_us()
        spent_us = 0.0
        turns = list(first)
        judges_clock = True
        verdict: bool | None = None
        while True:
            if self._clock_has_shifted(turns, spent_us):
                turns = self._keep_all(turns, plateaus[0])
                judges_clock = False
            evidence = self._evidence(turns, spent_us)
            if evidence.placement_count >= next_check:
                verdict = rule.check(evidence)
                if next_check:
                    next_check = placements_needed(evidence, harness.precision)
            if verdict is not None or self._is_over(turns, evidence):
                break
            if evidence.placement_count >= pilot and self._is_too_slow(turns, evidence):
                break
            size = self._batch_size(
                turns, launches, rule, evidence, warm_up=len(first), next_check=next_check
            )
            batch, mask = self._take(launches, size, turns)
            if judges_clock:
                batch = [self.judged(turn, plateaus, mask) for turn in batch]
            turns += batch
            spent_us = self.timeline.host_us() - started_us
        self._report(verdict, turns, evidence)
        for column in range(len(sides)):
            self.samples.append([turn[column] for turn in turns])
        if len(evidence.times) < harness.least_samples:
            return False
        return is_known(evidence, harness.precision)

    def _evidence(self, turns: Turns, spent_us: float) -> Evidence:
        """Return what the stopping rule sees: the first launch's samples that count."""
        counting = [turn[0] for turn in turns if turn[0].counts]
        times = [sample.us - self.offset_us for sample in counting]
        return Evidence(times, spent_us, [sample.placement for sample in counting])

    def _clock_has_shifted(self, turns: Turns, spent_us: float) -> bool:
        """Return whether so many samples were off the clock that the clock itself changed."""
        if _rejected(turns) <= MOST_REJECTED * len(turns):
            return False
        is_settled = len(turns) >= SETTLED and spent_us > SETTLED_US
        is_last = spent_us > self._budget_us or len(turns) >= self.harness.most_samples
        return is_settled or is_last

    def _keep_all(self, turns: Turns, plateau_mhz: float) -> Turns:
        """Count every sample, and state that."""
        reasons = throttled(self.throttle_mask) or "not throttled"
        self.reading.degradations.append(
            f"clocks: {_rejected(turns)} of {len(turns)} samples were more than "
            f"{CLOCK_TOLERANCE:.0%} off {plateau_mhz:.0f} MHz ({reasons}); all were kept"
        )
        return [[replace(sample, counts=True) for sample in turn] for turn in turns]

    def _is_over(self, turns: Turns, evidence: Evidence) -> bool:
        """Return whether the budget or the maximum number of samples is reached."""
        if len(turns) >= self.harness.most_samples:
            return True
        fewest = min(3, self.harness.least_samples)
        return evidence.spent_us > self._budget_us and len(evidence.times) >= fewest

    def _is_too_slow(self, turns: Turns, evidence: Evidence) -> bool:
        """Return whether the kernel is below the least share of its baseline, and state it."""
        least_share = self.harness.least_share
        if not least_share or len(evidence.times) < self.harness.least_samples:
            return False
        if not self.is_below(turns):
            return False
        share = f"its share of the baseline is below {least_share:.4g}, with its interval"
        self.reading.degradations.append(f"{STOPPED} after {len(evidence.times)} samples: {share}")
        return True

    def _batch_size(
        self,
        turns: Turns,
        launches: Sequence[TimedLaunch],
        rule: Stopping,
        evidence: Evidence,
        *,
        warm_up: int,
        next_check: int,
    ) -> int:
        """Return how many turns to take next.

        warm_up: the number of those turns that the warm-up took
        """
        size = batches.batch_size(turns[-LONGEST_BATCH:], launches)
        size = min(size, self.harness.most_samples - len(turns))
        if rule.step:
            size = min(size, rule.step)
        if rule.max_samples is not None:
            size = min(size, rule.max_samples - len(evidence.times))
        missing = self.harness.least_samples - len(evidence.times)
        if self.move:
            if turns:
                self.turns_in_placement = self._turns_in_placement(turns, launches, rule)
            in_placement = self.turns_in_placement
            missing = max(missing, (next_check - evidence.placement_count) * in_placement)
            if size > in_placement:
                size -= size % in_placement  # whole placements
        if missing > 0:
            size = min(size, missing)
        if evidence.spent_us:
            # no more than fit into the budget: a host clock doesn't read how long a turn takes
            budgets_left = self._budget_us / evidence.spent_us - 1
            size = min(size, max(1, int((len(turns) - warm_up) * budgets_left)))
        return size

    def _turns_in_placement(
        self, turns: Turns, launches: Sequence[TimedLaunch], rule: Stopping
    ) -> int:
        """Return how many turns share a placement: several only if they are short and many."""
        turn_us = float(np.median(batches.turns_us(turns[-LONGEST_BATCH:], launches)))
        max_samples = self.harness.most_samples
        max_samples = min(max_samples, rule.max_samples or max_samples)
        is_short = PLACEMENT_TURNS * turn_us <= PLACEMENT_US
        is_long_loop = max_samples >= PILOT * PLACEMENT_TURNS
        return PLACEMENT_TURNS if is_short and is_long_loop else 1

    def _take(self, launches: Sequence[TimedLaunch], size: int, turns: Turns) -> tuple[Turns, int]:
        """Take a batch, in new placements if the buffers move."""
        is_first_launch = not turns and self.harness.warmup == "none"
        harness = self.harness.but(queue=False) if is_first_launch else self.harness
        batch, mask = batches.take_batch(
            self.timeline,
            launches,
            size,
            harness,
            first=len(turns),
            move=self.move,
            in_placement=self.turns_in_placement,
            placement=self.placement,
        )
        self.placement = batch[-1][0].placement
        self.throttle_mask |= mask
        return batch, mask

    def _report(self, verdict: bool | None, turns: Turns, evidence: Evidence) -> None:
        """State an unmet stopping criterion, and samples that were taken again."""
        degradations = self.reading.degradations
        criterion = self.harness.stopping
        if not verdict and criterion != "interval":
            degradations.append(
                f"stopping: the criterion of {criterion} was not met in "
                f"{len(evidence.times)} samples"
            )
        rejected = _rejected(turns)
        if rejected:
            degradations.append(
                f"clocks: {rejected} of {len(turns)} samples were off the clock and taken again"
            )

    def is_below(self, turns: Turns) -> bool:
        """Return whether the kernel's share is below the harness's least share.

        The share is the first baseline's time over the kernel's. Its whole interval must be below.
        """
        counting = [turn for turn in turns if turn[0].counts]
        kernel_us = [turn[0].us - self.offset_us for turn in counting]
        baseline_us = [turn[1].us - self.offset_us for turn in counting]
        placements = [turn[0].placement for turn in counting]
        share = paired_ratio(baseline_us, kernel_us, placements)
        return share.high < self.harness.least_share

    def judged(self, turn: Sequence[Sample], plateaus: Sequence[float], mask: int) -> list[Sample]:
        """Return a turn, marked if it counts.

        It doesn't if a sample ran at another clock than at the end of the warm-up, or while the GPU
        was throttled. An unknown clock (NaN) counts.
        """
        if self.harness.clocks == "ignored":
            is_rejected = False
        else:
            is_rejected = throttled(mask) != "" or any(
                abs(sample.sm_mhz - plateau) > CLOCK_TOLERANCE * plateau
                for sample, plateau in zip(turn, plateaus, strict=True)
            )
        return [replace(sample, counts=not is_rejected) for sample in turn]


def _rejected(turns: Turns) -> int:
    """Return the number of turns that don't count."""
    return sum(not turn[0].counts for turn in turns)


class Window(NamedTuple):
    """A part of a warm-up."""

    us: float  # the subject's median
    half_width_us: float  # of the median's interval
    mhz: float  # the SM clock


def is_steady(windows: Sequence[Window]) -> bool:
    """Return whether clock and time are steady.

    The last window's must be within 0.5 % of the window before, and must not ramp over the last
    three windows. One window doesn't determine a short kernel's median so well; then the two must
    agree within their intervals. A slowly rising clock can pass this check twice, but each window
    is then faster than the window before.
    """
    if len(windows) < LEAST_WINDOWS:
        return False
    first, second, last = windows[-LEAST_WINDOWS:]
    interval_us = min(second.half_width_us + last.half_width_us, BLURRED * second.us)
    # An unknown clock (NaN) never fails a comparison.
    if abs(last.us - second.us) > max(STEADY * second.us, interval_us):
        return False
    if abs(last.mhz - second.mhz) > STEADY * second.mhz:
        return False
    gets_faster = first.us > second.us > last.us
    clock_climbs = first.mhz < second.mhz < last.mhz
    if gets_faster and first.us - last.us > STILL_WARMING * last.us:
        return False
    return not (clock_climbs and last.mhz - first.mhz > STILL_WARMING * last.mhz)


def off_the_lock(clocks: str, sm_mhz: float | None) -> str | None:
    """Return the remark if the clocks are locked, but the samples ran at another clock."""
    _, _, locked = clocks.partition(":")
    if not locked or sm_mhz is None or abs(sm_mhz / float(locked) - 1) <= CLOCK_TOLERANCE:
        return None
    return f"clocks: locked to {locked} MHz, but the samples ran at {sm_mhz:.0f} MHz"
