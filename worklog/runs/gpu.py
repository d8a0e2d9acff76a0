"""One GPU: as its driver describes it, and what the harness measured about itself on it, once per run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from worklog.runs.documents import Count, Positive
from worklog.settings import allowed_us

# FP32 lanes of one multiprocessor by compute capability (CUDA C++ Programming Guide, arithmetic instructions
# throughput).
FP32_LANES = {(6, 0): 64, (6, 1): 128, (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
FP32_LANES_SINCE_8_6 = 128
STILL_CACHED = 0.02  # share of reads after a flush that works and are as quick as from L2: noise


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


@dataclass(frozen=True)
class KnownLengths:
    """By how much readings exceed each known length, and the smallest step between two readings. Microseconds."""

    over_us: dict[float, float]
    tick_us: float = 0.0

    @property
    def offset_us(self) -> float:
        """The event overhead: the median over the lengths."""
        return float(np.median([*self.over_us.values()]))

    @property
    def slope(self) -> float:
        """Microseconds read per true microsecond beyond the overhead. Errors are assumed to grow with the length."""
        known, over = np.array([*self.over_us.items()]).T
        return float(np.polyfit(known, known + over, 1, w=[1 / allowed_us(length) for length in known])[0])

    @property
    def error_us(self) -> dict[float, float]:
        """The error at each length after the overhead is subtracted."""
        return {known: over - self.offset_us for known, over in self.over_us.items()}

    @property
    def worst_us(self) -> float:
        """The largest error, with its sign."""
        return max(self.error_us.values(), key=abs)

    @property
    def within_tolerance(self) -> bool:
        """Whether the error at every length is allowed."""
        return all(abs(error) <= allowed_us(known) for known, error in self.error_us.items())


@dataclass(frozen=True)
class Calibration:
    """What the harness measured about itself. Microseconds, TFLOP/s, GB/s.

    offset_us: event overhead; its spread is between the known lengths. slope: microseconds read per true one beyond it.
    tick_us: smallest step between two readings. fp32_tflops: multiply-adds alone. copy_gbs: device-to-device copy,
    bytes read plus written. l2_gbs: reads of a buffer that stays in L2. sm_mhz: clock during the FP32 ceiling.
    aa_ratio and its 95 % interval: a kernel against itself. launch_us: host time per launch. warm_cycles, cold_cycles:
    of a single read from L2, and after a flush; still_cached: share of the latter that were as quick as from L2.
    """

    offset_us: float
    offset_spread_us: float
    offset_by_length_us: dict[str, float]
    tick_us: float
    fp32_tflops: Positive
    copy_gbs: Positive
    l2_gbs: Positive
    sm_mhz: float | None
    slope: float
    aa_ratio: float
    aa_low: float
    aa_high: float
    launch_us: float
    warm_cycles: float
    cold_cycles: float
    still_cached: float

    @property
    def lengths(self) -> KnownLengths:
        """The readings of known lengths."""
        return KnownLengths({float(known): over for known, over in self.offset_by_length_us.items()}, self.tick_us)

    @property
    def flush_evicts(self) -> bool:
        """Whether reads after a flush are slower, and almost none as quick as from L2."""
        return self.still_cached <= STILL_CACHED and self.cold_cycles > self.warm_cycles

    @property
    def remarks(self) -> list[str]:
        """What a result must state about the harness: tolerances that it exceeds on this machine."""
        remarks = []
        if not self.lengths.within_tolerance:
            remarks.append(f"harness: kernels of known length are read up to {self.lengths.worst_us:+.2f} µs wrong")
        if not self.flush_evicts:
            remarks.append(f"l2: after a flush {self.still_cached:.0%} of the reads are as quick as from L2")
        return remarks
