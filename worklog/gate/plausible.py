"""Stages after timing: is this time possible, does a second clock agree, and is the GPU idle when the launch is over?

2MNK operations cannot take less than 2MNK over the peak of the datapath: SMs x FP32 lanes x 2 x the highest clock that
the driver states. A shorter time has lost work, or a part of the time: the events were on another stream than the
kernel, an algorithm with fewer operations was not declared, or the class is wrong. From 95 % of the peak on the stage
says so; above 102 %, which leaves room for a clock that is stated too low, it fails. Only unbiased measurements are
checked: a biased one is expected to be impossible.

The GPU's global timer is independent of events. It is read before the flush and after the end event, so it contains
flush and launch; without the launch it must be the same for kernel and baseline, which are flushed alike. Where it is
more for the kernel, the events have missed a part of its work. A host function is allowed a few microseconds more: if
it works on streams of its own and joins them, as it should, the GPU switches between queues before the start event and
after the end event too.

A host function can also leave work on a stream that it doesn't join. The end event doesn't wait for that work. So the
host waits for the harness's stream, then for the whole device: the second wait must return at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from worklog.gate.verdict import Stage
from worklog.problem.gemm import Shape, tflops

NAME = "plausible"
SECOND = "a second clock"
IDLE = "idle after the launch"
WARN, FAIL = 0.95, 1.02
MISSED_US, MISSED = 2.0, 0.02  # microseconds, and share of the launch, by which the clocks may differ
QUEUES_US = 3.0  # more of them, for a host function
WAIT_US = 20.0  # what a wait for an idle device takes at most, from Python


def judge(shape: Shape, microseconds: float, peak_tflops: float) -> Stage:
    """peak_tflops: of the datapath of the class, at the highest clock. A time of zero or less fails."""
    share = tflops(shape, microseconds) / peak_tflops if microseconds > 0 else float("inf")
    detail = f"{100 * share:.1f} % of the {peak_tflops:.1f} TFLOP/s that are possible"
    if share > FAIL:
        detail += ": work or time is missing"
    elif share > WARN:
        detail += ": suspiciously close"
    return Stage(NAME, share <= FAIL, share, FAIL, detail)


def second_clock(
    subject: Sequence[tuple[float, float]], baseline: Sequence[tuple[float, float]], *, own_streams: bool
) -> Stage:
    """subject, baseline: of each sample, microseconds by the events, and by the global timer of the launch and all that
    was enqueued with it. own_streams: whether the subject may have some, as a host function.
    """
    ours, theirs = (float(np.median([around - us for us, around in samples])) for samples in (subject, baseline))
    us = float(np.median([us for us, _ in subject]))
    limit = MISSED_US + own_streams * QUEUES_US + MISSED * us
    detail = f"{ours:.1f} µs beside the events, and {theirs:.1f} µs for the baseline"
    agree = abs(ours - theirs) <= limit
    return Stage(SECOND, agree, abs(ours - theirs), limit, detail if agree else f"{detail}: the events miss a part")


def idle(waits_us: Sequence[float], us: float) -> Stage:
    """waits_us: of some launches, microseconds from the end of the harness's stream to the end of all work on the GPU.
    us: of one launch. The shortest wait decides: the host may be interrupted, and unjoined work is there every time.
    """
    left, limit = min(waits_us), WAIT_US + MISSED * us
    detail = f"{left:.1f} µs after the launch the whole GPU was idle"
    if left > limit:
        detail += ": it leaves work on a stream that it doesn't join, and the events don't time that work"
    return Stage(IDLE, left <= limit, left, limit, detail)
