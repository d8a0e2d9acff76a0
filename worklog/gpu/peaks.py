"""Theoretical peaks of a GPU by datapath: SMs x operations per SM and clock x clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from worklog.errors import BadSetting
from worklog.gpu.clock_lock import locked_clocks
from worklog.gpu.device import gpu, require_gpu

if TYPE_CHECKING:
    from worklog.runs.measurement import Work
    from worklog.runs.records import Gpu

# Dense multiply-adds per SM and clock of tensor cores, by compute capability; `peaks` names the sources.
TENSOR = {
    (7, 0): {"fp16": 512},
    (7, 5): {"fp16": 512},
    (8, 0): {"tf32": 512, "fp16": 1024, "bf16": 1024, "fp64_tensor": 64},
    (8, 6): {"tf32": 256, "fp16": 512, "bf16": 512},
    (8, 9): {"tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024},
    (9, 0): {"tf32": 1024, "fp16": 2048, "bf16": 2048, "fp8": 4096, "fp64_tensor": 128},
    (10, 0): {"tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "fp64_tensor": 64},
    (12, 0): {"tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024},
}
FP64_LANES = {(7, 0): 32, (7, 5): 2, (8, 0): 32, (8, 6): 2, (8, 9): 2, (9, 0): 64, (10, 0): 64, (12, 0): 2}
DATAPATHS = ("fp32", "fp64", "tf32", "fp16", "bf16", "fp8", "fp64_tensor")


class Peaks(dict[str, float]):
    """TFLOP/s by datapath at a clock, and gbs, the memory's GB/s. fp32 and fp64 are CUDA cores, the others tensor
    cores without sparsity. As a context manager it locks the clocks and gives the peaks at the clock that is held.
    """

    def __init__(self, card: Gpu, sm_mhz: float) -> None:
        lanes = {"fp32": 1e6 * card.fp32_peak_tflops / 2 / card.multiprocessors / card.sm_clock_mhz}
        if card.compute_capability in FP64_LANES:
            lanes["fp64"] = FP64_LANES[card.compute_capability]
        lanes |= TENSOR.get(card.compute_capability, {})
        rate = 2 * card.multiprocessors * sm_mhz / 1e6
        super().__init__({name: lanes[name] * rate for name in DATAPATHS if name in lanes})
        self.card, self.sm_mhz, self.gbs = card, sm_mhz, card.memory_peak_gbs

    def of(self, datapath: str) -> float:
        """TFLOP/s of a datapath. Raises BadSetting where the GPU has none of that name, or its rate isn't known."""
        if datapath not in self:
            raise BadSetting(f"datapath = {datapath}: {self.card.name} has {', '.join(self)}")
        return self[datapath]

    def impossible(self, us: float, work: Work) -> list[str]:
        """What can't be done in `us` microseconds: a rate above each peak, if those of tensor cores are known, and
        bytes beyond what L2 may hold, read or not yet written back, above the memory's peak.
        """
        name, beyond_peak = max(self, key=self.__getitem__), list[tuple[str, str]]()
        if self.card.compute_capability in TENSOR and (rate := (work.flops or 0) / us / 1e6) > self[name]:
            beyond_peak.append((f"{rate:.4g} TFLOP/s", f"the highest peak, {self[name]:.4g} (dense {name})"))
        beyond = [max(0, (moved or 0) - self.card.l2_bytes) for moved in (work.bytes_read, work.bytes_written)]
        if (gbs := sum(beyond) / us / 1e3) > self.gbs:
            beyond_peak.append((f"{gbs:.4g} GB/s beyond what L2 holds", f"the memory's peak, {self.gbs:.4g}"))
        return [f"rate: {rate} is above {peak}: the time or the stated work is wrong" for rate, peak in beyond_peak]

    def __enter__(self) -> Peaks:
        self._lock = locked_clocks()
        held, _ = self._lock.__enter__()
        return Peaks(self.card, float(held.partition(":")[2]))

    def __exit__(self, *raised: Any) -> None:
        self._lock.__exit__(*raised)


def peaks(sm_mhz: float | None = None) -> Peaks:
    """The peaks of this GPU in TFLOP/s by datapath (fp32, fp64; tf32, fp16, bf16, fp8, fp64_tensor), at `sm_mhz`
    (default: the highest SM clock that the driver states). Raises NoGpu; as a context manager, which locks the clocks,
    ClocksNotLocked.

    All rates are dense, without sparsity: SMs x clock x twice the table's number, which is that of NVIDIA's published
    rates at their clock (tests/harness/test_device.py has both). sm_70, sm_80: A100 white paper (2020). sm_75: Turing
    white paper (WP-09183-001, 2018). sm_86: A40 data sheet, GA102 white paper (V2.0, 2021). sm_89: Ada white paper
    (V2.1, 2023), appendix A. sm_90: H100 white paper (2022) and data sheet, SXM5. sm_100: HGX B200 data sheet (2025),
    which prints twice tf32, fp16, bf16 and fp8, with sparsity. sm_120: RTX Blackwell white paper (2025). fp64 of sm_75,
    sm_86, sm_89 and sm_120: CUDA C++ Programming Guide, "arithmetic instructions".
    NVIDIA takes tensor cores' rates at a lower clock than the highest one of sm_90 and sm_100; these are at `sm_mhz`.
    GeForce GPUs of sm_75, sm_86, sm_89 and sm_120 reach half of tf32, and of fp16, bf16 and fp8 where they accumulate
    in FP32.

    Example: `worklog.peaks()["bf16"]`, or `with worklog.peaks() as held: print(held["fp32"], held.gbs)`.
    """
    require_gpu()
    card = gpu()
    return Peaks(card, card.sm_clock_mhz if sm_mhz is None else sm_mhz)
