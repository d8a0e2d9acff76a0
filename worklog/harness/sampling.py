"""The loop: warm up until steady, then take interleaved samples of the subject and the baseline until the interval is narrow.

One sample, honestly: clock stamp, L2 flush, event, launch, event, clock stamp, all of it queued behind a blocking kernel so that
the GPU never waits for the host inside the pair. Samples taken at another clock, or while NVML reports throttling, are kept in the
record, marked, and taken again, up to a cap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from worklog.device import THROTTLING, reason_names
from worklog.harness.settings import Harness
from worklog.statistics import median
from worklog.harness.timeline import Launch, Timeline

BATCH_US = 60_000.0  # queue about this much work at a time: enough to hide the host, little enough to cancel
LONGEST_BATCH = 16  # pairs; a CUDA queue holds about 1024 entries and a pair takes up to 14
STEADY = 0.005  # two windows in a row that agree this well are steady
WINDOW_US = 50_000.0
WARMUP_LIMIT_US = 3_000_000.0
CLOCK_TOLERANCE = 0.01
MOST_REJECTED = 0.5  # of all samples; beyond this share the clock is not an outlier but the weather


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


def time_pair(timeline: Timeline, subject: Launch, baseline: Launch, harness: Harness) -> Reading:
    """Samples of subject and baseline under one harness. Raises LaunchFailed if a launch fails."""
    reading = Reading()
    if harness.warmup == "steady":
        plateau = _warm_up(timeline, subject, baseline, harness, reading)
    else:
        timeline.go_cold()
        plateau = float("nan")
    started = timeline.host_us()
    if harness.order == "interleaved":
        _sample(timeline, (subject, baseline), (reading.subject, reading.baseline), harness, reading, plateau)
    else:
        _sample(timeline, (subject,), (reading.subject,), harness, reading, plateau)
        _sample(timeline, (baseline,), (reading.baseline,), harness, reading, plateau)
        _cut_to_pairs(reading)
    if not reading.converged:
        seconds = (timeline.host_us() - started) / 1e6
        reading.degradations.append(
            f"not converged: ±{harness.precision:.1%} was not reached in {len(reading.subject)} samples and {seconds:.1f} s"
        )
    return reading


def _cut_to_pairs(reading: Reading) -> None:
    """Sequential sampling may end at different counts; what has no partner still shows, but does not count."""
    shorter = min(len(reading.subject), len(reading.baseline))
    for samples in (reading.subject, reading.baseline):
        samples[shorter:] = [Sample(s.us, s.sm_mhz, counts=False) for s in samples[shorter:]]
    for index in range(shorter):
        if not (reading.subject[index].counts and reading.baseline[index].counts):
            for samples in (reading.subject, reading.baseline):
                samples[index] = Sample(samples[index].us, samples[index].sm_mhz, counts=False)


def _warm_up(timeline: Timeline, subject: Launch, baseline: Launch, harness: Harness, reading: Reading) -> float:
    """Run windows of samples until the subject's time and the SM clock agree with the window before. Returns the clock reached."""
    before: tuple[float, float] | None = None
    spent = 0.0
    while True:
        times: list[float] = []
        clocks: list[float] = []
        window = 0.0
        while window < WINDOW_US:
            (pairs, _) = take_batch(timeline, (subject, baseline), _batch_size(times), harness)
            reading.warmup_launches += len(pairs)
            times += [pair[0].us for pair in pairs]
            clocks += [pair[0].sm_mhz for pair in pairs]
            window += sum(sample.us for pair in pairs for sample in pair)
        now = float(np.median(times)), float(np.median(clocks))
        spent += window
        if before is not None and all(
            abs(new - old) <= STEADY * abs(old) or not np.isfinite(new) for new, old in zip(now, before, strict=True)
        ):
            return now[1]
        if spent > WARMUP_LIMIT_US:
            reading.degradations.append(f"warm-up: not steady after {spent / 1e6:.1f} s")
            return now[1]
        before = now


def _batch_size(times: Sequence[float]) -> int:
    """Pairs to queue at once, from the times seen so far."""
    return 1 if not times else int(np.clip(BATCH_US / max(times), 1, LONGEST_BATCH))


