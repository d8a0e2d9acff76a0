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

from worklog.harness.batches import LONGEST_BATCH, Turns, take_batch
from worklog.harness.launch import Launch, Timed, timed
from worklog.runs import Calibration, Estimate, Gpu, KnownLengths, Samples, median, paired_ratio
from worklog.settings import TOLERANCE, TOLERANCE_US, Harness, allowed_us

if TYPE_CHECKING:
    from worklog.harness.cuda_timeline import CudaTimeline

KNOWN_US = (1.0, 2.0, 5.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
SAMPLES = 256  # single readings scatter much more than the tolerance, which is for their median
AA_FLOPS = 3e9  # tens of microseconds: long beside the event overhead, short enough for many pairs
AA_PAIRS = 128
LAUNCHES, LAUNCH_ROUNDS = 64, 9
CACHED = 0.95  # a read no slower than this quantile of the reads from L2 counts as cached
FFMA_STEPS = 2048
COPY_BYTES = 2**30
READ_ROUNDS = 64
BAR = 24  # characters for the largest allowed error


def calibrate(timeline: CudaTimeline) -> Calibration:
    """Measure the harness and the ceilings; takes about a second."""
    lengths = read_known_lengths(timeline)
    same = same_against_itself(timeline)
    fp32_tflops, sm_mhz = fp32_ceiling(timeline)
    return Calibration(
        offset_us=lengths.offset_us,
        offset_spread_us=max(lengths.over_us.values()) - min(lengths.over_us.values()),
        offset_by_length_us={f"{known:g}": round(over, 4) for known, over in lengths.over_us.items()},
        tick_us=lengths.tick_us,
        fp32_tflops=fp32_tflops,
        copy_gbs=copy_ceiling(timeline),
        l2_gbs=l2_ceiling(timeline),
        sm_mhz=None if np.isnan(sm_mhz) else sm_mhz,
        slope=lengths.slope,
        aa_ratio=same.value,
        aa_low=same.low,
        aa_high=same.high,
        launch_us=launch_cost_us(timeline),
        **read_after_flush(timeline),
    )


def read_known_lengths(timeline: CudaTimeline) -> KnownLengths:
    """Read kernels of 1 µs to 1 ms with the unbiased harness, in turn: a short disturbance then affects a few samples
    of each length instead of most samples of one.
    """
    _turns(timeline, [timed(partial(timeline.spin, 1_000_000))], LONGEST_BATCH)  # wakes the clocks
    turns = _turns(timeline, [timed(partial(timeline.spin, round(1000 * known))) for known in KNOWN_US], SAMPLES)
    taken = [[sample.us for sample in samples] for samples in zip(*turns, strict=True)]
    steps = np.diff(np.unique(np.round(np.concatenate(taken), 4)))
    tick = float(steps[steps > 1e-3].min()) if (steps > 1e-3).any() else 0.0
    return KnownLengths({known: float(np.median(us)) - known for us, known in zip(taken, KNOWN_US, strict=True)}, tick)


def _turns(timeline: CudaTimeline, launches: Sequence[Timed], count: int, **changed: str) -> Turns:
    """`count` turns, rounded up to whole batches, by the unbiased harness with the settings in `changed`."""
    harness, turns = Harness().but(**changed), Turns()
    while len(turns) < count:
        turns += take_batch(timeline, launches, LONGEST_BATCH, harness, first=len(turns))[0]
    return turns


def same_against_itself(timeline: CudaTimeline) -> Estimate:
    """The ratio of a kernel to itself, interleaved: its distance from 1 and its interval are every ratio's noise."""
    launch = partial(timeline.burn, AA_FLOPS)
    launch()
    timeline.synchronize()
    pairs = _turns(timeline, [timed(launch), timed(launch)], AA_PAIRS)
    ours, theirs, _ = Samples.of_turns(("", ""), [*zip(*pairs, strict=True)]).comparisons()
    return paired_ratio(ours, theirs)


def launch_cost_us(timeline: CudaTimeline) -> float:
    """Host microseconds per launch, while the queue is neither empty nor full."""
    costs = []
    for _ in range(LAUNCH_ROUNDS):
        timeline.synchronize()
        started = timeline.host_us()
        for _ in range(LAUNCHES):
            timeline.spin(1000)
        costs.append((timeline.host_us() - started) / LAUNCHES)
    timeline.synchronize()
    return median(costs).value


def read_after_flush(timeline: CudaTimeline) -> dict[str, float]:
    """Read a buffer, read it again (warm), flush, and read it once more (cold): the last three of Calibration."""
    timeline.probe_l2()
    warm = timeline.probe_l2()
    timeline.flush_l2()
    cold = timeline.probe_l2()
    still = float(np.mean(np.asarray(cold) <= np.quantile(warm, CACHED)))
    return {"warm_cycles": float(np.median(warm)), "cold_cycles": float(np.median(cold)), "still_cached": still}


def fp32_ceiling(timeline: CudaTimeline) -> tuple[float, float]:
    """TFLOP/s of multiply-adds alone, and the SM clock in MHz while they ran."""
    flops = FFMA_STEPS * timeline.burn_step_flops
    us, mhz = _steady(timeline, partial(timeline.burn, flops))
    return flops / us / 1e6, mhz


def copy_ceiling(timeline: CudaTimeline) -> float:
    """GB/s of a device-to-device copy, bytes read plus written."""
    import cupy  # here, so that a calibration can be read where CuPy isn't installed

    free, _ = cupy.cuda.runtime.memGetInfo()
    size = min(COPY_BYTES, free // 4)
    with timeline.device.stream:
        source, target = cupy.ones(size, cupy.uint8), cupy.empty(size, cupy.uint8)

    def launch() -> None:
        target.data.copy_from_device_async(source.data, size, timeline.device.stream)

    return float(2 * size / _steady(timeline, launch)[0] / 1e3)


def l2_ceiling(timeline: CudaTimeline) -> float:
    """GB/s of reads of a buffer that stays in L2."""
    import cupy

    size, blocks = timeline.gpu.l2_bytes // 4, 2 * timeline.gpu.multiprocessors
    with timeline.device.stream:
        buffer, out = cupy.ones(size // 4, cupy.float32), cupy.zeros(1, cupy.float32)
    arguments = buffer, np.uint64(size // 16), np.int32(READ_ROUNDS), out
    launch = partial(timeline.launch, "read", blocks, 1024, *arguments)
    return float(size * READ_ROUNDS / _steady(timeline, launch, l2="warm")[0] / 1e3)


def _steady(timeline: CudaTimeline, launch: Launch, **changed: str) -> tuple[float, float]:
    """Median (microseconds, SM MHz) of the second half of some samples: a ceiling is a rate that lasts."""
    launch()
    timeline.synchronize()
    late = [sample for (sample,) in _turns(timeline, [timed(launch)], 2 * LONGEST_BATCH, **changed)[LONGEST_BATCH:]]
    return float(np.median([s.us for s in late])), float(np.median([s.sm_mhz for s in late]))


def certificate(of: Calibration, on: Gpu, label: str) -> str:
    """The calibration as text for a terminal; `label` states where and when it was measured."""
    half, lengths = 50 * (of.aa_high - of.aa_low), of.lengths
    within = f"within {TOLERANCE_US:g} µs or {_percent(TOLERANCE)}" if lengths.within_tolerance else "OUT OF TOLERANCE"
    mhz = of.sm_mhz or on.sm_clock_mhz
    theory = on.fp32_peak_tflops * mhz / on.sm_clock_mhz
    clock = f"{mhz:.0f} MHz" if of.sm_mhz else f"an unknown clock, at most {mhz:.0f} MHz"
    rows = {
        "event overhead": f"{of.offset_us:.2f} µs, removed from every result",
        "slope": f"{of.slope:.5f} µs read per true µs",
        "tick": f"{of.tick_us:.3f} µs",
        "known lengths": f"{within}; largest error {lengths.worst_us:+.3f} µs",
        "same twice": f"ratio {100 * of.aa_ratio:.2f} % ±{half:.2f} of a kernel to itself, interleaved",
        "launch": f"{of.launch_us:.1f} µs of host time",
        "L2 flush": f"{'evicts' if of.flush_evicts else 'DOES NOT EVICT'}: a read takes {of.warm_cycles:.0f} "
        f"cycles from L2, {of.cold_cycles:.0f} after it ({_percent(of.still_cached)} still cached)",
        "FP32": f"{of.fp32_tflops:.1f} TFLOP/s at {clock}, {_percent(of.fp32_tflops / theory)} of theory",
        "copy": f"{of.copy_gbs:.0f} GB/s, {_percent(of.copy_gbs / on.memory_peak_gbs)} of theory",
        "L2 reads": f"{of.l2_gbs:.0f} GB/s",
    }
    lines = [f"{label} · driver {on.driver}", *(f"  {name:16}{words}" for name, words in rows.items()), ""]
    allowed = f"±{TOLERANCE_US:g} µs or ±{_percent(TOLERANCE)}"
    lines.append(f"{'true length':>14}  error without the event overhead, to {allowed}")
    for known, error in lengths.error_us.items():
        bar = "█" * min(BAR, round(BAR * abs(error) / allowed_us(known)))
        left, right = (bar, "") if error < 0 else ("", bar)
        lines.append(f"{known:>11g} µs  {left:>{BAR}}│{right:{BAR}} {error:+.3f} µs")
    return "\n".join(lines)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
