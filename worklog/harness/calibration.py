"""The ruler measured by itself, once a run: what it reads on what is known, and this GPU's real ceilings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from worklog.harness import selfcheck

if TYPE_CHECKING:
    from worklog.harness.cuda_timeline import CudaTimeline


@dataclass(frozen=True)
class Calibration:
    """What the ruler found about itself. Microseconds, TFLOP/s, GB/s.

    offset_us: an event pair reads this much too long. offset_spread_us: largest disagreement of the offset between
    the known lengths. slope: microseconds read for each true one beyond the offset. tick_us: smallest step between
    two readings. fp32_tflops: multiply-adds alone. copy_gbs: device-to-device copy, bytes read plus written. l2_gbs:
    reads of a buffer that stays in L2. sm_mhz: clock during the FP32 ceiling. aa_ratio and its 95 % interval: a kernel
    against itself. launch_us: host time of a launch. warm_cycles, cold_cycles, still_cached: single reads from L2,
    after a flush, and the share of the latter that were as quick as the former.
    """

    offset_us: float
    offset_spread_us: float
    offset_by_length_us: dict[str, float]
    tick_us: float
    fp32_tflops: float
    copy_gbs: float
    l2_gbs: float
    sm_mhz: float
    slope: float
    aa_ratio: float
    aa_low: float
    aa_high: float
    launch_us: float
    warm_cycles: float
    cold_cycles: float
    still_cached: float

    def as_dict(self) -> dict[str, Any]:
        """For a run file."""
        return asdict(self)

    @property
    def remarks(self) -> list[str]:
        """What a result must say about its ruler: a promise that it does not keep on this machine."""
        said = []
        if self.breaks_promise:
            worst = max(self.error_us.values(), key=abs)
            said.append(f"ruler: kernels of known length are read up to {worst:+.2f} µs wrong")
        if not self.flush_proof.evicts:
            said.append(f"l2: after a flush {self.still_cached:.0%} of the reads are as quick as from L2")
        return said

    @property
    def flush_proof(self) -> selfcheck.FlushProof:
        """Whether the flush evicts."""
        return selfcheck.FlushProof(self.warm_cycles, self.cold_cycles, self.still_cached)

    @property
    def error_us(self) -> dict[str, float]:
        """What is left of the error at each known length once the offset is taken off."""
        return dict(zip(self.offset_by_length_us, self._lengths().error_us, strict=True))

    @property
    def breaks_promise(self) -> bool:
        """Whether a known length is read more than 0.1 µs and more than 0.2 % wrong."""
        return not self._lengths().within_promise

    def _lengths(self) -> selfcheck.KnownLengths:
        known = tuple(map(float, self.offset_by_length_us))
        read = tuple(length + over for length, over in zip(known, self.offset_by_length_us.values(), strict=True))
        return selfcheck.KnownLengths(known, read, self.tick_us)


def calibrate(timeline: CudaTimeline) -> Calibration:
    """Measure what is known and the ceilings; about a second."""
    from worklog.harness import ceilings  # here, so that a calibration can be read where CuPy is not installed

    lengths = selfcheck.read_known_lengths(timeline)
    same = selfcheck.same_against_itself(timeline)
    flush = selfcheck.prove_flush(timeline)
    fp32, sm_mhz = ceilings.fp32_ceiling(timeline)
    return Calibration(
        offset_us=lengths.offset_us,
        offset_spread_us=max(lengths.by_length_us) - min(lengths.by_length_us),
        offset_by_length_us={
            f"{known:g}": round(over, 4) for known, over in zip(lengths.known_us, lengths.by_length_us, strict=True)
        },
        tick_us=lengths.tick_us,
        fp32_tflops=fp32,
        copy_gbs=ceilings.copy_ceiling(timeline),
        l2_gbs=ceilings.l2_ceiling(timeline),
        sm_mhz=sm_mhz,
        slope=lengths.slope,
        aa_ratio=same.value,
        aa_low=same.low,
        aa_high=same.high,
        launch_us=selfcheck.launch_cost_us(timeline),
        warm_cycles=flush.warm_cycles,
        cold_cycles=flush.cold_cycles,
        still_cached=flush.still_cached,
    )
