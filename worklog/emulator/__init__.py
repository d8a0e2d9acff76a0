"""A NumPy interpreter of compiled PTX: runs real kernels without a GPU, finds their races, counts their memory traffic.

It gives right or wrong, findings and counts, never a time. Nothing here imports NVRTC or needs it: PTX text is enough.
"""

from worklog.emulator.counts import Access, Counts
from worklog.emulator.errors import (
    BadLaunch,
    BudgetExceeded,
    NotPredictable,
    PtxError,
    TooLarge,
    UnsupportedInstruction,
)
from worklog.emulator.findings import KINDS, Finding
from worklog.emulator.launch import Pointer, Result, launch, load
from worklog.emulator.ptx import Kernel, parse

__all__ = [
    "KINDS",
    "Access",
    "BadLaunch",
    "BudgetExceeded",
    "Counts",
    "Finding",
    "Kernel",
    "NotPredictable",
    "Pointer",
    "PtxError",
    "Result",
    "TooLarge",
    "UnsupportedInstruction",
    "launch",
    "load",
    "parse",
]
