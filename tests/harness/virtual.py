"""A GPU whose truth is known: an in-order queue in simulated time, with every gremlin as a number that a test sets.

It stands in for worklog.harness.cuda_timeline.CudaTimeline. Nothing here looks at a real clock, so a test is exact and
repeatable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np

from worklog.errors import LaunchFailed
from worklog.gpu.device import Gpu
from worklog.harness import Harness, Reading, time_pair
from worklog.harness.crosscheck import BLOCKING, Tracer, tracing
from worklog.runs.samples import Estimate, summarize

REFERENCE_MHZ = 2000.0  # a kernel's true time is its time at this clock, with a cold L2
HOLD_LIMIT_US = 20e6
BURN_FLOPS_PER_US = 60e6
FETCHED = 8
QUEUE_LENGTH = 1000  # operations of a stream that wait, on a real GPU about 1024
BASELINE_US = 80.0


@dataclass
class VirtualGpu:
    """Times in microseconds, clocks in MHz.

    enqueue_us: what one launch or record costs the host. offset_us: what a pair of events reads on top. flush_us: the
    flush's own length. warm_speedup: how much faster a kernel runs when nothing flushed L2 since the launch before.
    load_us: what a kernel's first launch costs the host. clock: MHz at a simulated time. ramp_us, idle_mhz: after
    idling, the clock climbs from idle_mhz with this time constant (0: at once). noise: relative standard deviation.
    outlier_every, outlier_factor: every n-th launch is so much slower. mask: NVML's reasons at a simulated time.
    tick_us: resolution of events (0: exact). slow_launches: numbers of launches that run at slow_mhz.
    event_slope: microseconds that events count for a true one. flush_evicts: whether the flush does its work.
    node_us: gap before each node of a graph. tracer_us: what the tracer reads on top. fetch_us: what a launch waits for
    its commands where more than FETCHED others are queued behind it. ring_us: what a kernel waits in each place of the
    ring of launches, in turn; every kernel moves on by one. placement: draws the share by which a kernel of sensitivity
    1 is slower in the next placement of its buffers.
    """

    enqueue_us: float = 4.0
    offset_us: float = 3.45
    flush_us: float = 30.0
    warm_speedup: float = 1.0
    load_us: float = 0.0
    clock: Callable[[float], float] = lambda now: REFERENCE_MHZ
    ramp_us: float = 0.0
    idle_mhz: float = REFERENCE_MHZ
    noise: float = 0.0
    outlier_every: int = 0
    outlier_factor: float = 1.0
    mask: Callable[[float], int] = lambda now: 0
    tick_us: float = 0.0
    slow_launches: range = range(0)
    slow_mhz: float = REFERENCE_MHZ
    l2_bytes: int = 64 * 2**20
    node_us: float = 0.0
    fetch_us: float = 0.0
    ring_us: Sequence[float] = (0.0,)
    tracer_us: float = 0.0
    placement: Callable[[np.random.Generator], float] = lambda rng: 0.0
    event_slope: float = 1.0
    flush_evicts: bool = True
    seed: int = 0
    watts: float | None = 400.0
    temperature: Callable[[float], float | None] = lambda now: 40.0
    elsewhere_us: float = 0.0

    host_now: float = 0.0
    device_now: float = 0.0
    held: bool = False
    launches: int = 0
    moves: int = -1
    log: list[str] = field(default_factory=list)
    _l2: dict[str, int] = field(default_factory=dict)
    _recording: list[Callable[[], None]] | None = None
    _woke: float = 0.0
    _cycles: float = 0.0
    _slow: bool = False
    _behind: int = 0
    _place: int = 0
    marked: bool = False  # a kernel has marked what it read to stay in L2
    _pending: list[Callable[[], None]] = field(default_factory=list)
    _events: dict[int, float] = field(default_factory=dict)
    _stamps: dict[int, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._loaded: set[str] = set()
        self._serial = count()
        self.cupti = VirtualCupti()
        self.remarks: list[str] = []
        self.watch = SimpleNamespace(
            energy_j=lambda: None if self.watts is None else self.watts * self.host_now / 1e6,
            celsius=lambda: self.temperature(self.host_now),
        )
        self._rng = np.random.default_rng(self.seed)
        self.move()

    def move(self) -> None:
        """All buffers go to a new placement."""
        self._slower = self.placement(self._rng)
        self.moves += 1

    # ------------------------------------------------------------------------------------------------ what tests call

    def kernel(
        self,
        us: float,
        name: str = "kernel",
        data: str = "shared",
        data_bytes: int = 1,
        module: str | None = None,
        marks: bool = False,
        sensitivity: float = 0.0,
    ) -> Callable[[], None]:
        """A launcher of a kernel that truly lasts `us` at the reference clock with a cold L2, and reads `data`, which
        it may mark to stay in L2. Launchers of one module load it once. sensitivity: to where its buffers lie.
        """
        module = module or f"module {next(self._serial)}"

        def launch() -> None:
            if module not in self._loaded:
                if self.held or self._recording is not None:
                    raise LaunchFailed("a module was loaded in a held queue: on a real GPU this waits for ever")
                self.host_now += self.load_us
                self._loaded.add(module)
            self.log.append(name)
            self._enqueue(run)

        def run() -> None:
            self._run_kernel(us * (1 + sensitivity * self._slower), data, data_bytes)
            self.marked = self.marked or marks

        return launch

    def mhz(self, now: float) -> float:
        """The SM clock at a simulated time."""
        clock = self.slow_mhz if self._slow else self.clock(now)
        if not self.ramp_us:
            return clock
        return float(clock - (clock - min(self.idle_mhz, clock)) * np.exp(-(now - self._woke) / self.ramp_us))

    # --------------------------------------------------------------------------------------------------- the Timeline

    def draw_place(self) -> None:
        self._place += int(self._rng.integers(len(self.ring_us)))

    def lift_marks(self) -> None:
        self.marked = False

    def hold(self) -> None:
        self.synchronize()
        self._place += 1
        self.held = True

    def release(self) -> None:
        if self.held and self.cupti.enabled:
            self.cupti.pending.append((1e3 * self.device_now, 1e3 * self.host_now, BLOCKING))
        self.held = False
        self.device_now = max(self.device_now, self.host_now)
        pending, self._pending = self._pending, []
        for number, operation in enumerate(pending, 1):
            self._behind = len(pending) - number
            operation()
        self._behind = 0

    def flush_l2(self) -> None:
        self.log.append("flush")
        self._enqueue(self._run_flush)

    def make_room(self, slots: int) -> None:
        """A dictionary needs none."""

    def stamp_clock(self, slot: int) -> None:
        def stamp() -> None:
            self._place += 1
            self._stamps[slot] = (self.device_now, self._cycles)

        self._enqueue(stamp)

    def record_event(self, slot: int) -> None:
        def record() -> None:
            self._events[slot] = self.device_now

        self._enqueue(record)

    def synchronize(self) -> None:
        if self._recording is not None:
            raise LaunchFailed("operation not permitted when stream is capturing")
        if self.held:
            self.host_now += HOLD_LIMIT_US
            self.release()
            raise LaunchFailed("the blocking kernel gave up: the launcher synchronises")
        self.host_now = max(self.host_now, self.device_now)

    def elapsed_us(self, start: int, stop: int) -> float:
        elapsed = (self._events[stop] - self._events[start]) * self.event_slope + self.offset_us
        return round(elapsed / self.tick_us) * self.tick_us if self.tick_us else elapsed

    def clock_mhz(self, start: int, stop: int) -> float:
        (began, before), (ended, after) = self._stamps[start], self._stamps[stop]
        return (after - before) / (ended - began) if ended > began else float("nan")

    def stamped_us(self, start: int, stop: int) -> float:
        return self._stamps[stop][0] - self._stamps[start][0]

    def host_us(self) -> float:
        return self.host_now

    def throttle_reasons(self) -> int:
        return self.mask(self.host_now)

    def capture(self, launches: Sequence[Callable[[], None]]) -> Callable[[], None]:
        self._recording = []
        try:
            for launch in launches:
                launch()
        finally:
            nodes, self._recording = self._recording, None

        def replay() -> None:
            for node in nodes:
                self._run(self.node_us)
                node()

        return lambda: self._enqueue(replay)

    def tracer(self, queued: bool) -> AbstractContextManager[Tracer]:
        return tracing(self.cupti, self, queued)  # type: ignore[arg-type]

    def spin(self, ns: int) -> None:
        self._enqueue(lambda: self._run(ns / 1000, "spin", self.tracer_us))

    def probe_l2(self) -> Sequence[float]:
        warm = self._touch("probe", 2**20)
        return [(250.0 if warm else 650.0) + 20 * draw for draw in self._rng.standard_normal(500)]

    def burn(self, flops: float) -> None:
        self.log.append("burn")
        self._enqueue(lambda: self._run_kernel(flops / BURN_FLOPS_PER_US, "burn", 0))

    def pause(self, seconds: float) -> None:
        self.host_now += 1e6 * seconds
        self._woke = self.host_now

    # -------------------------------------------------------------------------------------------------------- the GPU

    def _enqueue(self, operation: Callable[[], None]) -> None:
        if self._recording is not None:
            self._recording.append(operation)
            return
        self.host_now += self.enqueue_us
        if self.held:
            if len(self._pending) >= QUEUE_LENGTH:
                raise LaunchFailed("the stream's queue is full while it is held: on a real GPU this waits for ever")
            self._pending.append(operation)
            return
        self.device_now = max(self.device_now, self.host_now)
        operation()

    def _run_flush(self) -> None:
        if self.flush_evicts and not self.marked:
            self._l2.clear()
        self._place += 1
        self._run(self.flush_us, "flush")

    def _run_kernel(self, us: float, data: str, data_bytes: int) -> None:
        self._slow = self.launches in self.slow_launches
        self.launches += 1
        us *= REFERENCE_MHZ / self.mhz(self.device_now)
        us /= self.warm_speedup if self._touch(data, data_bytes) else 1.0
        us *= float(np.exp(self.noise * self._rng.standard_normal()))
        if self.outlier_every and self.launches % self.outlier_every == 0:
            us *= self.outlier_factor
        if self._behind > FETCHED:
            self._run(self.fetch_us)
        self._run(us + self.ring_us[self._place % len(self.ring_us)], "kernel", self.tracer_us)
        self._place += 1

    def _touch(self, data: str, data_bytes: int) -> bool:
        """Whether the data were still in L2; then they are, and what was used longest ago makes room."""
        warm = self._l2.pop(data, None) is not None
        self._l2[data] = data_bytes
        while sum(self._l2.values()) > self.l2_bytes:
            del self._l2[next(iter(self._l2))]
        return warm

    def _run(self, us: float, traced_as: str = "", tracer_us: float = 0.0) -> None:
        began = self.device_now
        self._cycles += us * self.mhz(began)
        self.device_now += us
        if traced_as and self.cupti.enabled:
            self.cupti.pending.append((1e3 * began, 1e3 * (self.device_now + tracer_us), traced_as))


class VirtualCupti:
    """CUPTI's activity interface as the tracer uses it: records reach the callback only when they are flushed."""

    ActivityKind = SimpleNamespace(CONCURRENT_KERNEL=10)

    class cuptiError(Exception):  # noqa: N801
        pass

    def __init__(self) -> None:
        self.refuses, self.enabled, self.pending, self.registered = False, False, [], 0

    def activity_register_callbacks(self, requested: Callable[[], Any], completed: Callable[[Any], None]) -> None:
        size, most = requested()
        assert (size > 0, most) == (True, 0)
        self.registered += 1
        self.completed = completed

    def activity_enable(self, kind: int) -> None:
        if self.refuses:
            raise self.cuptiError("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS")
        self.enabled = True

    def activity_disable(self, kind: int) -> None:
        self.enabled = False

    def activity_flush_all(self, flag: int) -> None:
        self.completed([SimpleNamespace(start=start, end=end, name=name) for start, end, name in self.pending])
        self.pending.clear()


