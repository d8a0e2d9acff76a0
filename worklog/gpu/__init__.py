"""The live GPU: CUDA through CuPy, device facts from NVML, and the clock lock."""

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

__all__ = [
    "THROTTLING", "ClockWatch", "bus_id", "gpu", "gpu_reason", "reason_names", "require_gpu", "software", "tool",
    "visible_to_a_child",
]  # fmt: skip
