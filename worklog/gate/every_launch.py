"""Stage: every timed launch computed the right result.

A kernel that is right while it is checked can do something else while it is timed: copy the result that it computed for
these inputs before, leave out a tile of every second launch, work on another stream and finish late. So before each
timed launch A and B get new contents and C a sentinel, and after the end event C is projected on a random vector of
signs, drawn after the launch; all in the stream, with nothing between the two events.

The contents are a hash of a random key and the index, so the check recomputes them instead of trusting A and B, and
finds out whether the kernel changed them. The projection C x is compared with alpha A (B x) in FP64, in units of u
times the 2-norm of the row's products (worklog.gate.precision). A row with one wrong element exceeds the limit for FP32
unless that element is off by less than about 1e-5 of the row's norm. The rms over the rows of each launch has a limit
too: a largest error alone would leave room for a whole format (TF32 below fp32-emulated, BF16 below TF32).

What it costs: nothing runs between the two events, but the check evicts some of the kernel's code from the instruction
caches. A kernel of about ten microseconds reads a few percent longer, never shorter, and so does the baseline beside it
(tests/gpu/test_gpu_every_launch.py prints by how much; notebook 09 shows the same kernel with and without). From 1024
on it is below a percent.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from worklog.gate.precision import (
    PROJECTED_OUTLIER,
    RMS_OF_CLASS,
    ROUNDING_OF_CLASS,
    UNIT_ROUNDOFF,
    emulated_limit,
    max_limit,
    rms_limit,
)
from worklog.gate.verdict import Stage, failed
from worklog.kernel.device import COMPILE_OPTIONS, Buffer, Device, Program
from worklog.problem.gemm import Shape

NAME = "every timed launch"
BLOCK = 256
ROWS_PER_BLOCK = BLOCK // 32  # one warp per row
MOST_BLOCKS = 2048  # of the kernel that fills: each loops over the matrices
_SOURCE = Path(__file__).with_suffix(".cu")
OPTIONS = (*COMPILE_OPTIONS, f"-DUNIT_ROUNDOFF={UNIT_ROUNDOFF!r}", f"-DBLOCK={BLOCK}")
ENTRIES = ("refill", "observe", "project", "compare", "fold")
PROGRAMS = tuple(Program(_SOURCE.name, _SOURCE.read_text(encoding="utf-8"), entry, OPTIONS) for entry in ENTRIES)


def limit(claimed: str, k: int) -> float:
    """Largest error of a row's projection that a kernel of the class may have, in u·D of the row."""
    if claimed == "fp32":
        return max_limit(k)
    return PROJECTED_OUTLIER * RMS_OF_CLASS.get(claimed, emulated_limit(k))


def rms_limits(claimed: str, shape: Shape) -> tuple[float, float]:
    """Largest rms of the rows' errors in one launch, in u·D, and the largest without what a shrinking factor explains:
    the class's own limits, with room for chance where there are few rows or few products.
    """
    room = 1 + 4 / float(np.sqrt(min(shape.m, shape.k)))
    own = {"fp32": rms_limit(shape.k), **RMS_OF_CLASS}.get(claimed, emulated_limit(shape.k))
    return own * room, ROUNDING_OF_CLASS.get(claimed, own) * room


@dataclass(frozen=True)
class Found:
    """What the checks of a loop found. error: the largest, in u·D. off: rows beyond the limit. changed: elements of A
    and B that the kernel changed. compared: rows. first: number of the first launch with a row off. rms: the largest of
    a launch's rows, and the largest without what a shrinking factor explains.
    """

    error: float
    off: int
    changed: int
    compared: int
    first: int
    rms: tuple[float, float]


