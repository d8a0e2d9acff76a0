"""The loop: warm up until steady, then take interleaved samples of the subject and the baseline until the interval is
narrow.

One sample, honestly: clock stamp, L2 flush, event, launch, event, clock stamp, all of it queued behind a blocking
kernel so that the GPU never waits for the host inside the pair. Samples taken at another clock, or while NVML reports
throttling, are kept in the record, marked, and taken again, up to a cap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from worklog.device import THROTTLING, reason_names
from worklog.harness.rules import (
    TENSARA_BURN_FLOPS,
    TENSARA_BURNS,
    TENSARA_PAUSE_S,
    Evidence,
    Warmth,
    WarmUp,
    is_known,
    stopping_rule,
    warm_up_rule,
)
from worklog.harness.settings import Harness
from worklog.harness.timeline import Launch, Timeline

BATCH_US = 60_000.0  # queue about this much work at a time: enough to hide the host, little enough to interrupt
LONGEST_BATCH = 16  # pairs: a CUDA queue holds about 1024 entries, and a pair takes up to 14
WARMUP_LIMIT_US = 3_000_000.0
CLOCK_TOLERANCE = 0.01
MOST_REJECTED = 0.5  # of all samples: beyond this share the clock is not an outlier but the weather
SETTLED = 12  # samples before that share is judged,
SETTLED_US = 250_000.0  # and host time: a throttled batch of short kernels is over in milliseconds, a dip may pass


@dataclass(frozen=True)
class Sample:
    """One timed launch: microseconds as read (offset included), SM clock in MHz, and whether it counts."""

    us: float
    sm_mhz: float
    counts: bool = True


@dataclass
class Reading:
    """All samples of a subject and of the baseline, pair by pair, and what went wrong while taking them."""

    subject: list[Sample] = field(default_factory=list)
    baseline: list[Sample] = field(default_factory=list)
    throttle_mask: int = 0
    converged: bool = False
    warmup_launches: int = 0
    degradations: list[str] = field(default_factory=list)

    def counted(self, which: str) -> list[float]:
        """Microseconds of the samples that count, of "subject" or "baseline"; pairs count or fall together."""
        return [sample.us for sample in getattr(self, which) if sample.counts]

    def comparisons(self) -> tuple[list[float], list[float]]:
        """Mean microseconds of the subject and of the baseline over each two turns in a row that both count.

        Two turns are one comparison: in one the subject goes first, in the other the baseline, and callers that
        alternate buffers swap them in step, so that neither place nor address favours anybody. Where no two turns
        in a row count, single turns are all there is.
        """
        pairs = list(zip(self.subject, self.baseline, strict=False))  # timed in sequence, one may have more
        twos = list(zip(pairs[::2], pairs[1::2], strict=False))
        both_count = [list(two) for two in twos if all(sample.counts for pair in two for sample in pair)]
        turns = both_count or [[pair] for pair in pairs if pair[0].counts]
        means = [[sum(pair[side].us for pair in block) / len(block) for block in turns] for side in (0, 1)]
        return means[0], means[1]


def time_pair(
    timeline: Timeline, subject: Launch, baseline: Launch, harness: Harness, *, size: float | None = None
) -> Reading:
    """Samples of subject and baseline under one harness. Raises LaunchFailed if a launch fails.

    size: N of the square problem of the same work, for the rules that go by it; without it they raise BadSetting.
    """
    reading = Reading()
    series = [_Series(subject, reading.subject), _Series(baseline, reading.baseline)]
    if harness.warmup != "none":
        _warm_up(timeline, series, harness, reading, size)
    else:
        timeline.go_cold()
    started = timeline.host_us()
    if harness.order == "interleaved":
        reading.converged = _sample(timeline, series, harness, reading, size)
    else:
        known = [_sample(timeline, [one], harness, reading, size) for one in series]
        reading.converged = all(known)
        _cut_to_pairs(reading)
    if not reading.converged:
        reading.degradations.append(
            f"not converged: ±{100 * harness.precision:g} % was not reached in {len(reading.subject)} samples "
            f"and {(timeline.host_us() - started) / 1e6:.1f} s"
        )
    return reading


@dataclass
class _Series:
    """One launch, where its samples go, and the clock that it ran at when the warm-up ended. A clock is compared only
    with the same kernel's: a kernel that starts on all SMs at once pulls the clock down for a moment, more visibly
    the shorter it is.
    """

    launch: Launch
    samples: list[Sample]
    plateau_mhz: float = float("nan")

    def off_clock(self, sample: Sample) -> bool:
        """Whether the sample ran at another clock than the plateau; False where either is unknown."""
        return abs(sample.sm_mhz - self.plateau_mhz) > CLOCK_TOLERANCE * self.plateau_mhz


def _warm_up(
    timeline: Timeline, series: Sequence[_Series], harness: Harness, reading: Reading, size: float | None
) -> None:
    """Launch once unqueued, since a first launch may load a module and would wait for ever behind a held queue; then
    run windows of samples until the rule has enough. The last window's clock is the plateau.
    """
    rule = warm_up_rule(harness.warmup, size)
    for one in series:
        one.launch()
    timeline.synchronize()
    if rule.prepare:
        _prepare_like_tensara(timeline)
    windows: list[tuple[float, float]] = []
    started = timeline.host_us()
    while rule.most is None or reading.warmup_launches < rule.most:
        window = _window(timeline, series, harness, rule, reading.warmup_launches)
        reading.warmup_launches += len(window)
        for index, one in enumerate(series):
            one.plateau_mhz = float(np.median([pair[index].sm_mhz for pair in window]))
        windows.append((float(np.median([pair[0].us for pair in window])), series[0].plateau_mhz))
        spent = timeline.host_us() - started
        if rule.enough(Warmth(windows, reading.warmup_launches, spent)):
            break
        if spent > WARMUP_LIMIT_US:
            reading.degradations.append(f"warm-up: not steady after {spent / 1e6:.1f} s")
            return
    if not rule.checks_steadiness:
        for one in series:
            one.plateau_mhz = float("nan")
        reading.degradations.append(
            f"warm-up: {harness.warmup}, which does not look whether time and clock are steady; "
            "no plateau to compare the samples' clock with"
        )


def _window(
    timeline: Timeline, series: Sequence[_Series], harness: Harness, rule: WarmUp, launched: int
) -> list[list[Sample]]:
    """Pairs of a warm-up for at least the rule's window, and no more than the rule still wants."""
    left = LONGEST_BATCH if rule.most is None else rule.most - launched
    window: list[list[Sample]] = []
    opened = timeline.host_us()
    while not window or timeline.host_us() - opened < rule.window_us:
        window += take_batch(timeline, [one.launch for one in series], min(left, _batch_size(window)), harness)[0]
    return window


