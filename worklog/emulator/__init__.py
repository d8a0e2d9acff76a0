"""A NumPy interpreter of compiled PTX: runs kernels without a GPU, finds their races, counts their memory traffic.

It gives results, findings and counts, never a time. `launch` needs only PTX text; `EmulatedDevice` also compiles source
with NVRTC, imported at the first compilation.
"""

from worklog.emulator.counts import Access, Counts
from worklog.emulator.device import EmulatedDevice, EmulatedFault
from worklog.emulator.findings import (
    BadLaunch,
    BudgetExceeded,
    Finding,
    NotPredictable,
    PtxError,
    TooLarge,
    UnsupportedInstruction,
)
from worklog.emulator.globalmem import Pointer
from worklog.emulator.launch import Result, launch, load
from worklog.emulator.predict import predict
from worklog.emulator.ptx import Kernel
from worklog.emulator.reader import parse
from worklog.emulator.tensor_map import TensorMap, tensor_map

__all__ = [
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
    "PtxError",
    "Result",
    "TensorMap",
    "TooLarge",
    "UnsupportedInstruction",
    "launch",
    "load",
    "parse",
    "predict",
    "tensor_map",
]
