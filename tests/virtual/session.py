"""Sessions on the virtual GPU, with known true times.

The real path from the gate to a measurement, and the harness alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.virtual.device import VirtualAlgorithm, VirtualBaseline, VirtualCublasLt
from tests.virtual.gpu import GPU, L2_BYTES, MHZ, REFERENCE_MHZ, VirtualGpu
from tests.virtual.machine import Machine
from worklog.harness import Harness, LoopResult, TimedLaunch, time_in_turn
from worklog.kernel import Kernel
from worklog.problem import Shape
from worklog.runner.job import Job, product_job
from worklog.runner.products import loop_of
from worklog.runner.session import Session
from worklog.runner.worker import measure_job
from worklog.runs import CUBLAS, Calibration, Measurement
from worklog.runs.statistics import Estimate, event_overhead_us, summarize

LANES = 128
PEAK_TFLOPS = 2 * LANES * MHZ / 1e6  # 5120 FLOP a microsecond; the machine's products reach 4096
QUICK = Harness().but(least_samples=6, most_samples=64, precision=0.05)
OVERHEAD = {"offset_us": VirtualGpu.offset_us, "tick_us": 0.0, "slope": 1.0, "launch_us": 4.0}
ROOFS = {"fp32_tflops": PEAK_TFLOPS, "copy_gbs": 16.0, "l2_gbs": 32.0, "sm_mhz": MHZ}
SAME = {"aa_ratio": 1.0, "aa_low": 1.0, "aa_high": 1.0}
FLUSH = {"warm_cycles": 250.0, "cold_cycles": 650.0, "still_cached": 0.0}
CALIBRATION = Calibration(
    offset_by_length_us={"10": VirtualGpu.offset_us}, **OVERHEAD, **ROOFS, **SAME, **FLUSH
)


class VirtualSession(Session):
    """Everything but the GPU is the real session's.

    timeline: of the GPU (default: one on this machine).
    """

    def __init__(
        self,
        machine: Machine,
        *user_kernels: Kernel,
        timeline: VirtualGpu | None = None,
        calibration: Calibration = CALIBRATION,
    ) -> None:
        if timeline is None:
            machine.l2_bytes = L2_BYTES
            timeline = VirtualGpu(machine, clock=lambda now: MHZ)
        baselines = {
            math: VirtualBaseline(timeline.device, f"cuBLAS {math.upper()}")
            for math in ("fp32", "tf32")
        }
        own = {kernel.name: kernel for kernel in user_kernels}
        super().__init__(own, calibration, (timeline, baselines))

    def load_cublaslt(self, count: int) -> VirtualCublasLt:
        """Return a library whose second algorithm is the fastest."""
        factors = (1.1, 0.8, 1.2, 1.0)[:count]
        algorithms = [
            VirtualAlgorithm(self.device, index, factor) for index, factor in enumerate(factors)
        ]
        return VirtualCublasLt(self.device, algorithms)

    def compile_ahead(self, jobs: Sequence[Job]) -> None:
        """Nothing is compiled."""

    def require_idle(self) -> None:
        """Nothing is left: a virtual machine's streams are waited for."""


def true_us(machine: Machine, shape: Shape) -> float:
    """How long the whole work takes on this machine, from a cold cache."""
    return shape.flops / machine.flops_per_us


def measure(session: Session, name: str, shape: Shape, harness: Harness = QUICK) -> Measurement:
    """One measurement as a run makes it."""
    return measure_job(session, product_job(name, shape), harness)


def read_us(session: Session, name: str, shape: Shape, harness: Harness) -> float:
    """Microseconds by the harness alone, without the gate."""
    loop = loop_of(session, product_job(name, shape), harness, [CUBLAS])
    try:
        reading = time_in_turn(
            session.timeline, loop.launches, harness, move=loop.move if loop.pool else None
        )
    finally:
        loop.close()
    return reading.us(harness.statistic) - event_overhead_us(
        harness.as_dict(), CALIBRATION.offset_us
    )


def once(launch: TimedLaunch) -> None:
    """Return a launch without a time, and the work around it."""
    launch.before()
    launch.launch()
    launch.behind()
    launch.after()


BASELINE_US = 80.0


def session_on(gpu: VirtualGpu, calibration: Calibration) -> VirtualSession:
    """Return a session for worklog.runner.timing.time_on."""
    gpu.gpu = replace(GPU, l2_bytes=gpu.l2_bytes, sm_clock_mhz=REFERENCE_MHZ)
    return VirtualSession(gpu.machine, timeline=gpu, calibration=calibration)


@dataclass(frozen=True)
class Result:
    """The subject's time in microseconds, the baseline's over it, and the raw reading."""

    time: Estimate
    ratio: Estimate
    reading: LoopResult


def timed(
    gpu: VirtualGpu,
    harness: Harness | None = None,
    us: float = 50.0,
    sensitivity: float = 1.0,
    size: float | None = None,
) -> Result:
    """Time a kernel of `us` against a baseline on this GPU, under this harness (default.

    The unbiased one).
    """
    harness = harness or Harness()
    kernel = TimedLaunch(gpu.kernel(us, "subject", sensitivity=sensitivity), "kernel")
    baseline = TimedLaunch(gpu.kernel(BASELINE_US, "baseline"), "baseline")
    reading = time_in_turn(gpu, [kernel, baseline], harness, size=size, move=gpu.move)
    summary = summarize(reading.samples, harness.as_dict(), gpu.offset_us)
    return Result(summary.time, summary.ratios["baseline"], reading)


def launches_of_warm_up(us: float = 50.0) -> int:
    """Return the launches on an undisturbed GPU before the warm-up is over.

    The warm-up's last windows are among them.
    """
    harness = Harness().but(order="sequential")  # which takes no samples from the warm-up
    return 2 * timed(VirtualGpu(), harness, us=us).reading.warmup_launches + 2
