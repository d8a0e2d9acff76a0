"""The live GPU: CUDA through CuPy, device facts from NVML, and the clock lock."""

from worklog.gpu.clock_lock import clocks_as_requested
from worklog.gpu.device import Gpu, gpu, require_gpu, software, tool
from worklog.gpu.peaks import DATAPATHS, Peaks

__all__ = ["DATAPATHS", "Gpu", "Peaks", "clocks_as_requested", "gpu", "require_gpu", "software", "tool"]