def _prepare_like_tensara(timeline: Timeline) -> None:
    """Ten products of 5000 x 5000 matrices' worth of multiply-adds, then half a second of nothing."""
    for _ in range(TENSARA_BURNS):
        timeline.burn(TENSARA_BURN_FLOPS)
    timeline.synchronize()
    timeline.pause(TENSARA_PAUSE_S)


def _batch_size(taken: Sequence[Sequence[Sample]]) -> int:
    """Pairs to queue at once, from the longest pair seen so far; one where none was."""
    longest = max((sum(sample.us for sample in pair) for pair in taken), default=BATCH_US)
    return int(np.clip(BATCH_US / max(longest, 1.0), 1, LONGEST_BATCH))


def _sample(
    timeline: Timeline, series: Sequence[_Series], harness: Harness, reading: Reading, size: float | None
) -> bool:
    """Take batches until the rule has enough of the first launch, or patience ends. Returns whether its median is
    known well enough.
    """
    rule = stopping_rule(harness.stopping, harness.precision, harness.least_samples, size)
    started = timeline.host_us()
    taken: list[list[Sample]] = []
    watching = harness.clocks == "watched"
    times: list[float] = []
    rejected = 0
    while True:
        wanted = min(_batch_size(taken[-LONGEST_BATCH:]), harness.most_samples - len(taken))
        wanted = min(wanted, rule.step or wanted, wanted if rule.most is None else rule.most - len(times))
        cold = harness.warmup == "none" and not taken
        launches = [one.launch for one in series]
        batch, mask = take_batch(timeline, launches, wanted, harness, held=not cold, first=len(taken))
        reading.throttle_mask |= mask
        for pair in batch:
            off = any(one.off_clock(sample) for one, sample in zip(series, pair, strict=True))
            counts = not (watching and (off or mask & THROTTLING))
            taken.append([replace(sample, counts=counts) for sample in pair])
            rejected += not counts
        spent = timeline.host_us() - started
        impatient = spent > harness.budget_s * 1e6 or len(taken) >= harness.most_samples
        settled = impatient or (len(taken) >= SETTLED and spent > SETTLED_US)
        if rejected > MOST_REJECTED * len(taken) and settled:
            reading.degradations.append(_weather(rejected, len(taken), series[0].plateau_mhz, reading.throttle_mask))
            taken = [[replace(sample, counts=True) for sample in pair] for pair in taken]
            watching, rejected = False, 0
        times = [pair[0].us for pair in taken if pair[0].counts]
        enough = rule.ask(Evidence(times, spent))
        late = spent > harness.budget_s * 1e6 and len(times) >= min(3, harness.least_samples)
        if enough is not None or late or len(taken) >= harness.most_samples:
            break
    if not enough and harness.stopping != "interval":
        reading.degradations.append(
            f"stopping: {harness.stopping} had not got what it asks for in {len(times)} samples"
        )
    if rejected:
        reading.degradations.append(f"clocks: {rejected} of {len(taken)} samples were off the clock and taken again")
    for index, one in enumerate(series):
        one.samples += [pair[index] for pair in taken]
    return len(times) >= harness.least_samples and is_known(times, harness.precision)


