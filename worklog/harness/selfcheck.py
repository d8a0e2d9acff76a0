"""What the ruler can find out about itself on any timeline: what it reads on kernels of known length, on the same
kernel twice, on a cache that it says is cold, and what a launch costs the host.

A kernel that spins until the GPU's global timer has advanced by a known time is a kernel of known length. What the
event pair reads beyond that is the same at every length, so it can be taken off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from worklog.harness.batches import LONGEST_BATCH, take_batch
from worklog.harness.timeline import Launch, Timeline
from worklog.runs.samples import Reading, Sample
from worklog.runs.statistics import Estimate, median, paired_ratio
from worklog.settings import Harness

KNOWN_US = (1, 2, 5, 10, 30, 100, 300, 1000)
SAMPLES = 256  # one reading is spread by when the flush before it ends, by much more than is promised of their median
AA_FLOPS = 3e9  # tens of microseconds: long beside the event pair, short enough for many pairs
AA_PAIRS = 128
LAUNCHES, LAUNCH_ROUNDS = 64, 9
CACHED = 0.95  # a read no slower than this quantile of the reads from L2 counts as one
STILL_CACHED = 0.02  # such reads after a flush that works: noise
TOLERANCE_US, TOLERANCE = 0.1, 0.002  # the error that the ruler promises on known lengths, whichever is larger


@dataclass(frozen=True)
class KnownLengths:
    """Median readings of kernels of known length, microseconds; `error_us` is what is left after the offset."""

    known_us: tuple[float, ...]
    read_us: tuple[float, ...]
    tick_us: float

    @property
    def by_length_us(self) -> tuple[float, ...]:
        """Reading minus length, at each length."""
        return tuple(read - known for read, known in zip(self.read_us, self.known_us, strict=True))

    @property
    def offset_us(self) -> float:
        """What an event pair reads on top: the median over the lengths."""
        return float(np.median(self.by_length_us))

    @property
    def slope(self) -> float:
        """Microseconds read for each true microsecond beyond the offset. Errors are taken to grow with the length."""
        weights = 1 / np.maximum(TOLERANCE_US, TOLERANCE * np.array(self.known_us))
        return float(np.polyfit(self.known_us, self.read_us, 1, w=weights)[0])

    @property
    def error_us(self) -> tuple[float, ...]:
        """What is left at each length once the offset is taken off."""
        return tuple(over - self.offset_us for over in self.by_length_us)

    @property
    def within_promise(self) -> bool:
        """Whether every length is read within 0.1 µs or 0.2 %, whichever is larger."""
        return all(
            abs(error) <= max(TOLERANCE_US, TOLERANCE * known)
            for error, known in zip(self.error_us, self.known_us, strict=True)
        )


def read_known_lengths(timeline: Timeline) -> KnownLengths:
    """Read kernels of 1 µs to 1 ms with the honest harness."""
    samples_of(timeline, partial(timeline.spin, 1_000_000), LONGEST_BATCH, Harness())  # wakes the clocks
    taken = [
        [sample.us for sample in samples_of(timeline, partial(timeline.spin, 1000 * known), SAMPLES, Harness())]
        for known in KNOWN_US
    ]
    steps = np.diff(np.unique(np.round(np.concatenate(taken), 4)))
    tick = float(steps[steps > 1e-3].min()) if (steps > 1e-3).any() else 0.0
    medians = tuple(float(np.median(times)) for times in taken)
    return KnownLengths(tuple(map(float, KNOWN_US)), medians, tick)


def samples_of(timeline: Timeline, launch: Launch, count: int, harness: Harness) -> list[Sample]:
    """`count` samples, rounded up to whole batches, of one launch."""
    batches = [take_batch(timeline, [launch], LONGEST_BATCH, harness)[0] for _ in range(-(-count // LONGEST_BATCH))]
    return [samples[0] for batch in batches for samples in batch]


def same_against_itself(timeline: Timeline) -> Estimate:
    """The ratio of a kernel to itself, interleaved: what is not 1, or not narrow, is the noise floor of every ratio."""
    launch = partial(timeline.burn, AA_FLOPS)
    launch()
    timeline.synchronize()
    reading = Reading()
    while len(reading.subject) < AA_PAIRS:
        batch, _ = take_batch(timeline, [launch, launch], LONGEST_BATCH, Harness(), first=len(reading.subject))
        reading.subject += [pair[0] for pair in batch]
        reading.baseline += [pair[1] for pair in batch]
    ours, theirs, _ = reading.comparisons()
    return paired_ratio(ours, theirs)


def launch_cost_us(timeline: Timeline) -> float:
    """Host microseconds that one launch takes, the queue being neither empty nor full."""
    costs = []
    for _ in range(LAUNCH_ROUNDS):
        timeline.synchronize()
        started = timeline.host_us()
        for _ in range(LAUNCHES):
            timeline.spin(1000)
        costs.append((timeline.host_us() - started) / LAUNCHES)
    timeline.synchronize()
    return median(costs).value


@dataclass(frozen=True)
class FlushProof:
    """Median cycles of reads from a buffer just read, and after a flush; and the share of these as quick as those."""

    warm_cycles: float
    cold_cycles: float
    still_cached: float

    @property
    def evicts(self) -> bool:
        """Whether the flush evicts: reads after it are slower, and next to none as quick as from L2."""
        return self.still_cached <= STILL_CACHED and self.cold_cycles > self.warm_cycles

    @classmethod
    def of(cls, warm: Sequence[float], cold: Sequence[float]) -> FlushProof:
        """From the cycles of single reads, before and after."""
        still = float(np.mean(np.asarray(cold) <= np.quantile(warm, CACHED)))
        return cls(float(np.median(warm)), float(np.median(cold)), still)


def prove_flush(timeline: Timeline) -> FlushProof:
    """Read a buffer, read it again (warm), flush, read it once more (cold)."""
    timeline.probe_l2()
    warm = timeline.probe_l2()
    timeline.flush_l2()
    return FlushProof.of(warm, timeline.probe_l2())
