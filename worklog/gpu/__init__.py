"""The live GPU: CUDA through CuPy, device facts from NVML, and the clocks."""
