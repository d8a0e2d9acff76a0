"""How long the emulator takes, and what each of its checks adds: `python -m tests.emulator.benchmark`.

Every rung at 128 and 256, then warptiled at 512. Processor seconds, the minimum of three runs, and the ratio of each
mode to the bare run.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from tests.emulator.helpers import rung_kernel
from worklog.emulator import Kernel, launch
from worklog.kernel import Kernel as Record
from worklog.kernel.ladder import LADDER
from worklog.problem.gemm import Shape, random_inputs

BARE = {"races": False, "count": False, "exact": False}
MODES = {
    "bare": BARE,
    "exact": {**BARE, "exact": True},
    "counts": {**BARE, "count": True},
    "races": {**BARE, "races": True},
    "all": {"races": True, "count": True, "exact": True},
}
SIZES, LARGE = (128, 256), ("warptiled", 512)


def seconds(record: Record, kernel: Kernel, shape: Shape, mode: dict[str, bool], runs: int = 3) -> float:
    """Least processor time of a launch on random data, generated code ready."""
    rng = np.random.default_rng(0)
    a, b = random_inputs(shape, rng)
    c = np.zeros((shape.m, shape.n), np.float32)
    arguments = [shape.m, shape.n, shape.k, 1.5, a, b, 0.5, c]
    taken = []
    for _ in range(runs + 1):
        start = time.process_time()
        launch(kernel, record.blocks(shape), record.threads, arguments, **mode)  # type: ignore[arg-type]
        taken.append(time.process_time() - start)
    return min(taken[1:])


def row(record: Record, kernel: Kernel, size: int) -> float:
    """Print one line; the seconds with everything on."""
    shape = record.domain.padded(Shape.of(size))
    bare, *others = (seconds(record, kernel, shape, mode) for mode in MODES.values())
    ratios = "".join(f"{other / bare:>9.2f}" for other in others)
    print(f"{record.name:<12} {shape!s:>14} {bare:>9.3f} {ratios} {others[-1]:>9.3f}", flush=True)
    return others[-1]


def main() -> None:
    """Print the table."""
    head = "".join(f"{name:>9}" for name in list(MODES)[1:])
    print(f"{'':<39}times the bare run:\n{'rung':<12} {'size':>14} {'bare, s':>9} {head} {'all, s':>9}")
    kernels = {r.name: rung_kernel(r.name)[1] for r in LADDER}
    total = sum(row(r, kernels[r.name], size) for r in LADDER for size in SIZES)
    print(f"every rung at {' and '.join(map(str, SIZES))}, everything on: {total:.1f} s of one core")
    name, size = LARGE
    row(next(r for r in LADDER if r.name == name), kernels[name], size)


if __name__ == "__main__":
    sys.exit(main())