class LaunchProbe:
    """Checks each launch of one kernel in one timed loop, which computes C = alpha A B on buffers that it may refill:
    `prepare`, the launch, `observe`, `check`. Nothing here waits for the device before `stage`.

    kernels: PROGRAMS, compiled for the device.
    """

    def __init__(
        self, device: Device, kernels: tuple[Any, ...], shape: Shape, claimed: str = "fp32", alpha: float = 1.0
    ) -> None:
        self.device, self.shape, self.alpha = device, shape, alpha
        self._refill, self._observe, self._project, self._compare, self._fold = kernels
        self.limit, self.rms_limits = limit(claimed, shape.k), rms_limits(claimed, shape)
        self.claimed, self.launches = claimed, 0
        self._key, self._signs = np.uint64(0), np.uint64(0)
        self._found, self._record = (device.upload(np.zeros(12, np.float32)) for _ in range(2))
        self._cx = device.upload(np.zeros(2 * shape.m, np.float32))  # doubles
        self._bx, self._gauges = (device.upload(np.zeros(2 * shape.k, np.float32)) for _ in range(2))

    def _launch(self, kernel: Any, blocks: int, *arguments: Any) -> None:
        self.device.launch(kernel, (blocks, 1), BLOCK, arguments)

    def prepare(self, a: Buffer, b: Buffer, c: Buffer) -> None:
        """Enqueue new contents for A and B, and a sentinel for C."""
        self.launches += 1
        self._key = np.uint64(secrets.randbits(64))
        i64, shape = np.int64, self.shape
        in_a, in_b, in_c = i64(shape.m * shape.k), i64(shape.k * shape.n), i64(shape.m * shape.n)
        sentinel = np.float32(-3e30 * (1 + secrets.randbits(20) / 2**20))
        blocks = min(MOST_BLOCKS, -(-int(max(in_a, in_b, in_c)) // BLOCK))
        self._launch(self._refill, blocks, self._key, in_a, a, in_b, b, in_c, c, sentinel)

    def observe(self, c: Buffer) -> None:
        """Draw signs, and enqueue the projection of C on them, directly after the launch."""
        self._signs = np.uint64(secrets.randbits(64))
        m, n = np.int32(self.shape.m), np.int32(self.shape.n)
        self._launch(self._observe, -(-self.shape.m // ROWS_PER_BLOCK), self._signs, m, n, c, self._cx, self._found)

    def check(self, a: Buffer, b: Buffer) -> None:
        """Enqueue the comparison of the projection with the expected one."""
        m, n, k = (np.int32(size) for size in (self.shape.m, self.shape.n, self.shape.k))
        vectors = self._bx, self._gauges
        project = self._key, self._signs, n, k, b, *vectors, self._found
        self._launch(self._project, -(-self.shape.k // ROWS_PER_BLOCK), *project)
        limits = np.float32(self.alpha), np.float32(self.limit), np.uint32(self.launches), self._found
        self._launch(self._compare, -(-self.shape.m // ROWS_PER_BLOCK), self._key, m, k, a, self._cx, *vectors, *limits)
        self.device.launch(self._fold, (1, 1), 1, (m, self._found, self._record))

    def found(self) -> Found:
        """Wait, and read. Raises LaunchFailed."""
        record = self.device.download(self._record)
        _, off, changed, compared, first = (int(word) for word in record.view(np.uint32)[:5])
        whole, left = (float(np.sqrt(mean)) for mean in record[6:10].view(np.float64))
        return Found(float(record[0]), off, changed, compared, 2**32 - 1 - first, (whole, left))

    def stage(self) -> Stage:
        """The verdict on all launches since the start. Raises LaunchFailed."""
        found = self.found()
        if found.compared != self.launches * self.shape.m % 2**32:
            return failed(NAME, f"only {found.compared} rows of {self.launches} launches were compared")
        if found.changed:
            return failed(NAME, f"it changed {found.changed} elements of its inputs", found.changed)
        if found.off:
            where = f"first in launch {found.first} of {self.launches}, on inputs new to the kernel"
            return failed(NAME, f"{found.off} rows off by more than rounding, {where}", found.off)
        for rms, most in zip(found.rms, self.rms_limits, strict=True):
            if not rms <= most:
                detail = f"the rows of one launch of {self.launches} have an rms of {rms:.4g} u·D (up to {most:.4g})"
                return Stage(NAME, False, rms, most, f"{detail}; {self.claimed} was claimed")
        detail = f"{self.launches} launches, each on new inputs: rows within {found.error:.3g} u·D"
        return Stage(NAME, True, found.error, self.limit, f"{detail} (up to {self.limit:.4g})")
