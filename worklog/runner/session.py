"""A session on a GPU: what is created once and used for a whole run, and its measurements."""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from worklog import runs
from worklog.emulator.limits import Chip
from worklog.errors import LaunchFailed, NoGpu, OutOfMemory, WorklogError
from worklog.gate import SEED_BITS, SgemmChecker, SmallShapes, check_idle
from worklog.gpu.clocks import Clocks, Peaks
from worklog.gpu.device import bus_id, gpu, gpu_reason, require_gpu, software
from worklog.harness import Harness, Launch, blocked, calibrate, check_counter, off_the_lock
from worklog.kernel import RUNGS, Kernel, Runnable, rung
from worklog.kernel.nvrtc import compile_cuda, nvrtc_version
from worklog.problem import Point, Shape
from worklog.problem.formats import SINGLE, Types
from worklog.runner.job import Job, algorithms_of
from worklog.runner.launches import LEAST_TIMES_BUFFERS, Pool
from worklog.runs import CUBLAS, Calibration, Choice, CounterCheck, Stage, Verdict
from worklog.runs.files import tool
from worklog.runs.statistics import event_overhead_us

if TYPE_CHECKING:
    from worklog.gpu.timeline import CudaTimeline

LEFT_S = 10.0  # for work that a kernel left on the GPU
IDLE_LAUNCHES = 9


