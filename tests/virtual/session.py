"""A session on the virtual GPU, with known true times: the real path from the gate to a measurement."""

from __future__ import annotations

from tests.virtual.device import LANES, MHZ, VirtualBaseline, VirtualDevice, VirtualTimeline
from tests.virtual.machine import Machine
from worklog.gpu.device import Gpu
from worklog.harness import Harness
from worklog.harness.calibration import Calibration
from worklog.kernel import Kernel
from worklog.problem.gemm import Shape
from worklog.runner.session import Session, attempt, read
from worklog.runner.tasks import BASELINE, Task
from worklog.runs.measurement import Measurement
from worklog.runs.samples import event_overhead_us, summarise

GPU = Gpu("a virtual GPU", (9, 0), 1, VirtualTimeline.l2_bytes, 2**30, MHZ, 1e3, 64, "none")
PEAK_TFLOPS = 2 * LANES * MHZ / 1e6  # 5120 FLOP a microsecond; the machine's products reach 4096
QUICK = Harness().but(least_samples=6, most_samples=64, precision=0.05)
CALIBRATION = Calibration(
    offset_us=VirtualTimeline.offset_us,
    offset_spread_us=0.0,
    offset_by_length_us={"10": VirtualTimeline.offset_us},
    tick_us=0.0,
    fp32_tflops=PEAK_TFLOPS,
    copy_gbs=16.0,
    l2_gbs=32.0,
    sm_mhz=MHZ,
    slope=1.0,
    aa_ratio=1.0,
    aa_low=1.0,
    aa_high=1.0,
    launch_us=4.0,
    warm_cycles=250.0,
    cold_cycles=650.0,
    still_cached=0.0,
)


class VirtualSession(Session):
    """Everything but the GPU is the real session's."""

    def __init__(self, machine: Machine, *user_kernels: Kernel) -> None:
        device = VirtualDevice(machine)
        self.gpu = GPU
        self.device, self.timeline, self.calibration = device, VirtualTimeline(device), CALIBRATION  # type: ignore[assignment]
        self.baselines = {math: VirtualBaseline(device, f"cuBLAS {math.upper()}") for math in ("fp32", "tf32")}
        self.user_kernels = {one.name: one for one in user_kernels}
        self._subjects = {BASELINE: self.baselines["fp32"]}
        self._checkers = {}
        self._verdicts = {}

    def require_memory(self, shape: Shape) -> None:
        """There is enough."""

    def require_idle(self) -> None:
        """Nothing is left: a virtual machine's streams are waited for."""


def true_us(machine: Machine, shape: Shape) -> float:
    """How long the whole work takes on this machine, from a cold cache."""
    return shape.flops / machine.flops_per_us


def measure(session: Session, name: str, shape: Shape, harness: Harness = QUICK) -> Measurement:
    """One measurement as a run makes it."""
    return attempt(session, Task(name, shape), harness)


def read_us(session: Session, name: str, shape: Shape, harness: Harness) -> float:
    """Microseconds by the harness alone, without the gate."""
    reading, _ = read(session, Task(name, shape), harness)
    return summarise(reading.counted("subject"), harness.statistic).value - event_overhead_us(
        harness.as_dict(), CALIBRATION.as_dict()
    )
