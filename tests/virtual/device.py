"""The virtual machine as a device (worklog.kernel) and as the harness's timeline, as far as a session needs one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.gate.numpy_device import NumpyDevice, Problem
from tests.virtual.arrays import SHORT_US, Array, VirtualArrays
from tests.virtual.machine import Machine
from worklog.errors import LaunchFailed
from worklog.kernel.device import Buffer
from worklog.problem.gemm import Domain, Float32, Shape

MHZ = 20.0
LANES = 128


class VirtualDevice(NumpyDevice):
    """Kernels are Python functions; a non-blocking stream carries all work."""

    remarks: tuple[str, ...] = ()

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine
        self.stream = machine.stream()

    def copy(self, to: Any, source: Any) -> None:
        self.machine.enqueue(SHORT_US, lambda: lambda: np.copyto(to.data, source.data), self.stream)

    def overwrite(self, buffer: Any, host: Float32) -> None:
        kept = host.ravel().copy()
        self.machine.enqueue(SHORT_US, lambda: lambda: np.copyto(buffer.data, kept), self.stream)

    def fill(self, buffer: Any, value: float) -> None:
        self.machine.enqueue(SHORT_US, lambda: lambda: buffer.data.fill(value), self.stream)

    def download(self, buffer: Any) -> Float32:
        self.machine.enqueue(SHORT_US, stream=self.stream)
        return super().download(buffer)

    def launch(self, kernel: Any, grid: tuple[int, int], block: int, arguments: Sequence[Any]) -> None:
        if kernel.gemm:
            m, n, k, alpha, a, b, beta, c = arguments
            problem = Problem(int(m), int(n), int(k), alpha, a, b, beta, c)
            us = 2 * problem.m * problem.n * problem.k / self.machine.flops_per_us
            self.machine.enqueue(us, lambda: lambda: kernel.function(problem), self.stream)
        else:
            self.machine.enqueue(SHORT_US, lambda: lambda: kernel.function(*arguments), self.stream)

    def synchronize(self) -> None:
        self.machine.synchronize(self.stream)

    def synchronize_all(self) -> None:
        for stream in self.machine.streams:
            self.machine.synchronize(stream)

    emptied = 0

    def empty_cache(self) -> None:
        self.emptied += 1

    def loan(self, arrays: str) -> VirtualLoan:
        return VirtualLoan(self, arrays)


class VirtualLoan:
    """A VirtualDevice's memory and stream, as a Loan. PyTorch tensors and addresses are the host's own
    memory, where work is done at once: the machine is waited for before it.
    """

    def __init__(self, device: VirtualDevice, arrays: str) -> None:
        self.device = device
        self.arrays = arrays
        self.handle = id(device.stream)

    def array(self, buffer: Any, shape: tuple[int, ...], dtype: str) -> Any:
        assert dtype == "float32"
        if self.arrays == "pointers":
            return int(buffer.data.ctypes.data)
        if self.arrays == "torch":
            import torch

            return torch.from_numpy(buffer.data.reshape(shape))
        return Array(self.device.machine, buffer, shape)

    def current(self) -> AbstractContextManager[None]:
        if self.arrays != "cupy":
            self.device.synchronize()
        return self.device.machine.on(self.device.stream)


class VirtualBaseline:
    """The library's product, as worklog.kernel.device.Subject."""

    def __init__(self, device: VirtualDevice, name: str) -> None:
        self.name = name
        self.version = "0"
        self.domain = Domain()
        self.device = device
        self.loan = device.loan("cupy")
        self.arrays = VirtualArrays(device.machine)

    def enqueue(self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer) -> None:
        sizes = (a, shape.m, shape.k), (b, shape.k, shape.n), (c, shape.m, shape.n)
        left, right, out = (self.loan.array(buffer, (rows, columns), "float32") for buffer, rows, columns in sizes)
        with self.loan.current():
            self.arrays.gemm(alpha, left, right, beta, out, rounded=self.name.endswith("TF32"))


class VirtualTimeline:
    """The harness's queue on a virtual device, with an event overhead of 3.45 µs."""

    l2_bytes = 2**22
    offset_us = 3.45
    flush_us = 30.0

    # Clock event reasons can be read.
    watch = SimpleNamespace(reason=None, energy_j=lambda: None, celsius=lambda: None)

    def __init__(self, device: VirtualDevice) -> None:
        self.device = device
        self.machine: Machine = device.machine
        self._events: dict[int, float] = {}
        self._stamps: dict[int, float] = {}
        self.remarks: list[str] = []

    def _at(self, notes: dict[int, float], slot: int) -> None:
        def begin() -> None:
            notes[slot] = self.machine.device_now

        self.machine.enqueue(0.0, begin, self.device.stream)

    def draw_place(self) -> None:
        """This machine has no ring."""

    def lift_marks(self) -> None:
        """Nothing can be marked on this machine; what follows waits for all its streams, as on a GPU."""
        for stream in self.machine.streams:
            if stream is not self.device.stream:
                self.machine.wait(self.device.stream, stream)

    def hold(self) -> None:
        self.machine.hold(self.device.stream)

    def release(self) -> None:
        self.machine.release()

    def flush_l2(self) -> None:
        """What is read while its second half, as much as L2 holds, is written stays there."""
        self.machine.enqueue(self.flush_us / 2, lambda: self.machine.warm.clear, self.device.stream)
        self.machine.enqueue(self.flush_us / 2, stream=self.device.stream)

    def make_room(self, slots: int) -> None:
        """A dictionary needs none."""

    def spin(self, nanoseconds: int) -> None:
        """A kernel of known length."""
        self.machine.enqueue(nanoseconds / 1e3, stream=self.device.stream)

    def stamp_clock(self, slot: int) -> None:
        self._at(self._stamps, slot)

    def record_event(self, slot: int) -> None:
        self._at(self._events, slot)

    def synchronize(self) -> None:
        self.device.synchronize()
        if self.machine.gave_up:
            self.machine.gave_up = False
            raise LaunchFailed("the blocking kernel waited 20 s for the host: the launcher synchronises")

    def elapsed_us(self, start: int, stop: int) -> float:
        if not {start, stop} <= self._events.keys():
            raise LaunchFailed("an event has not been reached: device not ready")
        return self._events[stop] - self._events[start] + self.offset_us

    def clock_mhz(self, start: int, stop: int) -> float:
        return MHZ

    def stamped_us(self, start: int, stop: int) -> float:
        return self._stamps[stop] - self._stamps[start]

    def host_us(self) -> float:
        return self.machine.host_now

    def throttle_reasons(self) -> int:
        return 0

    def pause(self, seconds: float) -> None:
        self.machine.pass_host(1e6 * seconds)
