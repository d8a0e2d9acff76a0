"""An interpreter of compiled PTX: runs kernels without a GPU, finds their races, counts their memory traffic.

It gives results, findings and counts, never a time. `launch` needs only PTX text; worklog.kernel.emulated also compiles
CUDA C++.
"""

from worklog.emulator.flow import Flow
from worklog.emulator.launching import BUDGET, Result, launch
from worklog.emulator.memory import (
    FIRST_ADDRESS,
    SPACING,
    Pointer,
    TensorMap,
    require_memory,
    tensor_map,
)
from worklog.emulator.program import Site
from worklog.emulator.ptx import Kernel, PtxError, UnsupportedInstruction, plain_name
from worklog.emulator.reader import load
from worklog.emulator.reports import (
    Access,
    BadLaunch,
    BudgetExceeded,
    Counts,
    Finding,
    NotPredictable,
    TooLarge,
    caveats,
    combined,
    total,
)

__all__ = [
    "BUDGET", "FIRST_ADDRESS", "SPACING", "Access", "BadLaunch", "BudgetExceeded", "Counts", "Finding", "Flow",
    "Kernel", "NotPredictable", "Pointer", "PtxError", "Result", "Site", "TensorMap", "TooLarge",
    "UnsupportedInstruction", "caveats", "combined", "launch", "load", "plain_name", "require_memory", "tensor_map",
    "total",
]  # fmt: skip
