"""The calibration as a page to read: what this ruler promises on this machine, and the evidence for it."""

from __future__ import annotations

from worklog.gpu.device import Gpu
from worklog.harness.calibration import Calibration
from worklog.harness.selfcheck import TOLERANCE, TOLERANCE_US

BAR = 24  # characters for the largest error that is promised
TITLE = 16


def certificate(found: Calibration, on: Gpu, label: str) -> str:
    """Text for a terminal; `label` says where and when it was measured."""
    flush = found.flush_proof
    verdict = "evicts" if flush.evicts else "DOES NOT EVICT"
    half = 50 * (found.aa_high - found.aa_low)
    rows = [
        ("event pair", f"reads {found.offset_us:.2f} µs too long; taken off every result"),
        ("slope", f"{found.slope:.5f} µs read for each true one"),
        ("tick", f"{found.tick_us:.3f} µs"),
        ("known lengths", _promise(found)),
        ("same twice", f"ratio {100 * found.aa_ratio:.2f} % ±{half:.2f} of a kernel to itself, interleaved"),
        ("launch", f"{found.launch_us:.1f} µs of host time"),
        (
            "L2 flush",
            f"{verdict}: a read takes {flush.warm_cycles:.0f} cycles from L2, {flush.cold_cycles:.0f} after it "
            f"({_percent(flush.still_cached)} still cached)",
        ),
        ("FP32", f"{found.fp32_tflops:.1f} TFLOP/s at {found.sm_mhz:.0f} MHz, {_share(found, on)} of theory"),
        ("copy", f"{found.copy_gbs:.0f} GB/s, {_percent(found.copy_gbs / on.memory_peak_gbs)} of theory"),
        ("L2 reads", f"{found.l2_gbs:.0f} GB/s"),
    ]
    told = [f"  {name:{TITLE}}{text}" for name, text in rows]
    return "\n".join([f"{label} · driver {on.driver}", *told, "", *_chart(found)])


def _share(found: Calibration, on: Gpu) -> str:
    return _percent(found.fp32_tflops / (on.fp32_peak_tflops * found.sm_mhz / on.sm_clock_mhz))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _promise(found: Calibration) -> str:
    worst = max(found.error_us.values(), key=abs)
    kept = f"within {TOLERANCE_US:g} µs or {_percent(TOLERANCE)}" if not found.breaks_promise else "NOT AS PROMISED"
    return f"{kept}; largest error {worst:+.3f} µs"


def _chart(found: Calibration) -> list[str]:
    """Error by length, as bars from a line of no error; a full bar is the largest error that is promised."""
    lines = [f"{'true length':>14}  what is left of the error, to ±{TOLERANCE_US:g} µs or ±{_percent(TOLERANCE)}"]
    for known, error in found.error_us.items():
        promised = max(TOLERANCE_US, TOLERANCE * float(known))
        length = min(BAR, round(BAR * abs(error) / promised))
        bar = f"{'█' * length:>{BAR}}│{'':{BAR}}" if error < 0 else f"{'':{BAR}}│{'█' * length:{BAR}}"
        lines.append(f"{known:>11} µs  {bar} {error:+.3f} µs")
    return lines
