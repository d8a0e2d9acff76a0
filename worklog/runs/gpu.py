"""One GPU as its driver describes it."""

from __future__ import annotations

from dataclasses import dataclass

from worklog.runs.documents import Count, Positive

# FP32 lanes of one multiprocessor by compute capability (CUDA C++ Programming Guide, arithmetic instructions
# throughput).
FP32_LANES = {(6, 0): 64, (6, 1): 128, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
FP32_LANES_SINCE_8_6 = 128


@dataclass(frozen=True)
class Gpu:
    """One CUDA device as its driver describes it. Clocks in MHz (the highest the driver states), memory in bytes."""

    name: str
    compute_capability: tuple[int, int]
    multiprocessors: Count
    l2_bytes: Count
    memory_bytes: Count
    sm_clock_mhz: Positive
    memory_clock_mhz: Positive
    memory_bus_bits: Count
    driver: str

    @property
    def arch(self) -> str:
        """As in sm_90."""
        return "sm_" + "".join(map(str, self.compute_capability))

    @property
    def fp32_peak_tflops(self) -> float:
        """SMs x FP32 lanes x 2 (a multiply and an add) x clock."""
        lanes = FP32_LANES.get(self.compute_capability, FP32_LANES_SINCE_8_6)
        return self.multiprocessors * lanes * 2 * self.sm_clock_mhz / 1e6

    @property
    def memory_peak_gbs(self) -> float:
        """Memory clock x 2 (double data rate) x bus width, in GB/s."""
        return self.memory_clock_mhz * 2 * self.memory_bus_bits / 8 / 1e3
