"""Stage: the same launch, again and again, gives the same bits.

A race need not show in one launch. On the dense integers of family E1 every order of additions gives the same result,
so two launches of a right kernel agree bit by bit, even one that adds with atomics; on real data they need not, and a
gate that asks it there refuses right kernels. The launches go to a second C, poisoned before each, and are compared
with the first on the device, where a comparison costs less than the launch.

Twenty launches, or as many as fit half a second and at least three: a race that needs more to show wants compute-
sanitizer's racecheck, or the emulator, which sees it in one.
"""

from __future__ import annotations

import time

import numpy as np

from worklog.gate.arena import Arena
from worklog.gate.benchmark import ExactQuestion
from worklog.gate.verdict import Stage, passed, refused
from worklog.kernel.kernel import Device, Program, Subject

NAME = "bit-equal when repeated"
MOST, LEAST, BUDGET_S = 20, 3, 0.5
BLOCK = 256

SOURCE = """\
__global__ void differ(long long n, const unsigned* a, const unsigned* b, int launch, float* found) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n && a[i] != b[i]) found[launch] = 1.0f;  // every thread that writes, writes the same
}
"""
PROGRAM = Program("differ.cu", SOURCE, "differ")


class Repeater:
    """Compares launches on one device. Raises CompileFailed."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._kernel = device.compile(PROGRAM)

    def ask(self, subject: Subject, arena: Arena, question: ExactQuestion) -> Stage:
        """Launch and compare. Raises LaunchFailed."""
        found = self.device.upload(np.zeros(MOST, np.float32))
        a, b, c = arena.buffers
        launches, started = 1, time.monotonic()
        with arena.holding(question.a, question.b):
            arena.launch(subject)
            while launches < MOST and (launches < LEAST or time.monotonic() - started < BUDGET_S):
                self.device.fill(arena.spare, float(arena.memory.sentinel()))
                subject.enqueue(arena.shape, 1.0, a, b, 0.0, arena.spare)
                blocks = -(-c.size // BLOCK)
                arguments = (np.int64(c.size), c, arena.spare, np.int32(launches), found)
                self.device.launch(self._kernel, (blocks, 1), BLOCK, arguments)
                self.device.synchronize()
                launches += 1
        differing = np.flatnonzero(self.device.download(found))
        if len(differing):
            which = ", ".join(str(i + 1) for i in differing[:5])
            return refused(
                NAME,
                f"of {launches} launches on the same integers, number {which} left other bits than the first: a race",
                len(differing),
            )
        return passed(NAME, f"{launches} launches on the same integers")
