"""From a virtual GPU to a number, as the orchestrator does it: calibrate the offset, time a pair, take it off."""

from __future__ import annotations

from dataclasses import dataclass

from tests.harness.virtual import VirtualGpu
from worklog.harness import Harness, Reading, time_pair
from worklog.harness.batches import take_batch
from worklog.runs.samples import Estimate, median, summarize

BASELINE_US = 80.0


@dataclass(frozen=True)
class Result:
    """The result: the subject's time in microseconds, the baseline's over it, and the raw reading."""

    time: Estimate
    ratio: Estimate
    reading: Reading


def offset_of(gpu: VirtualGpu) -> float:
    """The event pair's own length, from a kernel of known length."""
    known = gpu.kernel(10.0, "known")
    known()
    samples, _ = take_batch(gpu, [known], 16, Harness())
    return median([sample[0].us for sample in samples]).value - 10.0


def launches_of_warm_up(us: float = 50.0) -> int:
    """Launches on an undisturbed GPU before the warm-up is over, its last windows among them."""
    harness = Harness().but(order="sequential")  # which takes no samples from the warm-up
    return 2 * timed(VirtualGpu(), harness, us=us).reading.warmup_launches + 2


def timed(
    gpu: VirtualGpu,
    harness: Harness | None = None,
    us: float = 50.0,
    baseline_us: float = BASELINE_US,
    sensitivity: float = 1.0,
) -> Result:
    """Time a kernel of `us` against a baseline on this GPU, under this harness (default: the unbiased one)."""
    harness = harness or Harness()
    offset = offset_of(VirtualGpu(offset_us=gpu.offset_us)) if harness.offset == "removed" else 0.0
    kernels = gpu.kernel(us, "subject", sensitivity=sensitivity), gpu.kernel(baseline_us, "baseline")
    reading = time_pair(gpu, *kernels, harness, move=gpu.move)
    found = summarize(reading, harness.as_dict(), {"offset_us": offset})
    assert found.ratio is not None
    return Result(found.time, found.ratio, reading)