class Session:
    """The device, the calibrated harness, loaded kernels, and the checker of the present shape.

    user_kernels: by name, host functions too
    types: the formats of A, B and C in the present job
    calibration: of the harness on this GPU (default: calibrate now)
    on: a GPU's timeline, and its libraries by their math (default: the current CUDA GPU's, and
        cuBLAS)
    peaks: the GPU's, at its highest clock

    Raises NoGpu.
    """

    def __init__(
        self,
        user_kernels: dict[str, Kernel] | None = None,
        calibration: Calibration | None = None,
        on: tuple[CudaTimeline, Mapping[str, Any]] | None = None,
    ) -> None:
        if on is None:
            require_gpu()  # first: without a driver, CuPy's libraries do not even import
            from worklog.gpu.cuda import Cublas, CudaDevice
            from worklog.gpu.timeline import CudaTimeline

            device = CudaDevice()
            on = CudaTimeline(device), {math: Cublas(device, math) for math in ("fp32", "tf32")}
        timeline, self.baselines = on
        if calibration is None:
            calibration = calibrate(timeline)
        self.timeline = timeline
        self.device = timeline.device
        self.gpu = timeline.gpu
        self.calibration = calibration
        self.peaks = Peaks(self.gpu, self.gpu.sm_clock_mhz)
        self.user_kernels = {} if user_kernels is None else user_kernels  # the caller may add to it
        self.types = SINGLE
        self.loaded: dict[str, Runnable] = {CUBLAS: self.baselines["fp32"]}
        self._checkers: dict[tuple[Shape, Types], SgemmChecker] = {}
        # Of worklog.runner.algorithms: the choice for a baseline, and remarks.
        self.chosen_algorithms: dict[tuple[str, Shape, Types], tuple[Choice | None, list[str]]] = {}
        self._small_shapes: dict[tuple[str, Types], SmallShapes] = {}
        self._verdicts: dict[tuple[str, Shape, Types, bool | str], Verdict] = {}
        self._pool: Pool | None = None

    def kernel(self, name: str) -> Kernel:
        """Return the kernel of that name, not yet loaded. Raises BadSetting."""
        return self.user_kernels.get(name) or rung(name)

    def load(self, name: str) -> Runnable:
        """Return the kernel of that name, loaded once; a library for the present types.

        Raises BadSetting, CompileFailed, and WorklogError for a library that isn't installed.
        """
        key = self._key(name)
        if key not in self.loaded:
            count = algorithms_of(name)
            if name == CUBLAS:
                self.loaded[key] = self.load_cublas()
            elif count is None:
                self.loaded[key] = self.kernel(name).load(self.device)
            else:
                self.loaded[key] = self.load_cublaslt(count)
        return self.loaded[key]

    def _key(self, name: str) -> str:
        """Return the key of a kernel, or of a library for the present types, in `loaded`."""
        is_library = name == CUBLAS or algorithms_of(name) is not None
        return f"{name} on {self.types!r}" if is_library and self.types != SINGLE else name

    def baseline(self, math: str) -> Runnable:
        """Return cuBLAS for the present types. math: of a product in float32"""
        return self.baselines[math] if self.types == SINGLE else self.load(CUBLAS)

    def load_cublas(self) -> Any:
        """Return cuBLAS for the present types."""
        from worklog.gpu.cuda import Cublas  # here: it imports CuPy

        return Cublas(self.device, types=self.types)

    def load_cublaslt(self, count: int) -> Any:
        """Return cuBLASLt, which offers algorithms.

        count: algorithms that the heuristic is asked for

        Raises WorklogError if it isn't installed.
        """
        from worklog.gpu.cublaslt import CublasLt  # here: it is loaded if a run names it

        return CublasLt(self.device, count, types=self.types)

    def compile_ahead(self, jobs: Sequence[Job]) -> None:
        """Compile the jobs' rungs in parallel, each in its own process.

        An error is reported when its rung is measured.
        """
        rungs = {record.name for record in RUNGS}
        chip = Chip.of_gpu(self.gpu)
        kernels = [rung(job.kernel).at(job.shape, chip) for job in jobs if job.kernel in rungs]
        with ThreadPoolExecutor() as pool:
            programs = set()
            for kernel in kernels:
                programs |= {part.program for part in kernel.passes}
            for program in programs:
                pool.submit(compile_cuda, program, self.gpu.arch)

    def pool(self, elements: int) -> Pool | None:
        """Return a pool for buffers of `elements` float32, kept for the next loop.

        None if the GPU's memory is too short.
        """
        if self._pool is None or self._pool.elements < elements * LEAST_TIMES_BUFFERS:
            self._pool = None  # first, so that its memory is free
            self._pool = Pool.to_hold(self.device, elements)
        return self._pool

    def checker(self, shape: Shape) -> SgemmChecker:
        """Return the checker of a shape.

        The last shape's checker is dropped, since its matrices fill memory. Raises OutOfMemory.
        """
        if (shape, self.types) not in self._checkers:
            self._checkers.clear()
            self._pool = None  # the checker of a large shape may need its memory,
            # And CuPy can't give back a block after it has given a part of it away.
            self.device.empty_cache()
            try:
                self._checkers[shape, self.types] = SgemmChecker(
                    self.device, shape, secrets.randbits(SEED_BITS), types=self.types
                )
            except MemoryError as error:
                raise OutOfMemory(
                    f"size {shape} does not fit the host's memory: take a smaller one"
                ) from error
        return self._checkers[shape, self.types]

    def require_memory(self, point: Point) -> None:
        """Raise OutOfMemory for matrices that can't fit the GPU."""
        # A, B and C, and another C for the baseline.
        needed = sum(point.matrix_bytes) + sum(point.matrix_bytes[-1:])
        if needed > (free := self.device.free_bytes()):
            sizes = f"{needed / 1e9:.1f} GB on the GPU, which has {free / 1e9:.1f} GB free"
            raise OutOfMemory(f"size {point} needs {sizes}: take a smaller size")

    def verdict(self, name: str, shape: Shape, gate: bool | str = True) -> Verdict:
        """Return the gate's verdict on a kernel at a shape, found once.

        Of a batch, the gate checks one product at the shape, and some products at a small one.

        gate: "article" checks by the article's rule
        """
        shape = shape.single
        key = name, shape, self.types, gate
        if key not in self._verdicts:
            loaded = self.load(name)
            checker = self.checker(shape)
            if gate == "article":
                verdict = checker.check_by_article(loaded)
            else:
                small = self._small_shapes.setdefault((name, self.types), SmallShapes())
                verdict = checker.check(loaded, small)
            self._verdicts[key] = verdict
        return self._verdicts[key]

    def head(self, harness: Harness, notes: Sequence[str]) -> dict[str, Any]:
        """Return the head of a run.

        notes: the settings of the harness that aren't in effect
        """
        versions = {
            "nvrtc": ".".join(map(str, nvrtc_version())),
            "cublas": self.baselines["fp32"].version,
        }
        return {
            "gpu": self.gpu,
            "harness": harness.as_dict(),
            "tool": tool(),
            "software": {**software(), **versions},
            "calibration": self.calibration,
            "notes": [*notes, *self.calibration.remarks],
        }

    def describe(self, name: str) -> dict[str, Any]:
        """Return a kernel's source, tile and resources, for a run file."""
        return (self.loaded.get(self._key(name)) or self.kernel(name)).describe()

    def require_idle(self) -> None:
        """Wait for all work on the GPU.

        Raises LaunchFailed, also for work that doesn't finish.
        """
        if not self.device.idle(LEFT_S):
            raise LaunchFailed(f"work that it started is still on the GPU after {LEFT_S:.0f} s")

    def overhead_us(self, harness: Harness) -> float:
        """Return the event overhead in each sample of a harness, in µs."""
        return event_overhead_us(harness.as_dict(), self.calibration.offset_us)

    def idle_after(self, launch: Launch, queued: bool, us: float) -> Stage:
        """Return the stage that the whole GPU is idle when a launch has ended.

        The launch of `us` microseconds runs on the harness's stream. On a busy host every wait is
        long, so the wait is compared with the wait after an empty kernel.

        queued: whether the launch may be enqueued behind a blocking kernel. Without a blocking
            kernel, a fast GPU may finish unjoined work before the wait begins.
        """

        def wait_us(enqueue: Launch) -> float:
            with blocked(self.timeline) if queued else nullcontext():
                enqueue()
            self.timeline.synchronize()
            ended = self.timeline.host_us()
            self.device.synchronize_all()
            return self.timeline.host_us() - ended

        empty = partial(self.timeline.spin, 0)
        return check_idle([wait_us(launch) - wait_us(empty) for _ in range(IDLE_LAUNCHES)], us)


