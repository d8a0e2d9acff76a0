"""The gate: is this kernel right? Nothing is timed before it has passed.

`Checker` holds one case of a problem (inputs and expected results, made once) and checks kernels on it; the result is a
`Verdict`. `SgemmChecker` adds the stages that only SGEMM can offer. Both know only the device interface of the kernel
room, so the same stages run on a GPU and on the emulator.
"""

from worklog.gate.after_timing import EVERY_LAUNCH, LaunchProbe, check_idle, check_plausible, fp32_roof
from worklog.gate.checker import SEED_BITS, Checker, check_cases, timed
from worklog.gate.edges import ALIGNMENT, OLD_C, edge_shapes, require_blocks
from worklog.gate.guarded_buffer import GUARD, OUTSIDE, OUTSIDE_WORKSPACE, Guarded, Memory
from worklog.gate.sgemm import SgemmChecker, compile_for, explained

__all__ = [
    "ALIGNMENT", "EVERY_LAUNCH", "GUARD", "OLD_C", "OUTSIDE", "OUTSIDE_WORKSPACE", "SEED_BITS", "Checker", "Guarded",
    "LaunchProbe", "Memory", "SgemmChecker", "check_cases", "check_idle", "check_plausible", "compile_for",
    "edge_shapes", "explained", "fp32_roof", "require_blocks", "timed",
]  # fmt: skip