@dataclass(frozen=True)
class Result:
    """The subject's time in microseconds, the baseline's over it, and the raw reading."""

    time: Estimate
    ratio: Estimate
    reading: Reading


def timed(gpu: VirtualGpu, harness: Harness | None = None, us: float = 50.0, sensitivity: float = 1.0) -> Result:
    """Time a kernel of `us` against a baseline on this GPU, under this harness (default: the unbiased one)."""
    harness = harness or Harness()
    kernels = gpu.kernel(us, "subject", sensitivity=sensitivity), gpu.kernel(BASELINE_US, "baseline")
    reading = time_pair(gpu, *kernels, harness, move=gpu.move)
    found = summarize(reading, harness.as_dict(), {"offset_us": gpu.offset_us})
    assert found.ratio is not None
    return Result(found.time, found.ratio, reading)


def launches_of_warm_up(us: float = 50.0) -> int:
    """Launches on an undisturbed GPU before the warm-up is over, its last windows among them."""
    harness = Harness().but(order="sequential")  # which takes no samples from the warm-up
    return 2 * timed(VirtualGpu(), harness, us=us).reading.warmup_launches + 2


def session_on(gpu: VirtualGpu, calibration: Any) -> Any:
    """A session for worklog.runner.timing.time_on, on whose device `gpu.elsewhere_us` of work is left on a stream that
    isn't joined.
    """

    def synchronize_all() -> None:
        gpu.host_now += gpu.elsewhere_us

    device = SimpleNamespace(
        loan=lambda arrays: SimpleNamespace(current=nullcontext),
        synchronize=gpu.synchronize,
        synchronize_all=synchronize_all,
    )
    card = Gpu("a virtual GPU", (9, 0), 1, gpu.l2_bytes, 2**30, REFERENCE_MHZ, 1e3, 64, "none")
    return SimpleNamespace(timeline=gpu, calibration=calibration, gpu=card, device=device)
