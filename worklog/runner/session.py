"""Gate, then time: the one way of every job. A `Session` holds what is made once on a GPU and used for a whole run."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from worklog.errors import LaunchFailed, OutOfMemory
from worklog.gate import SEED_BITS, SgemmChecker, after_timing
from worklog.gpu import gpu, require_gpu, software, tool
from worklog.gpu.clock_lock import clocks_as_requested
from worklog.gpu.peaks import Peaks
from worklog.harness import Harness, Launch, Reading, Timed, off_the_lock, time_in_turn
from worklog.harness.launch import blocked, nothing
from worklog.kernel import RUNGS, Kernel, Subject, rung, tensor_operands
from worklog.kernel.nvrtc import compile_cuda, nvrtc_version
from worklog.problem import Shape
from worklog.runner.job import BASELINE, Job
from worklog.runner.launches import LEAST_TIMES_BUFFERS, Pool
from worklog.runs import (
    Measurement,
    Roof,
    Stage,
    Verdict,
    Work,
    estimate_of,
    event_overhead_us,
    source_label,
    summarize,
)

if TYPE_CHECKING:
    from worklog.gpu.cuda import CudaDevice
    from worklog.harness.cuda_timeline import CudaTimeline
    from worklog.runs import Calibration

LEFT_S = 10.0  # for work that a kernel left on the GPU
IDLE_LAUNCHES = 9


@dataclass(kw_only=True)
class Prepared:
    """A job made ready on a GPU: what its loop launches, and what is known of it.

    launches: of the kernel, then of each baseline. harness: with which they are timed. stated: the result's
    degradations so far. verdict: on the kernel, None without a gate. move: moves the buffers. size: N of the square
    problem of the same work. after: gets the reading and the kernel's microseconds as read, and gives the stages on
    what was timed. close: gives back what was taken for the loop.
    """

    launches: list[Timed]
    harness: Harness
    stated: list[str]
    work: Work = field(default_factory=Work)
    datapath: str | None = None
    verdict: Verdict | None = None
    move: Callable[[], None] | None = None
    size: float | None = None
    witnesses: dict[str, float | str] = field(default_factory=dict)
    after: Callable[[Reading, float], list[Stage]] = lambda reading, us: []
    close: Callable[[], None] = nothing


def time_prepared(session: Session, job: Job, ready: Prepared) -> Measurement:
    """Time a job that is ready, and check what was timed."""
    harness, calibration, card = ready.harness, session.calibration, session.gpu
    settings = harness.as_dict()
    overhead_us = event_overhead_us(settings, calibration.offset_us)
    try:
        how: dict[str, Any] = {"size": ready.size, "offset_us": overhead_us, "move": ready.move}
        reading = time_in_turn(session.timeline, ready.launches, harness, **how)
        us = estimate_of(reading.samples.counted(), harness.statistic).value
        stages = ready.after(reading, us)
    finally:
        ready.close()
    verdict = ready.verdict and ready.verdict.and_then(*stages)
    if verdict and not verdict.accepted:
        return job.failed(verdict)
    if us <= overhead_us:
        return job.without_time("failed", "failed at plausible: the time is not above zero", verdict)
    changed, stated = job.pitfalls, ready.stated
    sm_mhz = reading.samples.sm_mhz or card.sm_clock_mhz
    if off := off_the_lock(harness.clocks, reading.samples.sm_mhz):
        changed, stated = changed | {"clocks": "watched"}, [*stated, off]
    peak = Peaks(card, sm_mhz)
    summary = summarize(reading.samples, settings, calibration.offset_us, ready.work.flops, peak["fp32"])
    roof = None
    if job.shape and summary.tflops and summary.of_peak:
        roof = Roof(summary.tflops / summary.of_peak)
    elif ready.datapath and ready.work.flops:
        roof = Roof(peak[ready.datapath], ready.datapath)
    impossible = Peaks(card, card.sm_clock_mhz).impossible(summary.time.value, ready.work)
    return Measurement(
        job.kernel,
        None if job.shape is None else astuple(job.shape),
        axes=dict(job.axes),
        changed=changed,
        verdict=verdict,
        time=summary.time,
        against=dict.fromkeys(job.baselines) | summary.ratios,
        work=ready.work,
        roof=roof,
        samples=reading.samples,
        overhead_us=overhead_us,
        throttle_mask=reading.throttle_mask,
        converged=reading.converged,
        degradations=(*stated, *reading.degradations, *impossible),
        witnesses=ready.witnesses,
    )


class Session:
    """A GPU made ready: the device, the calibrated harness, compiled kernels, and the checker of the present shape.

    user_kernels: by name, host functions too. calibration: of the harness on this GPU (default: calibrate now). Raises
    NoGpu.
    """

    def __init__(
        self, user_kernels: Mapping[str, Kernel] | None = None, calibration: Calibration | None = None
    ) -> None:
        require_gpu()  # first: without a driver, CuPy's libraries do not even import
        from worklog.gpu.cuda import Cublas, CudaDevice
        from worklog.harness.calibration import calibrate
        from worklog.harness.cuda_timeline import CudaTimeline

        self.gpu = gpu()
        self.device: CudaDevice = CudaDevice()
        self.timeline: CudaTimeline = CudaTimeline(self.device)
        self.calibration: Calibration = calibration or calibrate(self.timeline)
        self.baselines = {math: Cublas(self.device, math) for math in ("fp32", "tf32")}
        self.user_kernels = {} if user_kernels is None else user_kernels  # the caller may add to it
        self._subjects: dict[str, Subject] = {BASELINE: self.baselines["fp32"]}
        self._checkers: dict[Shape, SgemmChecker] = {}
        self._verdicts: dict[tuple[str, Shape, bool | str], Verdict] = {}

    def kernel(self, name: str) -> Kernel:
        """The record of that name. Raises BadSetting."""
        return self.user_kernels.get(name) or rung(name)

    def subject(self, name: str) -> Subject:
        """The kernel of that name, compiled once. Raises BadSetting or CompileFailed."""
        if name not in self._subjects:
            self._subjects[name] = self.kernel(name).load(self.device)
        return self._subjects[name]

    def compile_ahead(self, jobs: Sequence[Job]) -> None:
        """Compile the jobs' rungs at once, each in its own process. An error is reported where a rung is measured."""
        rungs = {known.name for known in RUNGS}
        programs = set()
        for job in jobs:
            if job.kernel in rungs and job.shape:
                programs |= {part.program for part in rung(job.kernel).at(job.shape, self.gpu.arch).passes}
        with ThreadPoolExecutor() as pool:
            for program in programs:
                pool.submit(compile_cuda, program, self.gpu.arch)

    _pool: Pool | None = None

    def pool(self, elements: int) -> Pool | None:
        """A pool for buffers of `elements` float32 in total, kept for the next loop; None where memory is too short."""
        if self._pool is None or self._pool.elements < elements * LEAST_TIMES_BUFFERS:
            self._pool = None  # first, so that its memory is free
            self._pool = Pool.to_hold(self.device, elements)
        return self._pool

    def checker(self, shape: Shape) -> SgemmChecker:
        """The checker of a shape; the last shape's is dropped, since its matrices fill memory. Raises OutOfMemory."""
        if shape not in self._checkers:
            self._checkers.clear()
            self._pool = None  # the checker of a large shape may need its memory,
            self.device.empty_cache()  # and CuPy can't give back a block after it has given a part of it away
            try:
                self._checkers[shape] = SgemmChecker(self.device, shape, secrets.randbits(SEED_BITS))
            except MemoryError as error:
                raise OutOfMemory(f"size {shape} does not fit the host's memory: take a smaller one") from error
        return self._checkers[shape]

    def require_memory(self, shape: Shape) -> None:
        """Raise OutOfMemory, before anything is measured, for a shape that cannot fit the GPU."""
        needed = shape.compulsory_bytes + 4 * shape.m * shape.n  # A, B and C, and a C of the baseline's own
        free = self.device.free_bytes()
        if needed > free:
            raise OutOfMemory(
                f"size {shape} needs {needed / 1e9:.1f} GB on the GPU, which has {free / 1e9:.1f} GB free: "
                "take a smaller size"
            )

    def claimed(self, name: str) -> str:
        """The precision class that the kernel must have at least."""
        return "fp32" if name == BASELINE else self.kernel(name).claimed

    def verdict(self, name: str, shape: Shape, gate: bool | str = True) -> Verdict:
        """The gate's verdict on a kernel at a shape, found once; with gate "article", by the article's rule."""
        if (name, shape, gate) not in self._verdicts:
            subject, checker = self.subject(name), self.checker(shape)
            if gate == "article":
                verdict = checker.check_by_article(subject)
            else:
                tensor = None if self.is_host_function(name) else bool(self.operands(name))
                verdict = checker.check(subject, self.claimed(name), tensor)
            self._verdicts[name, shape, gate] = verdict
        return self._verdicts[name, shape, gate]

    def is_host_function(self, name: str) -> bool:
        """Whether the kernel launches its work itself, maybe on streams of its own."""
        return name in self.user_kernels and self.user_kernels[name].host is not None

    def operands(self, name: str) -> tuple[str, ...]:
        """Types that the kernel's code gives to tensor cores. A host function's code isn't known: each type."""
        if name == BASELINE:  # in FP32, without tensor cores
            return ()
        if self.is_host_function(name):
            return tuple(after_timing.SIGNIFICANT_BITS)
        return tensor_operands(compile_cuda(part.program, self.gpu.arch) for part in self.kernel(name).passes)

    def variables(self, name: str, shape: Shape) -> list[str]:
        """What a kernel's code can keep from one launch to the next; [] for cuBLAS and host functions: it isn't
        known.
        """
        if name == BASELINE or self.is_host_function(name):
            return []
        kernel, arch = self.kernel(name).at(shape, self.gpu.arch), self.gpu.arch
        return [*dict.fromkeys(known for part in kernel.passes for known in compile_cuda(part.program, arch).variables)]

    def head(self, harness: Harness, notes: Sequence[str]) -> dict[str, Any]:
        """The head of a run. notes: what could not be done as the harness says."""
        return {
            "gpu": self.gpu,
            "harness": harness.as_dict(),
            "tool": tool(),
            "software": {
                **software(),
                "nvrtc": ".".join(map(str, nvrtc_version())),
                "cublas": self.baselines["fp32"].version,
            },
            "calibration": self.calibration,
            "notes": [*notes, *self.calibration.remarks],
        }

    def describe(self, name: str) -> dict[str, Any]:
        """A kernel's source, tile and resources, for a run file."""
        if name == BASELINE:
            return {"library": "cuBLAS", "domain": str(self.subject(name).domain)}
        kernel = self.kernel(name)
        return kernel.describe(None if kernel.skipped else self.subject(name))

    def require_idle(self) -> None:
        """Wait for all work on the GPU. Raises LaunchFailed, also for work that does not end."""
        if not self.device.idle(LEFT_S):
            raise LaunchFailed(f"work that it started is still on the GPU after {LEFT_S:.0f} s")


