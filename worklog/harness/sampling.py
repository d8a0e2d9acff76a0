"""The loop: warm up until steady, then take interleaved samples of the subject and the baseline until the interval is
narrow.

Samples taken at another clock, or while NVML reports throttling, are kept in the record, marked, and taken again, up
to a cap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np

from worklog.gpu.device import THROTTLING, reason_names
from worklog.harness.batches import BATCH_US, LONGEST_BATCH, SPIN_US, Sample, batch_size, bubble_us, take_batch
from worklog.harness.graph_timer import as_graphs
from worklog.harness.l2 import require_rotation
from worklog.harness.launchers import PARTLY, Partly, require_events, waits
from worklog.harness.rules import (
    TENSARA_BURN_FLOPS,
    TENSARA_BURNS,
    TENSARA_PAUSE_S,
    Evidence,
    Warmth,
    WarmUp,
    Window,
    is_known,
    stopping_rule,
    warm_up_rule,
)
from worklog.harness.timeline import Launch, Timeline
from worklog.runs.statistics import median
from worklog.settings import Harness

__all__ = ["Reading", "Sample", "time_pair"]

Pairs = list[list[Sample]]  # pair by pair, a sample of each launch

WARMUP_LIMIT_US = 3_000_000.0
CLOCK_TOLERANCE = 0.01
MOST_REJECTED = 0.5  # of all samples: beyond this share the clock is not an outlier but the weather
SETTLED = 12  # samples before that share is judged,
SETTLED_US = 250_000.0  # and host time: a throttled batch of short kernels is over in milliseconds, a dip may pass


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

    def clocks(self, which: str) -> list[tuple[float, float]]:
        """Of the samples that count: microseconds by the events, and around the launch by the global timer. None where
        that was not read.
        """
        samples = [sample for sample in getattr(self, which) if sample.counts]
        return [(sample.us, sample.around_us) for sample in samples if sample.around_us == sample.around_us]

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
    timeline: Timeline,
    subject: Launch,
    baseline: Launch | None,
    harness: Harness,
    *,
    size: float | None = None,
    offset_us: float = 0.0,
) -> Reading:
    """Samples of subject and baseline, or of the subject alone, under one harness. Raises LaunchFailed if a launch
    fails, and BadSetting for what this timeline or these launches cannot do: trace, rotate over enough sets of inputs.

    size: N of the square problem of the same work, for the rules that go by it; without it they raise BadSetting.
    offset_us: what every sample reads too long, which stays in the samples: how well the median is known is asked of
    what is left without it.
    """
    reading = Reading()
    launches = [subject] if baseline is None else [subject, baseline]
    require_events(launches, harness)
    if any(isinstance(launch, Partly) for launch in launches):
        reading.degradations.append(PARTLY)
    if waits(launches):
        reading.degradations.append(_cost_of_waiting(timeline, harness))
    if harness.l2 == "rotate":
        require_rotation(launches, timeline.l2_bytes)
    if harness.timer == "graph":
        launches = list(as_graphs(timeline, launches, harness))
    both = zip(launches, (reading.subject, reading.baseline), strict=False)  # the baseline may be missing
    series = [_Series(launch, samples) for launch, samples in both]
    steady: Pairs = []
    if harness.warmup != "none":
        steady = _warm_up(timeline, series, harness, reading, size)
    else:
        timeline.go_cold()
    started = timeline.host_us()
    if harness.order == "interleaved" or baseline is None:
        first = steady[-harness.most_samples :] if harness.stopping == "interval" else []
        reading.warmup_launches -= len(first)
        reading.converged = _sample(timeline, series, harness, reading, size, offset_us, first)
    else:
        known = [_sample(timeline, [one], harness, reading, size, offset_us, []) for one in series]
        reading.converged = all(known)
        _cut_to_pairs(reading)
    reading.degradations += timeline.remarks()
    if not reading.converged:
        reading.degradations.append(
            f"not converged: ±{100 * harness.precision:g} % was not reached in {len(reading.subject)} samples "
            f"and {(timeline.host_us() - started) / 1e6:.1f} s"
        )
    return reading


def _cost_of_waiting(timeline: Timeline, harness: Harness) -> str:
    """What a launch that waits for the GPU costs, in words."""
    return (
        f"queue: the launcher waits for the GPU, so nothing is queued; events around a kernel of {SPIN_US} µs then "
        f"read {bubble_us(timeline, harness):.1f} µs more, which is not taken off"
    )


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
) -> Pairs:
    """Launch once unqueued, since a first launch may load a module and would wait for ever behind a held queue; then
    run windows of samples until the rule has enough. The last window's clock is the plateau.

    Returns the two windows that were found to agree, which are samples like those that follow: none, where the rule
    does not look.
    """
    rule = warm_up_rule(harness.warmup, size)
    for one in series:
        one.launch()
    timeline.synchronize()
    if rule.prepare:
        _prepare_like_tensara(timeline)
    windows: list[Window] = []
    taken: list[tuple[Pairs, int]] = []
    started = timeline.host_us()
    while rule.most is None or reading.warmup_launches < rule.most:
        window, mask = _window(timeline, series, harness, rule)
        reading.warmup_launches += len(window)
        for index, one in enumerate(series):
            one.plateau_mhz = float(np.median([pair[index].sm_mhz for pair in window]))
        middle = median([pair[0].us for pair in window])
        windows.append(Window(middle.value, (middle.high - middle.low) / 2, series[0].plateau_mhz))
        taken = [*taken[-1:], (window, mask)]
        spent = timeline.host_us() - started
        if rule.enough(Warmth(windows, reading.warmup_launches, spent)):
            break
        if spent > WARMUP_LIMIT_US:
            how = "not steady" if rule.checks_steadiness else f"{harness.warmup} not done"
            reading.degradations.append(f"warm-up: {how} after {spent / 1e6:.1f} s")
            return []
    if not rule.checks_steadiness:
        for one in series:
            one.plateau_mhz = float("nan")
        reading.degradations.append(
            f"warm-up: {harness.warmup}, which does not look whether time and clock are steady; "
            "no plateau to compare the samples' clock with"
        )
        return []
    return _samples_of_warm_up(series, taken, harness, reading)


def _samples_of_warm_up(
    series: Sequence[_Series], windows: Sequence[tuple[Pairs, int]], harness: Harness, reading: Reading
) -> Pairs:
    """The pairs of the windows that agreed, as whole turns (see Reading.comparisons), marked like any other."""
    watching, kept = harness.clocks != "ignored", []
    for window, mask in windows:
        whole = window[len(window) % 2 :]
        kept += [_judged(series, pair, watching, mask) for pair in whole]
        reading.throttle_mask |= mask
    return kept


def _window(timeline: Timeline, series: Sequence[_Series], harness: Harness, rule: WarmUp) -> tuple[Pairs, int]:
    """Pairs of a warm-up for the rule's window, hardly more (one, where the rule has none), and the throttle mask."""
    launches = [one.launch for one in series]
    window: Pairs = []
    mask = 0
    opened, spent = timeline.host_us(), 0.0
    while not window or spent < rule.window_us:
        size = batch_size(window, launches, min(BATCH_US, rule.window_us))
        if window:  # no more than fit into what is left of it, flushes and all
            size = min(size, ceil((rule.window_us - spent) * len(window) / max(spent, 1.0)))
        batch, seen = take_batch(timeline, launches, size, harness, first=len(window))
        window += batch
        mask |= seen
        spent = timeline.host_us() - opened
    return window, mask


