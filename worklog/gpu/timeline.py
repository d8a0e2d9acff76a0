"""The GPU as the harness sees it: a stream, events, a blocking kernel and clock stamps.

The tests use a simulated timeline. Its true kernel times, clocks and event overhead are known, so
that each fix can be shown to recover the true time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from worklog.errors import LaunchFailed
from worklog.gpu.clocks import clocks_between
from worklog.gpu.cuda import CUDA_ERRORS, CudaDevice, captured
from worklog.gpu.device import ClockWatch, gpu
from worklog.gpu.energy import EnergyCounter
from worklog.kernel.nvrtc import nvidia_library

# Of timeline.cu, without their prefix
KERNELS = ("hold", "stamp", "flush", "spin", "ffma", "read", "probe")
NOT_READY = 600  # driver_types.h, cudaErrorNotReady
HOLD_LIMIT_NS = 8_000_000_000
FLUSH_BLOCKS_PER_SM = 2
BURN_BLOCKS_PER_SM = 8
BURN_THREADS = 256
FFMA_FLOPS_PER_STEP = 2 * 16 * 16  # per thread of harness_ffma: 16 chains, unrolled 16 times
PROBE_BYTES = 4 * 2**20
LINE_BYTES = 128
PROBES = 2048  # timeline.cu keeps their latencies in shared memory
# At least, evenly spread: all SMs run at one clock, and the median of a few costs less
SMS_READ = 16
PLACES = 8  # in the launch ring: on an H200, a launch's time depends on its number modulo 8
# Of the launches for the ceilings
FFMA_STEPS = 2048
COPY_BYTES = 2**30
READ_ROUNDS = 64


class CudaTimeline:
    """The stream of a CudaDevice: one queue, in order.

    Everything but `synchronize`, `release` and the readings only enqueues.

    l2_bytes: size of L2, as the driver states it
    remarks: what could not be done, for the result
    """

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.gpu = gpu()
        self.l2_bytes = self.gpu.l2_bytes
        self.watch = ClockWatch()
        self.energy = EnergyCounter()
        self.remarks: list[str] = []
        source = (Path(__file__).parent / "timeline.cu").read_text(encoding="utf-8")
        module = cupy.RawModule(code=source, options=("-std=c++17",))
        self._kernels = {name: module.get_function(f"harness_{name}") for name in KERNELS}
        self._places = np.random.default_rng()
        chain = _chain_of_lines()
        with (
            device.errors(f"allocating the L2 flush buffer of {2 * self.l2_bytes / 2**20:.0f} MiB"),
            device.stream,
        ):
            self._scratch = cupy.zeros(2 * self.l2_bytes // 4, cupy.uint32)
            self._sink = cupy.zeros(1, cupy.float32)
            self._chain = cupy.asarray(chain)
            self._latencies = cupy.zeros(PROBES, cupy.uint32)
        self._stamps: Any = ()
        self._pinned = cupy.cuda.alloc_pinned_memory(8)
        self._flag = np.frombuffer(self._pinned, np.int32, 2)
        self._events: list[Any] = []
        self._clocks: np.ndarray[Any, Any] | None = None
        self._last_stamped = 1
        self._salt = 0

    def draw_place(self) -> None:
        """Enqueue 0 to 7 empty kernels at random.

        The next launch then has a random place in the launch ring.
        """
        for _ in range(self._places.integers(PLACES)):
            self.spin(0)

    def hold(self) -> None:
        """Block the stream behind a spinning kernel until `release`.

        What is enqueued meanwhile runs back to back.
        """
        self.device.synchronize()
        self._flag[:] = 0
        self.launch("hold", 1, 1, np.uint64(self._pinned.ptr), np.uint64(HOLD_LIMIT_NS))

    def release(self) -> None:
        """Let the spinning kernel end."""
        self._flag[0] = 1

    def lift_marks(self) -> None:
        """Reset persisting L2 lines by the driver, so that the flush evicts them.

        This isn't in stream order: work that is enqueued afterwards waits for all streams of the
        process.
        """
        error_code = nvidia_library("cuda").cuCtxResetPersistingL2Cache()
        if error_code:
            reason = f"l2: persisting lines could not be reset (CUresult {error_code})"
            self.remarks = [f"{reason}; the flush may leave some of them"]

    def flush_l2(self) -> None:
        """Write 2 x L2 of values that differ everywhere and every time."""
        self._salt += 1
        blocks = FLUSH_BLOCKS_PER_SM * self.gpu.multiprocessors
        size = np.uint64(self._scratch.size)
        self.launch("flush", blocks, 1024, self._scratch, size, np.uint32(self._salt))

    def make_room(self, slots: int) -> None:
        """Allocate so many slots of stamp_clock().

        No allocation may wait behind the blocking kernel.
        """
        if len(self._stamps) < slots:
            with self.device.errors(f"allocating {slots} clock stamps"), self.device.stream:
                self._stamps = cupy.zeros((slots, self.gpu.multiprocessors, 2), cupy.uint64)

    def stamp_clock(self, slot: int) -> None:
        """Store each SM's cycle counter and the global timer in a slot.

        With two blocks per SM, each SM gets a block.
        """
        self._clocks = None
        self._last_stamped = max(self._last_stamped, slot)
        self.launch("stamp", 2 * self.gpu.multiprocessors, 1, self._stamps[slot])

    def record_event(self, slot: int) -> None:
        """Record timing event `slot`, created on first use."""
        while len(self._events) <= slot:
            self._events.append(cupy.cuda.Event())
        self._events[slot].record(self.device.stream)

    def is_reached(self, slot: int) -> bool:
        """Return whether the GPU has reached event `slot`, without waiting for it.

        Raises LaunchFailed if work failed: Event.done would stay False.
        """
        status = cupy.cuda.runtime.eventQuery(self._events[slot].ptr)
        if status not in (0, NOT_READY):
            self.synchronize()
        return bool(status == 0)

    def synchronize(self) -> None:
        """Wait for the stream.

        Raises LaunchFailed if work failed, or if the blocking kernel gave up: a launch waited
        itself.
        """
        self.device.synchronize()
        if self._flag[1]:
            self._flag[1] = 0
            raise LaunchFailed(
                f"the blocking kernel waited {HOLD_LIMIT_NS / 1e9:.0f} s for the host: the "
                "launcher synchronises, or "
                "allocates memory, or loads a module each time; time it with --set queue=false"
            )

    def elapsed_us(self, start: int, stop: int) -> float:
        """Return the microseconds between two recorded events."""
        return float(cupy.cuda.get_elapsed_time(self._events[start], self._events[stop])) * 1e3

    def clock_mhz(self, start: int, stop: int) -> float:
        """Return the SM clock in MHz between an even stamp and the next.

        It is the median over the SMs that have both, or NaN. All pairs of a batch are read at once:
        one by one they would cost more than the launches.
        """
        if self._clocks is None:
            stamps: np.ndarray[Any, Any] = self._stamps[: self._last_stamped + 1].get(
                stream=self.device.stream
            )
            self.device.synchronize()
            step = max(1, self.gpu.multiprocessors // SMS_READ)
            samples = stamps[:, ::step]
            self._clocks = clocks_between(samples[:-1:2], samples[1::2])
        return float(self._clocks[start // 2])

    def host_us(self) -> float:
        """Return the host's monotonic clock in microseconds."""
        return time.perf_counter() * 1e6

    def capture(self, launches: Sequence[Callable[[], None]]) -> Callable[[], None]:
        """Return one launch that replays all of these, in this order: a CUDA graph.

        The graph is uploaded. Each launch must have run before, since a capture can't load a
        module.

        Raises LaunchFailed if a launch can't be recorded.
        """
        stream = self.device.stream
        try:
            graph = captured(stream, launches)
            graph.upload(stream)
        except (*CUDA_ERRORS, NotImplementedError) as error:
            # CuPy implements no library's calls while recording.
            raise LaunchFailed(
                f"the launch cannot be recorded in a CUDA graph ({error}): it synchronises, "
                "allocates, or "
                "calls a library through CuPy; take timer = events"
            ) from error
        return partial(graph.launch, stream)

    def ceilings(self) -> dict[str, tuple[float, Callable[[], None]]]:
        """Return launches that reach this GPU's limits, each with its work.

        They are multiply-adds alone (FLOP), a copy on the device (bytes read plus written), and
        reads of a buffer that stays in L2 (bytes).
        """
        sms = self.gpu.multiprocessors
        stream = self.device.stream
        size = min(COPY_BYTES, self.device.free_bytes() // 4)
        cached_bytes = self.l2_bytes // 4
        with self.device.errors("allocating what the ceilings are measured with"), stream:
            source = cupy.ones(size, cupy.uint8)
            target = cupy.empty(size, cupy.uint8)
            buffer = cupy.ones(cached_bytes // 4, cupy.float32)
        read_count = np.uint64(cached_bytes // 16)
        rounds = np.int32(READ_ROUNDS)
        flops = float(FFMA_STEPS * FFMA_FLOPS_PER_STEP * BURN_BLOCKS_PER_SM * sms * BURN_THREADS)
        burn = partial(self.burn, flops)
        copy = partial(target.data.copy_from_device_async, source.data, size, stream)
        read = partial(self.launch, "read", 2 * sms, 1024, buffer, read_count, rounds, self._sink)
        return {
            "FP32": (flops, burn),
            "copy": (2.0 * size, copy),
            "L2 reads": (float(cached_bytes * READ_ROUNDS), read),
        }

    def burn(self, flops: float) -> None:
        """Enqueue `flops` FP32 operations of multiply-adds on all SMs.

        They are rounded up to whole steps.
        """
        blocks = BURN_BLOCKS_PER_SM * self.gpu.multiprocessors
        steps = -(-flops // (FFMA_FLOPS_PER_STEP * blocks * BURN_THREADS))
        self.launch("ffma", blocks, BURN_THREADS, self._sink, np.int32(steps))

    def pause(self, seconds: float) -> None:
        """Let the host sleep, and the GPU idle."""
        time.sleep(seconds)

    def probe_l2(self) -> Sequence[float]:
        """Return the cycles of single reads past L1.

        The buffer is much smaller than L2. One thread walks a chain of lines.
        """
        self.launch("probe", 1, 1, self._chain, self._latencies, np.int32(PROBES))
        latencies: np.ndarray[Any, Any] = self._latencies.get(stream=self.device.stream)
        self.device.synchronize()
        return [float(cycles) for cycles in latencies]

    def spin(self, ns: int, stream: Any = None) -> None:
        """Enqueue a one-thread kernel that lasts `ns` nanoseconds.

        They are nanoseconds of the GPU's global timer.

        stream: instead of the device's stream
        """
        self.launch("spin", 1, 1, np.uint64(ns), stream=stream)

    def launch(
        self, name: str, blocks: int, threads: int, *arguments: Any, stream: Any = None
    ) -> None:
        """Enqueue a kernel of the harness: harness_`name`."""
        try:
            with stream or self.device.stream:
                self._kernels[name]((blocks,), (threads,), arguments)
        except CUDA_ERRORS as error:
            raise LaunchFailed(f"the harness can't launch its kernels: {error}") from error


def _chain_of_lines() -> np.ndarray[Any, Any]:
    """Return a buffer with PROBES shuffled cache lines.

    Each of these lines holds the index of the next line.
    """
    line_count = PROBE_BYTES // LINE_BYTES
    lines = np.random.default_rng(0).permutation(line_count - 1)[: PROBES - 1] + 1
    path = np.concatenate([[0], lines]) * (LINE_BYTES // 4)
    chain = np.zeros(PROBE_BYTES // 4, np.uint32)
    chain[path] = np.roll(path, -1)
    return chain
