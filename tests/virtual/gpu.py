"""The harness's queue on a virtual machine, with every gremlin as a number that a test sets.

It stands in for worklog.gpu.timeline.CudaTimeline. Nothing here looks at a real clock, so a test is
exact and repeatable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace

import numpy as np

from tests.virtual.device import VirtualDevice
from tests.virtual.machine import Machine, Work
from worklog.emulator.limits import Chip
from worklog.errors import LaunchFailed
from worklog.runs import Gpu

MHZ = 20.0
L2_BYTES = 2**22
GPU = Gpu("a virtual GPU", (9, 0), 1, L2_BYTES, 2**30, MHZ, 1e3, 64, "none")
REFERENCE_MHZ = 2000.0  # a kernel's true time is its time at this clock, with a cold L2
BURN_FLOPS_PER_US = 60e6
FETCHED = 8


class VirtualCounter:
    """NVML's energy counter and power reading, as worklog.gpu.energy has them."""

    def __init__(self, gpu: "VirtualGpu") -> None:
        self.gpu = gpu
        self.reason: str | None = None

    def millijoules(self) -> int | None:
        return self._read(self.gpu.counter)

    def milliwatts(self) -> int | None:
        return self._read(self.gpu.power)

    def _read(self, at: Callable[[float], int]) -> int | None:
        if self.reason is not None:
            return None
        try:
            return at(self.gpu.host_us())
        except ValueError as error:
            self.reason = f"NVML: {error}"
            return None