def alone_on_the_gpu() -> AbstractContextManager[object]:
    """Lock the GPU, if there is one, so that the same user's runs don't overlap.

    Raises NoGpu.
    """
    if gpu_reason() is not None:
        return nullcontext()
    return locked(Path(tempfile.gettempdir()) / f"worklog-{os.getuid()}-{bus_id()}.lock")


def locked(path: Path) -> IO[str]:
    """Return a lock file, locked until it is closed or the process ends.

    Raises NoGpu, naming the process that holds the lock.
    """
    try:
        file = os.fdopen(
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+", encoding="utf-8"
        )
    except OSError as error:
        raise WorklogError(f"cannot open {path}: {error.strerror}; remove it") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        with file:
            owner = f"process {file.read().strip() or '?'} is measuring on this GPU"
        raise NoGpu(
            f"{owner}, and two at once would disturb each other: wait for it, or cancel it"
        ) from error
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def calibrated(clocks: str) -> tuple[Calibration, str, list[str]]:
    """Return the harness's calibration on this GPU, its label and remarks.

    clocks: as in Harness

    Raises NoGpu.
    """
    with Clocks() as gpu_clocks:
        setting, notes = gpu_clocks.hold(clocks)
        calibration = Session().calibration
    remark = off_the_lock(setting, calibration.sm_mhz)
    if remark:
        setting = "watched"
        notes = [*notes, remark]
    label = runs.source_label("live", gpu().name, setting, datetime.now(UTC).isoformat())
    return calibration, label, notes


def checked_energy(seconds: float) -> tuple[CounterCheck, str]:
    """Compare this GPU's energy counter with the integral of its power samples.

    Returns the comparison and its label.

    Raises NoGpu, and NoEnergy if NVML can't read either.
    """
    require_gpu()
    from worklog.gpu.cuda import CudaDevice
    from worklog.gpu.timeline import CudaTimeline

    with alone_on_the_gpu():
        check = check_counter(CudaTimeline(CudaDevice()), seconds)
    created = datetime.now(UTC).isoformat()
    return check, runs.source_label("live", gpu().name, "watched", created)
