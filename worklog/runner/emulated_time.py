"""How long a check on the emulator takes, from short launches of the same kernel on this machine.

The emulator runs blocks in batches of LANES threads, one batch after the other, and its work in a batch grows linearly
with K. So a launch with one full batch, at a short K, stands for the others.
"""

from __future__ import annotations

import math
import time

import numpy as np

from worklog.emulator import EmulatedDevice
from worklog.emulator.launch import LANES
from worklog.errors import BadSetting, LaunchFailed
from worklog.kernel import Kernel
from worklog.problem import Shape, spoken
from worklog.runner.job import GATE_LAUNCHES

LIMIT_S = 60.0
QUICK = Shape.of(256)  # the work of this shape takes seconds, so that it isn't estimated
SHORT = 256  # K of the shorter launch


def require_time(kernel: Kernel, shape: Shape, limit_s: float) -> None:
    """Raise BadSetting, with the estimate and what to do, if the check at a shape would take longer than limit_s."""
    if math.isinf(limit_s) or (limit_s >= LIMIT_S and shape.flops <= QUICK.flops):
        return
    try:
        seconds = GATE_LAUNCHES * _launch_s(kernel, shape)
    except LaunchFailed:  # which the gate reports
        return
    if seconds > limit_s:
        raise BadSetting(
            f"the check of {kernel.name} at {shape} takes about {spoken(seconds)} on the emulator, more than "
            f"{spoken(limit_s)}: take a smaller size, or allow it with --limit {math.ceil(1.5 * seconds)}"
        )


def _launch_s(kernel: Kernel, shape: Shape) -> float:
    """CPU seconds of one launch at a shape, by a shorter one. Raises LaunchFailed."""
    device, side = EmulatedDevice(), 32
    while True:  # the smallest shape whose threads fill a batch, or the shape's own M and N
        m, n = min(side, shape.m), min(side, shape.n)
        small = kernel.domain.padded(Shape(m, n, min(SHORT, shape.k)))
        if math.prod(kernel.blocks(small)) * kernel.thread_count >= LANES or (m, n) == (shape.m, shape.n):
            break
        side *= 2
    subject, seconds = kernel.load(device), list[float]()
    for at in (kernel.domain.padded(Shape.of(1)), small, small):
        a, b, c = (device.upload(np.ones(size, np.float32)) for size in ((at.m, at.k), (at.k, at.n), (at.m, at.n)))
        started = time.process_time()
        subject.enqueue(at, 1.0, a, b, 0.0, c)
        seconds.append(time.process_time() - started)
    # The first launch generates code. Of the others the shorter one counts: other processes may take their turns.
    return min(seconds[1:]) * shape.flops / small.flops
