"""What computes C: kernels, the ladder, compilation, resources and machine code.

Further faces of the room: by_name, disk_cache, emulated, guards, inspection, ladder, ladder.best,
ladder.rungs, launchable, listing, nvrtc, portable, prediction, resources, solution, tensor_map,
tensor_products and trial.
"""

from worklog.kernel.device import (
    COMPILE_OPTIONS,
    UNKNOWN_KERNELS,
    Block,
    Buffer,
    Device,
    Loaded,
    Program,
    Runnable,
)
from worklog.kernel.host_function import LABEL, HostFunction, loan_of, signature_of
from worklog.kernel.kernel import Dispatcher, HostKernel, Kernel, Sides, SourceOptions
from worklog.kernel.ladder import LADDER, RUNGS, rung
from worklog.kernel.launch import EXAMPLE_GRID, UNREAD_DOMAIN, launch_text
from worklog.kernel.operands import Operand
from worklog.kernel.resources import Compiled
from worklog.kernel.signature import WIDE, is_computed
from worklog.kernel.source import evaluate, source_folder, split_list

__all__ = [
    "COMPILE_OPTIONS",
    "EXAMPLE_GRID",
    "LABEL",
    "LADDER",
    "RUNGS",
    "UNKNOWN_KERNELS",
    "UNREAD_DOMAIN",
    "WIDE",
    "Block",
    "Buffer",
    "Compiled",
    "Device",
    "Dispatcher",
    "HostFunction",
    "HostKernel",
    "Kernel",
    "Loaded",
    "Operand",
    "Program",
    "Runnable",
    "Sides",
    "SourceOptions",
    "evaluate",
    "is_computed",
    "launch_text",
    "loan_of",
    "rung",
    "signature_of",
    "source_folder",
    "split_list",
]
