"""The gate: is this kernel right? Nothing is timed before it has passed.

`Checker` holds the problems for one shape (inputs and expected results, made once) and checks kernels on them; the
result is a `Verdict`. It knows only the device interface of the kernel room, so the same stages run on a GPU and on the
emulator.
"""

from worklog.gate.after_timing import EVERY_LAUNCH, LaunchProbe
from worklog.gate.checker import SEED_BITS, Checker
from worklog.gate.guarded_buffer import GUARD, OUTSIDE, OUTSIDE_WORKSPACE, Guarded, Memory
from worklog.gate.shapes import edge_shapes
from worklog.gate.verdict import failed, passed, timed

__all__ = [
    "EVERY_LAUNCH", "GUARD", "OUTSIDE", "OUTSIDE_WORKSPACE", "SEED_BITS", "Checker", "Guarded",
    "LaunchProbe", "Memory", "edge_shapes", "failed", "passed", "timed",
]  # fmt: skip
