"""What computes C: the kernel record, the ladder, compilation with NVRTC, resources and machine code."""

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
from worklog.kernel.disk_cache import cache_folder, cached_files
from worklog.kernel.folder import sources_in, text_of_header
from worklog.kernel.host_function import LABEL, HostFunction, words_of
from worklog.kernel.kernel import TEMPLATE, Kernel
from worklog.kernel.ladder import (
    DEFAULTS,
    OPTIONS,
    RUNGS,
    SECTOR,
    LadderCounts,
    MemoryCounts,
    at_revision,
    block_traffic_bytes,
    busiest,
    counters,
    kernel_of,
    memory_counts,
    moved_from_l2,
    new_rung,
    product_of_rung,
    rung,
    source_changed,
)
from worklog.kernel.launch import (
    EXAMPLE_GRID,
    UNREAD_DOMAIN,
    Launch,
    launch_text,
)
from worklog.kernel.listing import Listed, kernels_in, own_kernels
from worklog.kernel.nvrtc import compile_cuda, newer_than_the_driver, nvidia_library, nvrtc_version
from worklog.kernel.product import NO_SUM
from worklog.kernel.resources import Compiled, MainLoop, loop_of, no_sass
from worklog.kernel.rungs import FP32, LADDER, TENSOR
from worklog.kernel.signature import (
    SIZES,
    WIDE,
    is_computed,
    size_of,
)
from worklog.kernel.solution import Passed, Solution, Solver, find_problem, starters
from worklog.kernel.source import evaluate, kernels_dir, parts, source_folder

__all__ = [
    "COMPILE_OPTIONS",
    "DEFAULTS",
    "EXAMPLE_GRID",
    "FP32",
    "LABEL",
    "LADDER",
    "NO_SUM",
    "OPTIONS",
    "RUNGS",
    "SECTOR",
    "SIZES",
    "TEMPLATE",
    "TENSOR",
    "UNKNOWN_KERNELS",
    "UNREAD_DOMAIN",
    "WIDE",
    "Block",
    "Buffer",
    "Compiled",
    "Device",
    "HostFunction",
    "Kernel",
    "LadderCounts",
    "Launch",
    "Listed",
    "Loaded",
    "MainLoop",
    "MemoryCounts",
    "Passed",
    "Program",
    "Runnable",
    "Solution",
    "Solver",
    "at_revision",
    "block_traffic_bytes",
    "busiest",
    "cache_folder",
    "cached_files",
    "compile_cuda",
    "counters",
    "evaluate",
    "find_problem",
    "is_computed",
    "kernel_of",
    "kernels_dir",
    "kernels_in",
    "launch_text",
    "loop_of",
    "memory_counts",
    "moved_from_l2",
    "new_rung",
    "newer_than_the_driver",
    "no_sass",
    "nvidia_library",
    "nvrtc_version",
    "own_kernels",
    "parts",
    "product_of_rung",
    "rung",
    "size_of",
    "source_changed",
    "source_folder",
    "sources_in",
    "starters",
    "text_of_header",
    "words_of",
]  # fmt: skip
