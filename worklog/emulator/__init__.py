"""A NumPy interpreter of compiled PTX: runs real kernels without a GPU, finds their races, counts their memory traffic.

It gives right or wrong, findings and counts, never a time. `launch` needs PTX text and nothing else;
`EmulatedDevice` compiles source too, and imports NVRTC when it first does.
"""

from worklog.emulator.counts import Access, Counts
from worklog.emulator.device import EmulatedDevice, EmulatedFault
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
from worklog.emulator.predict import Prediction, predict
from worklog.emulator.ptx import Kernel
from worklog.emulator.reader import parse

__all__ = [
    "KINDS",
    "Access",
    "BadLaunch",
    "BudgetExceeded",
    "Counts",
    "EmulatedDevice",
    "EmulatedFault",
    "Finding",
    "Kernel",
    "NotPredictable",
    "Pointer",
    "Prediction",
    "PtxError",
    "Result",
    "TooLarge",
    "UnsupportedInstruction",
    "launch",
    "load",
    "parse",
    "predict",
]