def _sample(
    timeline: Timeline,
    launches: Sequence[Launch],
    into: Sequence[list[Sample]],
    harness: Harness,
    reading: Reading,
    plateau: float,
) -> None:
    """Take batches until the first launch's median is known well enough, or patience ends."""
    started = timeline.host_us()
    times: list[float] = []
    rejected = total = 0
    capped = False
    converged = False
    while True:
        wanted = max(1, min(_batch_size(times), harness.most_samples - total))
        batch, mask = take_batch(timeline, launches, wanted, harness)
        reading.throttle_mask |= mask
        for samples in batch:
            counts = True
            if harness.clocks == "watched":
                if not np.isfinite(plateau):
                    plateau = samples[0].sm_mhz
                off = any(abs(s.sm_mhz - plateau) > CLOCK_TOLERANCE * plateau for s in samples if np.isfinite(s.sm_mhz))
                counts = not (off or mask & THROTTLING) or capped
            total += 1
            rejected += not counts
            for sample, target in zip(samples, into, strict=True):
                target.append(Sample(sample.us, sample.sm_mhz, counts))
            if counts:
                times.append(samples[0].us)
        if not capped and total >= harness.least_samples and rejected > MOST_REJECTED * total:
            capped = True  # the clock itself has moved: everything counts, and the result says so
            for target in into:
                target[:] = [Sample(s.us, s.sm_mhz) for s in target]
            times = [s.us for s in into[0]]
            reading.degradations.append(
                f"clocks: {rejected} of {total} samples were more than {CLOCK_TOLERANCE:.0%} off {plateau:.0f} MHz or throttled "
                f"({reason_names(reading.throttle_mask & THROTTLING)}); all were kept"
            )
            rejected = 0
        enough = len(times) >= harness.least_samples and median(times).relative_half_width <= harness.precision
        spent_s = (timeline.host_us() - started) / 1e6
        if (
            enough
            or total >= harness.most_samples
            or (spent_s > harness.budget_s and len(times) >= min(3, harness.least_samples))
        ):
            converged = enough
            break
    if launches[0] is not None and into[0] is reading.subject:
        reading.converged = converged
    if rejected:
        reading.degradations.append(f"clocks: {rejected} of {total} samples were off the clock and taken again")


def take_batch(
    timeline: Timeline, launches: Sequence[Launch], count: int, harness: Harness
) -> tuple[list[list[Sample]], int]:
    """`count` samples of each launch in turn, and the throttle mask seen while they ran."""
    if harness.timer == "host" or not harness.queue:
        return _take_unqueued(timeline, launches, count, harness)
    timeline.hold()
    try:
        for slot in range(count * len(launches)):
            timeline.stamp_clock(2 * slot)
            if harness.l2 == "flush":
                timeline.flush_l2()
            timeline.record_event(2 * slot)
            launches[slot % len(launches)]()
            timeline.record_event(2 * slot + 1)
            timeline.stamp_clock(2 * slot + 1)
    finally:
        timeline.release()
    mask = timeline.throttle_reasons()
    timeline.synchronize()
    samples = [
        Sample(timeline.elapsed_us(2 * s, 2 * s + 1), timeline.clock_mhz(2 * s, 2 * s + 1))
        for s in range(count * len(launches))
    ]
    return [samples[i : i + len(launches)] for i in range(0, len(samples), len(launches))], mask


def _take_unqueued(
    timeline: Timeline, launches: Sequence[Launch], count: int, harness: Harness
) -> tuple[list[list[Sample]], int]:
    """The lies: a host clock around the launch, or events on a stream that has run dry."""
    mask = 0
    batch: list[list[Sample]] = []
    for _ in range(count):
        samples: list[Sample] = []
        for launch in launches:
            timeline.stamp_clock(0)
            if harness.l2 == "flush":
                timeline.flush_l2()
            timeline.synchronize()
            if harness.timer == "host":
                start = timeline.host_us()
                launch()
                us = timeline.host_us() - start
                timeline.stamp_clock(1)
                timeline.synchronize()
            else:
                timeline.record_event(0)
                launch()
                timeline.record_event(1)
                timeline.stamp_clock(1)
                timeline.synchronize()
                us = timeline.elapsed_us(0, 1)
            samples.append(Sample(us, timeline.clock_mhz(0, 1)))
        mask |= timeline.throttle_reasons()
        batch.append(samples)
    return batch, mask
