"""Stages after timing: every timed launch was right, the time is possible, the GPU is idle.

A kernel can be right while it is checked and do something else while it is timed: copy an earlier result, leave out a
tile of every second launch, or work on another stream and finish late. So before each timed launch A and B get new
contents, a hash of a random key and the index, and C a sentinel. After the end event, C is projected on a vector of
random signs, and C x is compared with alpha A (B x) in FP64. The rms over the rows of each launch has a limit too,
because a limit on the largest error alone leaves room for a whole format (TF32 below fp32-emulated, BF16 below TF32).

The check evicts some of the kernel's code from the instruction caches. A kernel of about 10 µs reads a few percent
longer, as does the baseline beside it (tests/gpu/test_gpu_every_launch.py prints by how much).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from worklog.gate.precision import UNIT_ROUNDOFF, projected_limits
from worklog.kernel import COMPILE_OPTIONS, Buffer, Device, Program
from worklog.problem import Shape, tflops
from worklog.runs import Stage, failed

EVERY_LAUNCH, PLAUSIBLE, IDLE = "every timed launch", "plausible", "idle after the launch"
WARN, FAIL = 0.95, 1.02  # of the peak; the second leaves room for a clock that is stated too low
WAIT_US, WAIT = 50.0, 0.02  # more than after an empty kernel: microseconds, and share of the launch
SIGNIFICANT_BITS = {"tf32": 11, "f16": 11, "bf16": 8, "s8": 8, "u8": 8, "e4m3": 4, "e5m2": 3, "f64": 53}
DATAPATHS = {"f16": "fp16", "s8": "fp8", "u8": "fp8", "e4m3": "fp8", "e5m2": "fp8", "f64": "fp64_tensor"}
BLOCK = 256
ROWS_PER_BLOCK = BLOCK // 32  # one warp per row
MOST_BLOCKS = 2048  # of the kernel that fills: each loops over the matrices
_SOURCE = Path(__file__).with_name("every_launch.cu")
OPTIONS = (*COMPILE_OPTIONS, f"-DUNIT_ROUNDOFF={UNIT_ROUNDOFF!r}", f"-DBLOCK={BLOCK}")
ENTRIES = ("refill", "observe", "project", "compare", "fold")
PROGRAMS = tuple(Program(_SOURCE.name, _SOURCE.read_text(encoding="utf-8"), entry, OPTIONS) for entry in ENTRIES)


class LaunchProbe:
    """Checks each launch of one kernel in one timed loop, which computes C = alpha A B on buffers that it may refill:
    `prepare`, the launch, `observe`, `check`. Nothing here waits for the device before `stage`.

    kernels: PROGRAMS, compiled for the device. rng: for contents that a seed repeats; timed loops have none.
    """

    def __init__(
        self,
        device: Device,
        kernels: tuple[Any, ...],
        shape: Shape,
        claimed: str = "fp32",
        alpha: float = 1.0,
        rng: np.random.Generator | None = None,
    ) -> None:
        self._bits = secrets.randbits if rng is None else lambda bits: int.from_bytes(rng.bytes(bits // 8))
        self.device, self.shape, self.alpha = device, shape, alpha
        self._refill, self._observe, self._project, self._compare, self._fold = kernels
        self._sizes = np.int32(shape.m), np.int32(shape.n), np.int32(shape.k)
        self.limit, *self.rms_limits = projected_limits(claimed, shape)
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
        self._key = np.uint64(self._bits(64))
        i64, shape = np.int64, self.shape
        in_a, in_b, in_c = i64(shape.m * shape.k), i64(shape.k * shape.n), i64(shape.m * shape.n)
        sentinel = np.float32(-3e30 * (1 + self._bits(16) / 2**16))
        blocks = min(MOST_BLOCKS, -(-int(max(in_a, in_b, in_c)) // BLOCK))
        self._launch(self._refill, blocks, self._key, in_a, a, in_b, b, in_c, c, sentinel)

    def observe(self, c: Buffer) -> None:
        """Draw signs, and enqueue the projection of C on them, directly after the launch."""
        self._signs, (m, n, _) = np.uint64(self._bits(64)), self._sizes
        self._launch(self._observe, -(-self.shape.m // ROWS_PER_BLOCK), self._signs, m, n, c, self._cx, self._found)

    def check(self, a: Buffer, b: Buffer) -> None:
        """Enqueue the comparison of the projection with the expected one."""
        m, n, k = self._sizes
        vectors = self._bx, self._gauges
        project = self._key, self._signs, n, k, b, *vectors, self._found
        self._launch(self._project, -(-self.shape.k // ROWS_PER_BLOCK), *project)
        last = np.float32(self.alpha), np.float32(self.limit), np.uint32(self.launches), self._found
        self._launch(self._compare, -(-self.shape.m // ROWS_PER_BLOCK), self._key, m, k, a, self._cx, *vectors, *last)
        self.device.launch(self._fold, (1, 1), 1, (m, self._found, self._record))

    def stage(self) -> Stage:
        """Wait; the verdict on all launches since the start. Raises LaunchFailed."""
        record = self.device.download(self._record)  # every_launch.cu describes it
        error = float(record[0])
        off, changed, compared, last = (int(word) for word in record.view(np.uint32)[1:5])
        if compared != self.launches * self.shape.m % 2**32:
            return failed(EVERY_LAUNCH, f"only {compared} rows of {self.launches} launches were compared")
        if changed:
            return failed(EVERY_LAUNCH, f"it changed {changed} elements of its inputs", changed)
        if off:
            where = f"first in launch {2**32 - 1 - last} of {self.launches}, on inputs new to the kernel"
            return failed(EVERY_LAUNCH, f"{off} rows off by more than rounding, {where}", off)
        for mean, most in zip(record[6:10].view(np.float64), self.rms_limits, strict=True):
            rms = float(np.sqrt(mean))
            if not rms <= most:
                detail = f"the rows of one launch of {self.launches} have an rms of {rms:.4g} u·D (up to {most:.4g})"
                return Stage(EVERY_LAUNCH, False, rms, most, f"{detail}; {self.claimed} was claimed")
        detail = f"{self.launches} launches, each on new inputs: rows within {error:.3g} u·D"
        return Stage(EVERY_LAUNCH, True, error, self.limit, f"{detail} (up to {self.limit:.4g})")


def fp32_roof(operands: Iterable[str] | None, peaks: Mapping[str, float]) -> tuple[float, str]:
    """TFLOP/s of FP32 results that FP32 lanes and tensor cores reach together, and by what.

    operands: PTX types of the tensor cores' operands in the kernel's code; None: any of them. peaks: as
    worklog.gpu.clocks.Peaks. An FP32 number has 24 bits, so it is the sum of at least n = 24 // bits numbers of a type,
    which needs at least n (n + 1) / 2 products: two numbers of 11 bits, the second one with a sign, hold 23 bits or
    more, and the product of the small ones is below FP32's rounding. A type that isn't known needs one product.
    """
    fp32, best = peaks["fp32"], (peaks["fp32"], "FP32 lanes")
    for type_ in SIGNIFICANT_BITS if operands is None else operands:
        parts = max(24 // SIGNIFICANT_BITS.get(type_, 24), 1)
        products = parts * (parts + 1) // 2
        rate = peaks.get(DATAPATHS.get(type_, type_), max(peaks.values())) / products
        of = f"{products} products of {type_}" if products > 1 else f"one product of {type_}"
        best = max(best, (fp32 + rate, f"{of} on tensor cores, and FP32 lanes"))
    return best


def check_plausible(shape: Shape, microseconds: float, peak_tflops: float, by: str = "FP32 lanes") -> Stage:
    """Whether the datapaths that the kernel's code uses can do 2MNK operations in this time. A shorter time has lost
    work or a part of the time: the events were on another stream, an algorithm with fewer operations wasn't declared,
    or the class is wrong. Biased measurements are expected to be impossible and aren't checked.

    peak_tflops, by: of fp32_roof, at the highest clock. A time of zero or less fails.
    """
    share = tflops(shape, microseconds) / peak_tflops if microseconds > 0 else float("inf")
    detail = f"{100 * share:.1f} % of the {peak_tflops:.1f} TFLOP/s that are possible by {by}"
    if share > FAIL:
        detail += ": work or time is missing"
    elif share > WARN:
        detail += ": suspiciously close"
    return Stage(PLAUSIBLE, share <= FAIL, share, FAIL, detail)


def check_idle(waits_us: Sequence[float], us: float) -> Stage:
    """waits_us: of some launches, microseconds from the end of the harness's stream to the end of all work on the GPU,
    beyond what an empty kernel needs. us: of one launch. The median decides: unjoined work is there every time. An
    interrupt of the host in the wait makes it longer, and one between the launch and the wait makes it shorter.
    """
    left, limit = float(np.median(waits_us)), WAIT_US + WAIT * us
    detail = f"{left:.1f} µs after the launch the whole GPU was idle"
    if left > limit:
        detail += ": it leaves work on a stream that it doesn't join, and the events don't time that work"
    return Stage(IDLE, left <= limit, left, limit, detail)
