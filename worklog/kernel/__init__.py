"""What computes C: the kernel record, the ladder, compilation with NVRTC, resources and machine code."""

from worklog.kernel.device import (
    COMPILE_OPTIONS,
    TOO_MANY_BLOCKS,
    UNKNOWN_KERNELS,
    Block,
    Buffer,
    Device,
    Loaded,
    Program,
    Runnable,
)
from worklog.kernel.host_function import LABEL, HostFunction, words_of
from worklog.kernel.kernel import TEMPLATE, Kernel
from worklog.kernel.ladder import DEFAULTS, RUNGS, kernel_of, rung, source_changed
from worklog.kernel.resources import (
    LIMITS,
    MAX_THREADS,
    WARP,
    Occupancy,
    block_traffic_bytes,
    occupancy,
)
from worklog.kernel.rungs import FP32, LADDER, TENSOR
from worklog.kernel.signature import SIZES, WIDE, launch_text
from worklog.kernel.solution import Solution, Solver, find_problem
from worklog.kernel.source import kernels_dir, source_folder

__all__ = [
    "COMPILE_OPTIONS", "DEFAULTS", "FP32", "LABEL", "LADDER", "LIMITS", "MAX_THREADS", "RUNGS", "SIZES", "TEMPLATE",
    "TENSOR", "TOO_MANY_BLOCKS", "UNKNOWN_KERNELS", "WARP", "WIDE", "Block", "Buffer", "Device", "HostFunction",
    "Kernel", "Loaded", "Occupancy", "Program", "Runnable", "Solution", "Solver", "block_traffic_bytes", "find_problem",
    "kernel_of", "kernels_dir", "launch_text", "occupancy", "rung", "source_changed", "source_folder", "words_of",
]  # fmt: skip
