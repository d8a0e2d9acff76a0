"""The harness measured by itself, once per run.

It reads kernels of known length, the same kernel twice, the L2 flush, the cost of a launch, and
this GPU's real ceilings.

A kernel that spins until the GPU's global timer has advanced by a known time is a kernel of known
length. What the event pair reads beyond that time, the event overhead, is the same at every length,
so it can be subtracted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from worklog.harness.batches import LONGEST_BATCH, TimedLaunch, Turns, take_batch
from worklog.runs import Calibration, Gpu
from worklog.runs.statistics import Estimate, Samples, median, paired_ratio
from worklog.settings import L2, Harness

if TYPE_CHECKING:
    from worklog.gpu.timeline import CudaTimeline

KNOWN_US = (1.0, 2.0, 5.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
SAMPLES = 256  # single readings scatter much more than the tolerance, which is for their median
# Tens of microseconds: long beside the event overhead, short enough for many pairs
AA_FLOPS = 3e9
AA_PAIRS = 128
LAUNCHES = 64
LAUNCH_ROUNDS = 9
CACHED = 0.95  # a read no slower than this quantile of the reads from L2 counts as cached


def calibrate(timeline: CudaTimeline) -> Calibration:
    """Measure the harness and the ceilings, in about a second."""
    overheads_us, tick_us = read_known_lengths(timeline)
    lengths, overheads = np.array([*overheads_us.items()]).T
    # Errors are assumed to grow with the length.
    weights = [1 / Calibration.allowed_us(length) for length in lengths]
    slope = float(np.polyfit(lengths, lengths + overheads, 1, w=weights)[0])
    aa_ratio = _aa_ratio(timeline)
    launch_us = _launch_us(timeline)
    warm_cycles, cold_cycles = _l2_cycles(timeline)
    rates, clocks = _ceilings(timeline)
    return Calibration(
        offset_us=float(np.median(overheads)),
        offset_by_length_us={
            f"{length:g}": round(overhead, 4) for length, overhead in overheads_us.items()
        },
        tick_us=tick_us,
        fp32_tflops=rates["FP32"] / 1e6,
        copy_gbs=rates["copy"] / 1e3,
        l2_gbs=rates["L2 reads"] / 1e3,
        sm_mhz=None if np.isnan(clocks["FP32"]) else clocks["FP32"],
        slope=slope,
        aa_ratio=aa_ratio.value,
        aa_low=aa_ratio.low,
        aa_high=aa_ratio.high,
        launch_us=launch_us,
        warm_cycles=float(np.median(warm_cycles)),
        cold_cycles=float(np.median(cold_cycles)),
        still_cached=float(np.mean(np.asarray(cold_cycles) <= np.quantile(warm_cycles, CACHED))),
    )


def _aa_ratio(timeline: CudaTimeline) -> Estimate:
    """Return the ratio of a kernel to itself, interleaved."""
    kernel = TimedLaunch(partial(timeline.burn, AA_FLOPS))
    kernel.launch()
    timeline.synchronize()
    pairs = _turns(timeline, [kernel, kernel], AA_PAIRS)
    samples = Samples.of_turns(("", ""), [*zip(*pairs, strict=True)])
    first_us, second_us, _ = samples.comparisons()
    return paired_ratio(first_us, second_us)


def _launch_us(timeline: CudaTimeline) -> float:
    """Return the host time of a launch in µs, while the queue is neither empty nor full."""
    rounds_us = []
    for _ in range(LAUNCH_ROUNDS):
        timeline.synchronize()
        started_us = timeline.host_us()
        for _ in range(LAUNCHES):
            timeline.spin(1000)
        rounds_us.append((timeline.host_us() - started_us) / LAUNCHES)
    timeline.synchronize()
    return median(rounds_us).value


def _l2_cycles(timeline: CudaTimeline) -> tuple[Sequence[float], Sequence[float]]:
    """Return the cycles of reads from L2, and of the same reads after the flush."""
    timeline.probe_l2()
    warm_cycles = timeline.probe_l2()
    timeline.flush_l2()
    return warm_cycles, timeline.probe_l2()


def _ceilings(timeline: CudaTimeline) -> tuple[dict[str, float], dict[str, float]]:
    """Return the rate of each ceiling per µs, and the SM clock in MHz at that rate."""
    rates = {}
    clocks = {}
    for name, (work, launch) in timeline.ceilings().items():
        launch()
        timeline.synchronize()
        l2: L2 = "warm" if name == "L2 reads" else "flush"
        turns = _turns(timeline, [TimedLaunch(launch)], 2 * LONGEST_BATCH, l2=l2)
        late = [sample for (sample,) in turns[LONGEST_BATCH:]]  # a ceiling is a rate that lasts
        rates[name] = work / float(np.median([sample.us for sample in late]))
        clocks[name] = float(np.median([sample.sm_mhz for sample in late]))
    return rates, clocks


def read_known_lengths(timeline: CudaTimeline) -> tuple[dict[float, float], float]:
    """Read kernels of 1 µs to 1 ms with the unbiased harness, in turn.

    In turn, a short disturbance affects a few samples of each length instead of most samples of
    one length.

    Returns by how many µs the readings exceed each known length, and the smallest step between two
    readings in µs.
    """
    _turns(
        timeline, [TimedLaunch(partial(timeline.spin, 1_000_000))], LONGEST_BATCH
    )  # wakes the clocks
    spins = [TimedLaunch(partial(timeline.spin, round(1000 * length_us))) for length_us in KNOWN_US]
    turns = _turns(timeline, spins, SAMPLES)
    times_us = [[sample.us for sample in samples] for samples in zip(*turns, strict=True)]
    steps = np.diff(np.unique(np.round(np.concatenate(times_us), 4)))
    tick_us = float(steps[steps > 1e-3].min()) if (steps > 1e-3).any() else 0.0
    overheads_us = {}
    for length_us, us in zip(KNOWN_US, times_us, strict=True):
        overheads_us[length_us] = float(np.median(us)) - length_us
    return overheads_us, tick_us


def _turns(
    timeline: CudaTimeline, launches: Sequence[TimedLaunch], count: int, l2: L2 = "flush"
) -> Turns:
    """Take `count` turns, rounded up to whole batches, by the unbiased harness.

    l2: "warm" for a warm L2 instead of its flush
    """
    harness = Harness().but(l2=l2)
    turns = Turns()
    while len(turns) < count:
        turns += take_batch(timeline, launches, LONGEST_BATCH, harness, first=len(turns))[0]
    return turns


def certificate(calibration: Calibration, card: Gpu, label: str) -> str:
    """Return the calibration as text for a terminal.

    label: where and when it was measured
    """
    allowed = f"{Calibration.TOLERANCE_US:g} µs or {100 * Calibration.TOLERANCE:.1f} %"
    verdict = f"within {allowed}" if calibration.within_tolerance else "OUT OF TOLERANCE"
    half_width = 50 * (calibration.aa_high - calibration.aa_low)  # in percent
    flush = "evicts" if calibration.flush_evicts else "DOES NOT EVICT"
    mhz = calibration.sm_mhz or card.sm_clock_mhz
    clock = f"{mhz:.0f} MHz" if calibration.sm_mhz else f"an unknown clock, at most {mhz:.0f} MHz"
    peak_tflops = card.fp32_peak_tflops * mhz / card.sm_clock_mhz
    fp32_percent = 100 * calibration.fp32_tflops / peak_tflops
    copy_percent = 100 * calibration.copy_gbs / card.memory_peak_gbs
    rows = {
        "event overhead": f"{calibration.offset_us:.2f} µs, removed from every result",
        "slope": f"{calibration.slope:.5f} µs read per true µs",
        "tick": f"{calibration.tick_us:.3f} µs",
        "known lengths": f"{verdict}; largest error {calibration.worst_us:+.3f} µs",
        "same twice": f"ratio {100 * calibration.aa_ratio:.2f} % ±{half_width:.2f} "
        "of a kernel to itself, interleaved",
        "launch": f"{calibration.launch_us:.1f} µs of host time",
        "L2 flush": f"{flush}: a read takes {calibration.warm_cycles:.0f} cycles from L2, "
        f"{calibration.cold_cycles:.0f} after it "
        f"({100 * calibration.still_cached:.1f} % still cached)",
        "FP32": f"{calibration.fp32_tflops:.1f} TFLOP/s at {clock}, {fp32_percent:.1f} % of theory",
        "copy": f"{calibration.copy_gbs:.0f} GB/s, {copy_percent:.1f} % of theory",
        "L2 reads": f"{calibration.l2_gbs:.0f} GB/s",
    }
    lines = [f"{label} · driver {card.driver}"]
    lines += [f"  {name:16}{text}" for name, text in rows.items()]
    return "\n".join(lines)