def calibrated(clocks: str) -> tuple[Calibration, str, list[str]]:
    """The harness's calibration on this GPU under a `clocks` setting; its label and remarks. Raises NoGpu."""
    with clocks_as_requested(clocks) as (held, notes):
        calibration = Session().calibration
    if off := off_the_lock(held, calibration.sm_mhz):
        held, notes = "watched", [*notes, off]
    return calibration, source_label("live", gpu().name, held, datetime.now(UTC).isoformat()), notes


def idle_after(session: Session, launch: Launch, queued: bool, us: float) -> Stage:
    """Whether the whole GPU is idle when a launch of `us` microseconds has ended on the harness's stream. queued:
    whether it may be enqueued behind a blocking kernel. Without one, a fast GPU may finish unjoined work before the
    wait begins. On a busy host every wait is long, so it is compared with the wait after an empty kernel.
    """

    def wait_us(enqueue: Launch) -> float:
        with blocked(session.timeline) if queued else nullcontext():
            enqueue()
        session.timeline.synchronize()
        ended = session.timeline.host_us()
        session.device.synchronize_all()
        return session.timeline.host_us() - ended

    empty = partial(session.timeline.spin, 0)
    return after_timing.idle([wait_us(launch) - wait_us(empty) for _ in range(IDLE_LAUNCHES)], us)
