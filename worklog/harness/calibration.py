"""The harness measured by itself, once per run: kernels of known length, the same kernel twice, the L2 flush, the cost
of a launch, and this GPU's real ceilings.

A kernel that spins until the GPU's global timer has advanced by a known time is a kernel of known length. What the
event pair reads beyond that, the event overhead, is the same at every length, so it can be subtracted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from worklog.harness.batches import LONGEST_BATCH, Timed, Turns, take_batch
from worklog.runs import (
    TOLERANCE,
    TOLERANCE_US,
    Calibration,
    Gpu,
    Samples,
    allowed_us,
    median,
    paired_ratio,
)
from worklog.settings import Harness

if TYPE_CHECKING:
    from worklog.gpu.timeline import CudaTimeline

KNOWN_US = (1.0, 2.0, 5.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
SAMPLES = 256  # single readings scatter much more than the tolerance, which is for their median
AA_FLOPS = 3e9  # tens of microseconds: long beside the event overhead, short enough for many pairs
AA_PAIRS = 128
LAUNCHES = 64
LAUNCH_ROUNDS = 9
CACHED = 0.95  # a read no slower than this quantile of the reads from L2 counts as cached


def calibrate(timeline: CudaTimeline) -> Calibration:
    """Measure the harness and the ceilings; takes about a second."""
    over_us, tick_us = read_known_lengths(timeline)
    known, over = np.array([*over_us.items()]).T
    # Errors are assumed to grow with the length.
    slope = float(
        np.polyfit(known, known + over, 1, w=[1 / allowed_us(length) for length in known])[0]
    )
    same = Timed(partial(timeline.burn, AA_FLOPS))
    same.launch()
    timeline.synchronize()
    pairs = _turns(timeline, [same, same], AA_PAIRS)
    ours, theirs, _ = Samples.of_turns(("", ""), [*zip(*pairs, strict=True)]).comparisons()
    to_itself = paired_ratio(ours, theirs)
    launch_us = []
    for _ in range(LAUNCH_ROUNDS):  # while the queue is neither empty nor full
        timeline.synchronize()
        started = timeline.host_us()
        for _ in range(LAUNCHES):
            timeline.spin(1000)
        launch_us.append((timeline.host_us() - started) / LAUNCHES)
    timeline.synchronize()
    timeline.probe_l2()
    warm = timeline.probe_l2()
    timeline.flush_l2()
    cold = timeline.probe_l2()
    rates = {}
    clocks = {}
    for name, (work, launch) in timeline.ceilings().items():
        launch()
        timeline.synchronize()
        turns = _turns(
            timeline,
            [Timed(launch)],
            2 * LONGEST_BATCH,
            l2="warm" if name == "L2 reads" else "flush",
        )
        late = [sample for (sample,) in turns[LONGEST_BATCH:]]  # a ceiling is a rate that lasts
        rates[name] = work / float(np.median([sample.us for sample in late]))
        clocks[name] = float(np.median([sample.sm_mhz for sample in late]))
    return Calibration(
        offset_us=float(np.median(over)),
        offset_by_length_us={f"{known:g}": round(over, 4) for known, over in over_us.items()},
        tick_us=tick_us,
        fp32_tflops=rates["FP32"] / 1e6,
        copy_gbs=rates["copy"] / 1e3,
        l2_gbs=rates["L2 reads"] / 1e3,
        sm_mhz=None if np.isnan(clocks["FP32"]) else clocks["FP32"],
        slope=slope,
        aa_ratio=to_itself.value,
        aa_low=to_itself.low,
        aa_high=to_itself.high,
        launch_us=median(launch_us).value,
        warm_cycles=float(np.median(warm)),
        cold_cycles=float(np.median(cold)),
        still_cached=float(np.mean(np.asarray(cold) <= np.quantile(warm, CACHED))),
    )


def read_known_lengths(timeline: CudaTimeline) -> tuple[dict[float, float], float]:
    """By how much readings exceed each known length, and the smallest step between two readings, in microseconds. Reads
    kernels of 1 µs to 1 ms with the unbiased harness, in turn: a short disturbance then affects a few samples of each
    length instead of most samples of one.
    """
    _turns(timeline, [Timed(partial(timeline.spin, 1_000_000))], LONGEST_BATCH)  # wakes the clocks
    turns = _turns(
        timeline,
        [Timed(partial(timeline.spin, round(1000 * known))) for known in KNOWN_US],
        SAMPLES,
    )
    taken = [[sample.us for sample in samples] for samples in zip(*turns, strict=True)]
    steps = np.diff(np.unique(np.round(np.concatenate(taken), 4)))
    tick = float(steps[steps > 1e-3].min()) if (steps > 1e-3).any() else 0.0
    return {
        known: float(np.median(us)) - known for us, known in zip(taken, KNOWN_US, strict=True)
    }, tick


def _turns(
    timeline: CudaTimeline, launches: Sequence[Timed], count: int, l2: str = "flush"
) -> Turns:
    """`count` turns, rounded up to whole batches, by the unbiased harness, or with a warm L2."""
    harness = Harness().but(l2=l2)
    turns = Turns()
    while len(turns) < count:
        turns += take_batch(timeline, launches, LONGEST_BATCH, harness, first=len(turns))[0]
    return turns


def certificate(of: Calibration, on: Gpu, label: str) -> str:
    """The calibration as text for a terminal; `label` states where and when it was measured."""
    half = 50 * (of.aa_high - of.aa_low)
    allowed = f"{TOLERANCE_US:g} µs or {100 * TOLERANCE:.1f} %"
    mhz = of.sm_mhz or on.sm_clock_mhz
    theory = on.fp32_peak_tflops * mhz / on.sm_clock_mhz
    clock = f"{mhz:.0f} MHz" if of.sm_mhz else f"an unknown clock, at most {mhz:.0f} MHz"
    rows = {
        "event overhead": f"{of.offset_us:.2f} µs, removed from every result",
        "slope": f"{of.slope:.5f} µs read per true µs",
        "tick": f"{of.tick_us:.3f} µs",
        "known lengths": f"{f'within {allowed}' if of.within_tolerance else 'OUT OF TOLERANCE'}; "
        f"largest error {of.worst_us:+.3f} µs",
        "same twice": f"ratio {100 * of.aa_ratio:.2f} % ±{half:.2f} of a kernel to itself, interleaved",
        "launch": f"{of.launch_us:.1f} µs of host time",
        "L2 flush": f"{'evicts' if of.flush_evicts else 'DOES NOT EVICT'}: a read takes {of.warm_cycles:.0f} "
        f"cycles from L2, {of.cold_cycles:.0f} after it ({100 * of.still_cached:.1f} % still cached)",
        "FP32": f"{of.fp32_tflops:.1f} TFLOP/s at {clock}, {100 * of.fp32_tflops / theory:.1f} % of theory",
        "copy": f"{of.copy_gbs:.0f} GB/s, {100 * of.copy_gbs / on.memory_peak_gbs:.1f} % of theory",
        "L2 reads": f"{of.l2_gbs:.0f} GB/s",
    }
    return "\n".join(
        [f"{label} · driver {on.driver}", *(f"  {name:16}{words}" for name, words in rows.items())]
    )
