"""How long a check on the emulator takes, from short launches of the same kernel on this machine.

The emulator runs blocks in batches of LANES threads, one batch after the other, and its work in a batch grows linearly
with K. So a launch with one full batch, at two short K, stands for the others.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np

from worklog.emulator import EmulatedDevice
from worklog.emulator.launch import LANES
from worklog.errors import BadSetting, LaunchFailed
from worklog.kernel import Kernel
from worklog.problem import Shape, spoken
from worklog.runner.job import GATE_LAUNCHES

LIMIT_S = 60.0
QUICK = Shape.of(256)  # the work of this shape takes seconds, so that it isn't estimated
SHORT = 32  # K of the shorter launch


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
    """CPU seconds of one launch at a shape, by shorter ones. Raises LaunchFailed."""
    device = EmulatedDevice()
    subject, padded = kernel.load(device), kernel.domain.padded

    def launch_s(at: Shape) -> float:
        """On ones, the shorter of two: other processes may take their turns meanwhile."""
        sizes, seconds = ((at.m, at.k), (at.k, at.n), (at.m, at.n)), []
        a, b, c = (device.upload(np.ones(size, np.float32)) for size in sizes)
        for _ in range(2):
            started = time.process_time()
            subject.enqueue(at, 1.0, a, b, 0.0, c)
            seconds.append(time.process_time() - started)
        return min(seconds)

    side = SHORT  # up to the smallest shape whose threads fill a batch, or the shape's own M and N
    while True:
        m, n = min(side, shape.m), min(side, shape.n)
        small = padded(Shape(m, n, min(SHORT, shape.k)))
        if math.prod(kernel.blocks(small)) * kernel.thread_count >= LANES or (m, n) == (shape.m, shape.n):
            break
        side *= 2
    launch_s(padded(Shape.of(1)))  # the first launch of a kernel generates code
    at_small = launch_s(small)
    if kernel.domain.square:
        return at_small * shape.flops / small.flops
    longer = padded(replace(small, k=3 * small.k))
    per_k = max(0.0, launch_s(longer) - at_small) / (longer.k - small.k)
    batches = math.prod(kernel.blocks(shape)) / math.prod(kernel.blocks(small))
    return batches * (at_small + per_k * (shape.k - small.k))
