"""The ruler's timeline on a real GPU: a CUDA stream, events, a blocking kernel and clock stamps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from worklog.errors import LaunchFailed, OutOfMemory
from worklog.gpu.cuda import CUDA_ERRORS, CudaDevice
from worklog.gpu.device import ClockWatch, gpu
from worklog.harness.cupti_timer import load_cupti, the_tracer
from worklog.harness.timeline import Launch, Tracer

HOLD_LIMIT_NS = 8_000_000_000
IDLE_S = 1.0  # long enough for the SM clock to fall to its idle value
FLUSH_BLOCKS_PER_SM = 2
BURN_BLOCKS_PER_SM = 8
FFMA_FLOPS_PER_STEP = 2 * 16 * 16  # of one thread of ruler_ffma: 16 chains, unrolled 16 times
PROBE_BYTES, LINE_BYTES = 4 * 2**20, 128
PROBES = 2048  # ruler.cu keeps their latencies in shared memory


def _chain() -> np.ndarray[Any, Any]:
    """A buffer in which each of some shuffled cache lines holds the index of the next, the first at 0."""
    lines = np.random.default_rng(0).permutation(PROBE_BYTES // LINE_BYTES - 1)[: PROBES - 1] + 1
    words = LINE_BYTES // 4
    chain = np.zeros(PROBE_BYTES // 4, np.uint32)
    path = np.concatenate([[0], lines]) * words
    chain[path] = np.roll(path, -1)
    return chain


SMS_READ = 16  # at least, evenly spread, where there are more: all run at one clock, and the median of few costs less
PLACES = 8  # of a launch in the ring of launches: an H200's time of one depends on its number modulo 8


def _clocks(starts: np.ndarray[Any, Any], stops: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Between stamps, (pairs, SMs, 2) of nanoseconds and cycles: (pairs, 2) of MHz and microseconds, the medians of the
    SMs that have both, NaN where none has.
    """
    first = starts.astype(np.float64)
    steps = stops.astype(np.float64) - first
    usable = (steps > 0).all(axis=2) & (first[..., 0] > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.stack([1e3 * steps[..., 1] / steps[..., 0], steps[..., 0] / 1e3], axis=2)
    if usable.all():
        found: np.ndarray[Any, Any] = np.median(rates, axis=1)
        return found
    nothing = np.full((1, 2), np.nan)
    return np.array(
        [np.median(pair[good] if good.any() else nothing, axis=0) for pair, good in zip(rates, usable, strict=True)]
    )


class CudaTimeline:
    """worklog.harness.Timeline on the stream of a CudaDevice. Its flush buffer is 2 x the device's own L2 size."""

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.gpu = gpu()
        self.watch = ClockWatch()
        source = (Path(__file__).parent / "ruler.cu").read_text(encoding="utf-8")
        self.module = cupy.RawModule(code=source, options=("-std=c++17",))
        self._hold, self._stamp, self._flush = (
            self.module.get_function(f"ruler_{name}") for name in ("hold", "stamp", "flush")
        )
        try:
            with device.stream:
                self._scratch = cupy.zeros(2 * self.gpu.l2_bytes // 4, cupy.uint32)
                self._sink = cupy.zeros(1, cupy.float32)
                self._chain, self._latencies = cupy.asarray(_chain()), cupy.zeros(PROBES, cupy.uint32)
                self._stamps: Any = cupy.zeros((64, self.gpu.multiprocessors, 2), cupy.uint64)
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise OutOfMemory(
                f"no room for the L2 flush buffer of {2 * self.gpu.l2_bytes / 2**20:.0f} MiB: "
                f"free the GPU's memory ({error})"
            ) from error
        self._pinned = cupy.cuda.alloc_pinned_memory(8)
        self._flag = np.frombuffer(self._pinned, np.int32, 2)
        self._events: list[Any] = []
        self._clocks: np.ndarray[Any, Any] | None = None
        self._last_stamped = 1
        self._salt = 0
        self._places = np.random.default_rng()
        self._remarks: list[str] = []

    def draw_place(self) -> None:
        """Enqueue as many kernels that do nothing as chance will have."""
        for _ in range(self._places.integers(PLACES)):
            self.spin(0)

    def hold(self) -> None:
        """Block the stream behind a spinning kernel."""
        self.device.synchronize()
        self._flag[:] = 0
        self.launch(self._hold, 1, 1, np.uint64(self._pinned.ptr), np.uint64(HOLD_LIMIT_NS))

    def release(self) -> None:
        """Let the spinning kernel end."""
        self._flag[0] = 1

    def lift_marks(self) -> None:
        """By the driver, for the whole of L2. Not in stream order."""
        from cuda.bindings import driver

        (status,) = driver.cuCtxResetPersistingL2Cache()
        if status != driver.CUresult.CUDA_SUCCESS and not self._remarks:
            self._remarks.append(
                f"l2: marks to stay could not be lifted ({status.name}); the flush may leave some lines"
            )

    def flush_l2(self) -> None:
        """Write 2 x L2 of values that differ everywhere and every time."""
        self._salt += 1
        blocks = FLUSH_BLOCKS_PER_SM * self.gpu.multiprocessors
        self.launch(self._flush, blocks, 1024, self._scratch, np.uint64(self._scratch.size), np.uint32(self._salt))

    def stamp_clock(self, slot: int) -> None:
        """One block an SM (more, so that each SM surely gets one) notes its counters."""
        self._clocks = None
        self._last_stamped = max(self._last_stamped, slot)
        self.launch(self._stamp, 2 * self.gpu.multiprocessors, 1, self._stamps[slot])

    def record_event(self, slot: int) -> None:
        """Record event `slot`, created on first use."""
        while len(self._events) <= slot:
            self._events.append(cupy.cuda.Event())
        self._events[slot].record(self.device.stream)

    def synchronize(self) -> None:
        """Wait; then say so if the blocking kernel gave up, which means that a launcher waited for the GPU inside the
        pair.
        """
        self.device.synchronize()
        if self._flag[1]:
            self._flag[1] = 0
            raise LaunchFailed(
                f"the blocking kernel waited {HOLD_LIMIT_NS / 1e9:.0f} s for the host: the launcher synchronises, or "
                "allocates memory, or loads a module each time; time it with --set queue=false"
            )

    def elapsed_us(self, start: int, stop: int) -> float:
        """Between two events."""
        return float(cupy.cuda.get_elapsed_time(self._events[start], self._events[stop])) * 1e3

    def clock_mhz(self, start: int, stop: int) -> float:
        """Median over the SMs that have both stamps of cycles per nanosecond, in MHz."""
        return float(self._between(start, stop)[0])

    def stamped_us(self, start: int, stop: int) -> float:
        """Median over the SMs that have both stamps of the global timer's difference."""
        return float(self._between(start, stop)[1])

    def _between(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        """MHz and microseconds."""
        if stop != start + 1 or start % 2:
            stamps = self._stamps_read()
            only: np.ndarray[Any, Any] = _clocks(stamps[[start]], stamps[[stop]])[0]
            return only
        if self._clocks is None:  # all of a batch at once: one by one they cost more than the launches
            stamps = self._stamps_read()
            self._clocks = _clocks(stamps[:-1:2], stamps[1::2])
        pair: np.ndarray[Any, Any] = self._clocks[start // 2]
        return pair

    def _stamps_read(self) -> np.ndarray[Any, Any]:
        """(slots, some SMs, 2): nanoseconds and cycles, of all slots stamped since the last read and of older ones."""
        stamps: np.ndarray[Any, Any] = self._stamps[: self._last_stamped + 1].get(stream=self.device.stream)
        self.device.synchronize()
        return stamps[:, :: max(1, self.gpu.multiprocessors // SMS_READ)]

    def host_us(self) -> float:
        """The host's monotonic clock."""
        return time.perf_counter() * 1e6

    def throttle_reasons(self) -> int:
        """NVML's mask now."""
        return self.watch.reasons()

    @property
    def l2_bytes(self) -> int:
        """As the driver states it."""
        return self.gpu.l2_bytes

    def capture(self, launches: Sequence[Launch]) -> Launch:
        """A CUDA graph of the launches, uploaded. Each must have been launched before: capture cannot load a module."""
        stream = self.device.stream
        try:
            with stream:
                stream.begin_capture()
                try:
                    for launch in launches:
                        launch()
                finally:  # a capture that stays open would swallow everything that follows
                    graph = stream.end_capture()
                graph.upload(stream)
        except (*CUDA_ERRORS, NotImplementedError) as error:  # CuPy implements no library's calls while recording
            raise LaunchFailed(
                f"the launch cannot be recorded in a CUDA graph ({error}): it synchronises, allocates, or "
                "calls a library through CuPy; take timer = events"
            ) from error
        return partial(graph.launch, stream)

    def tracer(self, queued: bool = True) -> AbstractContextManager[Tracer]:
        """By CUPTI."""
        return the_tracer(load_cupti()).tracing(self.synchronize, self._held if queued else nullcontext)

    @contextmanager
    def _held(self) -> Iterator[None]:
        self.hold()
        try:
            yield
        finally:
            self.release()

    def remarks(self) -> list[str]:
        """Whether marks could be lifted."""
        return list(self._remarks)

    def burn(self, flops: float) -> None:
        """Multiply-adds alone, rounded up to whole steps of the FP32 ceiling's kernel."""
        blocks, threads = BURN_BLOCKS_PER_SM * self.gpu.multiprocessors, 256
        steps = -(-flops // (FFMA_FLOPS_PER_STEP * blocks * threads))
        self.launch(self.module.get_function("ruler_ffma"), blocks, threads, self._sink, np.int32(steps))

    def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def go_cold(self) -> None:
        """Wait until the GPU has idled long enough to lower its clock."""
        self.synchronize()
        self.pause(IDLE_S)

    def probe_l2(self) -> Sequence[float]:
        """One thread walks a shuffled chain of cache lines."""
        self.launch(self.module.get_function("ruler_probe"), 1, 1, self._chain, self._latencies, np.int32(PROBES))
        latencies: np.ndarray[Any, Any] = self._latencies.get(stream=self.device.stream)
        self.device.synchronize()
        return [float(cycles) for cycles in latencies]

    def spin(self, ns: int) -> None:
        """Enqueue a one-thread kernel that lasts so many nanoseconds by the GPU's global timer."""
        self.launch(self.module.get_function("ruler_spin"), 1, 1, np.uint64(ns))

    def launch(self, function: Any, blocks: int, threads: int, *arguments: Any) -> None:
        """Enqueue one of the ruler's own kernels."""
        try:
            with self.device.stream:
                function((blocks,), (threads,), arguments)
        except CUDA_ERRORS as error:
            raise LaunchFailed(f"the ruler cannot launch: {error}") from error
