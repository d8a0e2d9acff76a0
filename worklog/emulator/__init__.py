"""An interpreter of compiled PTX: runs kernels without a GPU, finds their races, counts their memory traffic.

It gives results, findings and counts, never a time. `launch` needs only PTX text; `EmulatedDevice` also compiles source
with NVRTC, imported at the first compilation.
"""

from worklog.emulator.device import (
    ARCH,
    FOLDER,
    INDEX,
    RESOURCES,
    EmulatedDevice,
    EmulatedFault,
    build,
    naming,
)
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
    WARP,
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
    "ARCH", "BUDGET", "FIRST_ADDRESS", "FOLDER", "INDEX", "RESOURCES", "SPACING", "WARP", "Access", "BadLaunch",
    "BudgetExceeded", "Counts", "EmulatedDevice", "EmulatedFault", "Finding", "Flow", "Kernel", "NotPredictable",
    "Pointer", "PtxError", "Result", "Site", "TensorMap", "TooLarge", "UnsupportedInstruction", "build", "caveats",
    "combined", "launch", "load", "naming", "plain_name", "require_memory", "tensor_map", "total",
]  # fmt: skip