@dataclass
class VirtualGpu:
    """Times in microseconds, clocks in MHz, each gremlin as a number."""

    machine: Machine = field(default_factory=Machine)
    offset_us: float = 3.45  # what a pair of events reads on top
    flush_us: float = 30.0  # the flush's own length
    warm_speedup: float = 1.0  # of a kernel, where nothing flushed L2 since the launch before
    load_us: float = 0.0  # what a kernel's first launch costs the host
    clock: Callable[[float], float] = lambda now: REFERENCE_MHZ  # at a simulated time
    ramp_us: float = (
        0.0  # after idling, the clock climbs from idle_mhz with this time constant (0: at once)
    )
    idle_mhz: float = REFERENCE_MHZ
    noise: float = 0.0  # relative standard deviation
    outlier_every: int = 0  # every n-th launch is slower
    outlier_factor: float = 1.0
    mask: Callable[[float], int] = lambda now: 0  # NVML's reasons at a simulated time
    tick_us: float = 0.0  # resolution of events (0: exact)
    slow_launches: range = range(0)  # numbers of launches that run at slow_mhz
    slow_mhz: float = REFERENCE_MHZ
    node_us: float = 0.0  # gap before each node of a graph
    fetch_us: float = 0.0  # what a launch waits where more than FETCHED others are queued behind it
    ring_us: Sequence[float] = (
        0.0,
    )  # what a kernel waits in each place of the ring of launches, in turn
    tracer_us: float = 0.0  # what the tracer reads on top
    # Draws the share by which a kernel of sensitivity 1 is slower in the next placement of its
    # buffers.
    placement: Callable[[np.random.Generator], float] = lambda rng: 0.0
    cold_code_us: float = 0.0  # what a kernel takes longer after one of another module
    event_slope: float = 1.0  # microseconds that events count for a true one
    flush_evicts: bool = True
    # NVML's energy counter in mJ and its power in mW at a simulated time: 500 W, steps of 20 ms.
    # A ValueError is NVML's error.
    counter: Callable[[float], int] = lambda now: int(now // 20e3) * 10_000
    power: Callable[[float], int] = lambda now: 500_000
    seed: int = 0
    gpu: Gpu = GPU

    def __post_init__(self) -> None:
        self.device = VirtualDevice(self.machine, Chip.of_gpu(self.gpu))
        self.stream = self.device.stream
        self.traced: list[tuple[float, float, str]] | None = (
            None  # start and end in ns of what ran, if it is listed
        )
        self.watch = SimpleNamespace(reason=None, reasons=lambda: self.mask(self.machine.host_now))
        self.energy = VirtualCounter(self)
        self.remarks: list[str] = []
        self.log: list[str] = []
        self.launches = 0
        self.moves = -1
        self.marked = False  # a kernel has marked what it read to stay in L2
        self._loaded: set[str] = set()
        self._serial = count()
        self._events: dict[int, float] = {}
        self._stamps: dict[int, tuple[float, float]] = {}
        self._woke = self._cycles = self._ticked = 0.0
        self._slow = False
        self._place = 0
        self._cached = ""
        self._rng = np.random.default_rng(self.seed)
        self._rate = self.mhz(0.0)
        self.move()

    def move(self) -> None:
        """All buffers go to a new placement."""
        self.slower = self.placement(self._rng)
        self.moves += 1

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
        """Return a launcher of a kernel that truly lasts `us`.

        At the reference clock with a cold L2. It reads `data`, which it may mark to stay in L2.
        Launchers of one module load it once.

        sensitivity: to where its buffers lie
        """
        module = module or f"module {next(self._serial)}"

        def launch() -> None:
            if module not in self._loaded:
                if self.held or self.stream.recording is not None:
                    raise LaunchFailed(
                        "a module was loaded in a held queue: on a real GPU this waits for ever"
                    )
                self.machine.pass_host(self.load_us)
                self._loaded.add(module)
            self.log.append(name)
            self._enqueue(length, "kernel")

        def length() -> float:
            self.marked = self.marked or marks
            cold_us = self.cold_code_us if self._cached != module else 0.0
            self._cached = module
            return self._kernel_us(us * (1 + sensitivity * self.slower) + cold_us, data, data_bytes)

        return launch

    @property
    def held(self) -> bool:
        return self.machine.held is not None

    def mhz(self, now: float) -> float:
        """Return the SM clock at a simulated time."""
        clock = self.slow_mhz if self._slow else self.clock(now)
        if not self.ramp_us:
            return clock
        return float(
            clock - (clock - min(self.idle_mhz, clock)) * np.exp(-(now - self._woke) / self.ramp_us)
        )

    @property
    def l2_bytes(self) -> int:
        return self.machine.l2_bytes

    def draw_place(self) -> None:
        self._place += int(self._rng.integers(len(self.ring_us)))

    def lift_marks(self) -> None:
        """Let what follows wait for all streams, as on a GPU."""
        for other in self.machine.streams:
            if other is not self.stream:
                self.machine.wait(self.stream, other)

        def lift() -> None:
            self.marked = False

        self.machine.enqueue(0.0, lift, self.stream)

    def hold(self) -> None:
        self.machine.hold(self.stream)
        self._place += 1
        if self.traced is not None:
            self.traced.append((0.0, 0.0, "harness_hold"))

    def release(self) -> None:
        self.machine.release()

    def flush_l2(self) -> None:
        """Write twice as much as L2 holds.

        What is read while the second half is written stays there.
        """
        self.log.append("flush")

        def evict() -> None:
            self._place += 1
            if self.flush_evicts and not self.marked:
                self.machine.l2.clear()

        self.machine.enqueue(
            lambda: self._traced(self.flush_us / 2, "flush"), lambda: evict, self.stream
        )
        self.machine.enqueue(self.flush_us / 2, lambda: None, self.stream)

    def make_room(self, slots: int) -> None:
        """Do nothing: a dictionary needs no room."""

    def stamp_clock(self, slot: int) -> None:
        def stamp() -> None:
            self._place += 1
            self._tick()
            self._stamps[slot] = (self.machine.device_now, self._cycles)

        self.machine.enqueue(0.0, stamp, self.stream)

    def is_reached(self, slot: int) -> bool:
        self.machine.busy(self.stream)  # lets the device run up to now
        return slot in self._events

    def record_event(self, slot: int) -> None:
        self._events.pop(slot, None)

        def record() -> None:
            self._events[slot] = self.machine.device_now

        self.machine.enqueue(0.0, record, self.stream)

    def synchronize(self) -> None:
        self.device.synchronize()
        if self.machine.gave_up:
            self.machine.gave_up = False
            raise LaunchFailed(
                "the blocking kernel waited 20 s for the host: the launcher synchronises"
            )

    def elapsed_us(self, start: int, stop: int) -> float:
        if not {start, stop} <= self._events.keys():
            raise LaunchFailed("an event has not been reached: device not ready")
        elapsed = (self._events[stop] - self._events[start]) * self.event_slope + self.offset_us
        return round(elapsed / self.tick_us) * self.tick_us if self.tick_us else elapsed

    def clock_mhz(self, start: int, stop: int) -> float:
        (began, before) = self._stamps[start]
        (ended, after) = self._stamps[stop]
        return (after - before) / (ended - began) if ended > began else float("nan")

    def host_us(self) -> float:
        return self.machine.host_now

    def capture(self, launches: Sequence[Callable[[], None]]) -> Callable[[], None]:
        gap = Work(lambda: self.node_us, lambda: None)
        nodes = self.machine.record(self.stream, lambda: [launch() for launch in launches])
        graph = [work for node in nodes for work in (gap, node)]

        def replay() -> None:
            with self.machine.on(self.stream):
                self.machine.replay(graph)

        return replay

    def spin(self, ns: int) -> None:
        self._enqueue(lambda: ns / 1000, "spin")

    def probe_l2(self) -> Sequence[float]:
        self.synchronize()
        warm = self.machine.touch("probe", 2**20)
        return [(250.0 if warm else 650.0) + 20 * draw for draw in self._rng.standard_normal(500)]

    def burn(self, flops: float) -> None:
        self.log.append("burn")
        self._enqueue(lambda: self._kernel_us(flops / BURN_FLOPS_PER_US, "burn", 0), "kernel")

    def ceilings(self) -> dict[str, tuple[float, Callable[[], None]]]:
        return {name: (1e6, self.kernel(50.0, data=name)) for name in ("FP32", "copy", "L2 reads")}

    def pause(self, seconds: float) -> None:
        self.machine.pass_host(1e6 * seconds)
        self._woke = self.machine.host_now

    def _enqueue(self, us: Callable[[], float], name: str) -> None:
        self.machine.enqueue(lambda: self._traced(us(), name, self.tracer_us), stream=self.stream)

    def _traced(self, us: float, name: str, tracer_us: float = 0.0) -> float:
        """Return the length of what starts now, and list it for a tracer."""
        if self.traced is not None:
            now = self.machine.device_now
            self.traced.append((1e3 * now, 1e3 * (now + us + tracer_us), name))
        return us

    def _tick(self, slow: bool | None = None) -> None:
        """Count cycles up to now.

        slow: whether the clock is slow from here on (default: as before).
        """
        now = self.machine.device_now
        self._cycles += (now - self._ticked) * self._rate
        self._slow = self._slow if slow is None else slow
        self._ticked = now
        self._rate = self.mhz(now)

    def _kernel_us(self, us: float, data: str, data_bytes: int) -> float:
        """How long a kernel lasts that starts now."""
        self._tick(slow=self.launches in self.slow_launches)
        self.launches += 1
        us *= REFERENCE_MHZ / self._rate
        us /= self.warm_speedup if self.machine.touch(data, data_bytes) else 1.0
        us *= float(np.exp(self.noise * self._rng.standard_normal()))
        if self.outlier_every and self.launches % self.outlier_every == 0:
            us *= self.outlier_factor
        if self.fetch_us and len(self.stream.queue) - 1 > FETCHED:
            us += self.fetch_us
        us += self.ring_us[self._place % len(self.ring_us)]
        self._place += 1
        return us