def _weather(rejected: int, total: int, plateau_mhz: float, mask: int) -> str:
    """What to say when most samples were off the clock: then the clock itself has moved, and all of them count."""
    why = reason_names(mask & THROTTLING) if mask & THROTTLING else "not throttled"
    return (
        f"clocks: {rejected} of {total} samples were more than {CLOCK_TOLERANCE:.0%} off {plateau_mhz:.0f} MHz "
        f"({why}); all were kept"
    )


def _cut_to_pairs(reading: Reading) -> None:
    """Sequential sampling may end at different counts; what has no counting partner still shows, but does not count."""
    pairs = min(len(reading.subject), len(reading.baseline))
    both = [reading.subject[i].counts and reading.baseline[i].counts for i in range(pairs)]
    for samples in (reading.subject, reading.baseline):
        samples[:] = [replace(s, counts=i < pairs and both[i]) for i, s in enumerate(samples)]


def take_batch(
    timeline: Timeline, launches: Sequence[Launch], count: int, harness: Harness, held: bool = True, first: int = 0
) -> tuple[list[list[Sample]], int]:
    """`count` samples of each launch, and the throttle mask seen while they ran. Launches take turns, and turn about
    who is first; `first` is the number of turns taken before.
    """
    turns = [_turn(launches, first + number) for number in range(count)]
    if harness.timer == "host" or not harness.queue or not held:
        return _take_unqueued(timeline, launches, turns, harness)
    order = [index for turn in turns for index in turn]
    timeline.hold()
    try:
        for slot, index in enumerate(order):
            timeline.stamp_clock(2 * slot)
            if harness.l2 == "flush":
                timeline.flush_l2()
            timeline.record_event(2 * slot)
            launches[index]()
            timeline.record_event(2 * slot + 1)
            timeline.stamp_clock(2 * slot + 1)
    finally:
        timeline.release()
    mask = timeline.throttle_reasons()
    timeline.synchronize()
    samples = [
        Sample(timeline.elapsed_us(2 * slot, 2 * slot + 1), timeline.clock_mhz(2 * slot, 2 * slot + 1))
        for slot in range(len(order))
    ]
    width = len(launches)
    return [[samples[width * n + turns[n].index(i)] for i in range(width)] for n in range(count)], mask


def _turn(launches: Sequence[Launch], number: int) -> list[int]:
    """Indices in the order of one turn: forwards and backwards by turns, so that going first favours nobody."""
    forwards = list(range(len(launches)))
    return forwards if number % 2 == 0 else forwards[::-1]


def _take_unqueued(
    timeline: Timeline, launches: Sequence[Launch], turns: Sequence[Sequence[int]], harness: Harness
) -> tuple[list[list[Sample]], int]:
    """The lies: a host clock around the launch, or events on a stream that has run dry."""
    mask = 0
    batch: list[list[Sample]] = []
    for turn in turns:
        pair: dict[int, Sample] = {}
        for index in turn:
            timeline.stamp_clock(0)
            if harness.l2 == "flush":
                timeline.flush_l2()
            timeline.synchronize()
            if harness.timer == "host":
                started = timeline.host_us()
                launches[index]()
                us = timeline.host_us() - started
            else:
                timeline.record_event(0)
                launches[index]()
                timeline.record_event(1)
            timeline.stamp_clock(1)
            timeline.synchronize()
            if harness.timer != "host":
                us = timeline.elapsed_us(0, 1)
            pair[index] = Sample(us, timeline.clock_mhz(0, 1))
        mask |= timeline.throttle_reasons()
        batch.append([pair[index] for index in range(len(launches))])
    return batch, mask
