"""Stage: is this time possible at all?

2MNK operations cannot take less than 2MNK over the peak of the datapath: SMs, times FP32 lanes, times two, times the
highest clock that the driver states. A reading below that has lost work, or part of its time, whatever else looks
right: the events were on another stream than the kernel, an algorithm with fewer operations was not declared, or the
class is wrong. From 95 % of the peak on the stage says so; above 102 %, which leaves room for a clock that is stated
too low, it refuses. It costs nothing, and it is asked only of readings taken honestly: a lie is expected to be
impossible.
"""

from __future__ import annotations

from worklog.gate.verdict import Stage
from worklog.gemm import Shape, tflops

NAME = "plausible"
WARN, REFUSE = 0.95, 1.02


def judge(shape: Shape, microseconds: float, peak_tflops: float) -> Stage:
    """peak_tflops: of the datapath that the class allows, at the highest clock. A time of zero or less is refused."""
    share = tflops(shape, microseconds) / peak_tflops if microseconds > 0 else float("inf")
    detail = f"{100 * share:.1f} % of the {peak_tflops:.1f} TFLOP/s that are possible"
    if share > REFUSE:
        detail += ": work or time is missing"
    elif share > WARN:
        detail += ": suspiciously close"
    return Stage(NAME, share <= REFUSE, share, REFUSE, detail)
