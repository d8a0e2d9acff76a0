"""What computes C: the kernel record, the ladder, compilation with NVRTC, resources and machine code."""

from worklog.kernel.device import (
    COMPILE_OPTIONS,
    TOO_MANY_BLOCKS,
    UNKNOWN_KERNELS,
    Block,
    Buffer,
    Device,
    Program,
    Runnable,
)
from worklog.kernel.host_function import LABEL, HostFunction, words_of
from worklog.kernel.kernel import TEMPLATE, Kernel
from worklog.kernel.ladder import DEFAULTS, RUNGS, instances, kernel_of, rung
from worklog.kernel.resources import (
    LIMITS,
    MAX_THREADS,
    WARP,
    Occupancy,
    block_traffic_bytes,
    occupancy,
)
from worklog.kernel.rungs import FP32, LADDER, TENSOR
from worklog.kernel.source import kernels_dir, source_folder

__all__ = [
    "COMPILE_OPTIONS", "DEFAULTS", "FP32", "LABEL", "LADDER", "LIMITS", "MAX_THREADS", "RUNGS", "TEMPLATE", "TENSOR",
    "TOO_MANY_BLOCKS", "UNKNOWN_KERNELS", "WARP", "Block", "Buffer", "Device", "HostFunction", "Kernel", "Occupancy",
    "Program", "Runnable", "block_traffic_bytes", "instances", "kernel_of",
    "kernels_dir", "occupancy", "rung", "source_folder", "words_of",
]  # fmt: skip
