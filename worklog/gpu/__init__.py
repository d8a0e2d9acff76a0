"""The live GPU: CUDA through CuPy, device facts from NVML, and the clock lock."""

from worklog.gpu.clock_lock import clocks_as_requested, switchable_clocks
from worklog.gpu.device import (
    THROTTLING,
    ClockWatch,
    bus_id,
    gpu,
    gpu_reason,
    reason_names,
    require_gpu,
    software,
    tool,
    visible_to_a_child,
)
from worklog.gpu.peaks import DATAPATHS, Peaks

__all__ = [
    "DATAPATHS", "THROTTLING", "ClockWatch", "Peaks", "bus_id", "clocks_as_requested", "gpu", "gpu_reason",
    "reason_names", "require_gpu", "software", "switchable_clocks", "tool", "visible_to_a_child",
]  # fmt: skip
