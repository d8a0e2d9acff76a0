"""The gate: is this kernel right? Nothing is timed before it has passed.

`Checker` holds one case of a problem (inputs and expected results, made once) and checks kernels on
it; the result is a `Verdict`. `SgemmChecker` adds the stages that only SGEMM can offer. Both know
only the device interface of the kernel room, so the same stages run on a GPU and on the emulator.
"""

from worklog.gate.advice import explained
from worklog.gate.checker import (
    EVERY_LAUNCH,
    SEED_BITS,
    Checker,
    LaunchProbe,
    check_cases,
    check_idle,
    check_plausible,
    fp32_roof,
    timed,
)
from worklog.gate.edges import ALIGNMENT, OLD_C, edge_shapes, require_blocks
from worklog.gate.elements import TimedOperands, beyond_product, timed_operands
from worklog.gate.guarded_buffer import GUARD, OUTSIDE, OUTSIDE_WORKSPACE, Guarded, Memory
from worklog.gate.precision import BY_NORM
from worklog.gate.sgemm import SgemmChecker, SmallShapes

__all__ = [
    "ALIGNMENT", "BY_NORM", "EVERY_LAUNCH", "GUARD", "OLD_C", "OUTSIDE", "OUTSIDE_WORKSPACE", "SEED_BITS", "Checker", "Guarded",
    "LaunchProbe", "Memory", "SgemmChecker", "SmallShapes", "TimedOperands", "beyond_product", "check_cases", "check_idle", "check_plausible",
    "edge_shapes", "explained", "fp32_roof", "require_blocks", "timed", "timed_operands",
]  # fmt: skip
