"""Predicts how long a check takes on the emulator: some blocks are run and timed first."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from worklog import gate
from worklog.errors import WorklogError
from worklog.kernel import Block, Kernel, Runnable
from worklog.kernel.emulated import EmulatedBuffer, EmulatedDevice
from worklog.problem import Shape

# The work of a check, in launches at its shape: 20 and 21 were measured of `naive`, 41 of `best`.
LAUNCHES = 20
LEAST_S = 0.05  # of the blocks that are timed
MOST_S = 2.0  # after which no more blocks are timed
SHORT = 2**24  # multiply-adds of a launch that takes no second
SECONDS = 10.0  # what a user waits for without being told


class _BlockTimer(EmulatedDevice):
    """Runs the first blocks of each launch, and adds up what all blocks would take."""

    def __init__(self, budget: int) -> None:
        super().__init__(budget=budget)
        self.seconds = 0.0

    def launch(
        self, kernel: Any, grid: tuple[int, ...], block: Block, arguments: Sequence[Any]
    ) -> None:
        """Time one block and some, which leaves out what a launch takes without them."""
        blocks = math.prod(grid)
        first_s = math.inf
        count = 1
        started = time.thread_time()
        while True:
            self.only_blocks = range(count)
            before = time.thread_time()
            super().launch(kernel, grid, block, arguments)
            took_s = time.thread_time() - before
            first_s = min(first_s, took_s)
            enough = took_s - first_s > LEAST_S or time.thread_time() - started > MOST_S
            if count > 1 and (enough or count == blocks):
                break
            if blocks == 1:
                self.seconds += took_s
                return
            count = min(blocks, 4 * count)
        self.seconds += first_s + (took_s - first_s) / (count - 1) * blocks


def work(shape: Shape) -> int:
    """Return the multiply-adds of a product."""
    return shape.m * shape.n * shape.k


def launch_seconds(kernel: Kernel, shape: Shape, budget: int) -> float | None:
    """Return the predicted CPU seconds of one emulated launch at a shape.

    None if its blocks don't run alone.

    budget: as for worklog.emulator.launch
    """
    device = _BlockTimer(budget)
    sizes = shape.m * shape.k, shape.k * shape.n, shape.m * shape.n
    try:
        a, b, c = (EmulatedBuffer(np.zeros(size, np.float32)) for size in sizes)
        subject: Runnable = kernel.load(device)
        subject.enqueue(shape, 1.0, a, b, 0.0, c)
    except (WorklogError, MemoryError, ValueError):  # the check says what is wrong
        return None
    return device.seconds


def warning(kernel: Kernel, shape: Shape, budget: int) -> str:
    """Return a line: how long a check takes at a shape, and what takes seconds.

    Empty if it does itself.
    """
    if work(shape) <= SHORT:
        return ""
    launch_s = launch_seconds(kernel, shape, budget)
    seconds = LAUNCHES * (launch_s or 0.0)
    if seconds <= SECONDS:
        return ""
    default = gate.edge_shapes(kernel.domain)[-1]
    text = f"the check at {shape} on the emulator takes about {_duration(seconds)} on this machine"
    side = math.floor(min(shape.m, shape.n, shape.k) * (SECONDS / seconds) ** (1 / 3))
    smaller = kernel.domain.padded(Shape.of(max(1, side)))
    words = f"without --size it is checked at {default}, in seconds"
    if work(default) < work(smaller) < work(shape):
        words += f"; --size {smaller} takes about {_duration(SECONDS)}"
    return f"{text}: {words}\n"


def _duration(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s"