def _prepare_like_tensara(timeline: Timeline) -> None:
    """Ten products of 5000 x 5000 matrices' worth of multiply-adds, then half a second of nothing."""
    for _ in range(TENSARA_BURNS):
        timeline.burn(TENSARA_BURN_FLOPS)
    timeline.synchronize()
    timeline.pause(TENSARA_PAUSE_S)


def _sample(
    timeline: Timeline,
    series: Sequence[_Series],
    harness: Harness,
    reading: Reading,
    size: float | None,
    offset_us: float,
    first: Pairs,
) -> bool:
    """To the samples that the warm-up ended with, add batches until the rule has enough of the first launch, or
    patience ends. Returns whether its median is known well enough.
    """
    rule = stopping_rule(harness.stopping, harness.precision, harness.least_samples, size)
    launches = [one.launch for one in series]
    started = timeline.host_us()
    watching = harness.clocks != "ignored"
    taken = list(first)
    times = [pair[0].us - offset_us for pair in taken if pair[0].counts]
    rejected, late = len(taken) - len(times), False
    enough = rule.ask(Evidence(times, 0.0)) if times else None
    while enough is None and not late and len(taken) < harness.most_samples:
        wanted = min(batch_size(taken[-LONGEST_BATCH:], launches), harness.most_samples - len(taken))
        wanted = min(wanted, rule.step or wanted, wanted if rule.most is None else rule.most - len(times))
        missing = harness.least_samples - len(times)
        wanted = min(wanted, missing + missing % 2) if missing > 0 else wanted
        cold = harness.warmup == "none" and not taken
        batch, mask = take_batch(timeline, launches, wanted, harness, held=not cold, first=len(taken))
        reading.throttle_mask |= mask
        for pair in batch:
            taken.append(_judged(series, pair, watching, mask))
            rejected += not taken[-1][0].counts
        spent = timeline.host_us() - started
        impatient = spent > harness.budget_s * 1e6 or len(taken) >= harness.most_samples
        settled = impatient or (len(taken) >= SETTLED and spent > SETTLED_US)
        if rejected > MOST_REJECTED * len(taken) and settled:
            reading.degradations.append(_weather(rejected, len(taken), series[0].plateau_mhz, reading.throttle_mask))
            taken = [[replace(sample, counts=True) for sample in pair] for pair in taken]
            watching, rejected = False, 0
        times = [pair[0].us - offset_us for pair in taken if pair[0].counts]
        enough = rule.ask(Evidence(times, spent))
        late = spent > harness.budget_s * 1e6 and len(times) >= min(3, harness.least_samples)
    if not enough and harness.stopping != "interval":
        reading.degradations.append(
            f"stopping: {harness.stopping} had not got what it asks for in {len(times)} samples"
        )
    if rejected:
        reading.degradations.append(f"clocks: {rejected} of {len(taken)} samples were off the clock and taken again")
    for index, one in enumerate(series):
        one.samples += [pair[index] for pair in taken]
    return len(times) >= harness.least_samples and is_known(times, harness.precision)


def _judged(series: Sequence[_Series], pair: Sequence[Sample], watching: bool, mask: int) -> list[Sample]:
    """A pair, marked as to whether it counts."""
    off = any(one.off_clock(sample) for one, sample in zip(series, pair, strict=True))
    return [replace(sample, counts=not (watching and (off or mask & THROTTLING))) for sample in pair]


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
