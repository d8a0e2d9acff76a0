"""A machine made of NumPy, as worklog.kernels.Device: kernels are Python functions on flat float32 memory.

It keeps a queue, as a GPU does: nothing has happened before somebody waits. A kernel sees the memory around its
arguments too, so that it can read and write out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from worklog.errors import CompileFailed, LaunchFailed
from worklog.gemm import Float32, Shape
from worklog.kernels import Buffer, Program, Resources
from worklog.ladder import Domain


@dataclass(frozen=True)
class NumpyBuffer:
    """`size` elements of a memory from `start` on."""

    memory: Float32
    start: int
    size: int

    @property
    def data(self) -> Float32:
        """The elements, without a copy."""
        return self.memory[self.start : self.start + self.size]

    def beyond(self, before: int, after: int) -> Float32:
        """The elements with neighbours on both sides, as far as there is memory."""
        return self.memory[max(0, self.start - before) : self.start + self.size + after]


@dataclass(frozen=True)
class Problem:
    """One launch's arguments. a, b, c: (M, K), (K, N), (M, N) without a copy; the buffers beside them."""

    m: int
    n: int
    k: int
    alpha: np.float32
    a_buffer: NumpyBuffer
    b_buffer: NumpyBuffer
    beta: np.float32
    c_buffer: NumpyBuffer

    @property
    def a(self) -> Float32:
        return self.a_buffer.data.reshape(self.m, self.k)

    @property
    def b(self) -> Float32:
        return self.b_buffer.data.reshape(self.k, self.n)

    @property
    def c(self) -> Float32:
        return self.c_buffer.data.reshape(self.m, self.n)


Function = Callable[[Problem], None]
NOTHING_SPENT = Resources(0, 0, 0)


@dataclass(frozen=True)
class NumpyKernel:
    """A function where a GPU has code. It gets a Problem, or the bare arguments if it is not `gemm`."""

    function: Callable[..., None]
    gemm: bool = True
    resources: Resources = NOTHING_SPENT


def differ(n: Any, a: NumpyBuffer, b: NumpyBuffer, launch: Any, found: NumpyBuffer) -> None:
    """What the gate's own kernel of this name does on a GPU."""
    if (a.data.view(np.uint32) != b.data.view(np.uint32)).any():
        found.data[launch] = 1


class NumpyDevice:
    """functions: what `compile` finds, by entry, beside the gate's own kernel."""

    def __init__(self, functions: dict[str, Function] | None = None, source: str = "emulated") -> None:
        self.functions = functions or {}
        self.source = source
        self.launches = 0
        self.inherited = np.zeros(64, np.float32)  # what a launch finds in shared memory
        self._queue: list[Callable[[], object]] = []

    def compile(self, program: Program) -> NumpyKernel:
        if program.entry == "differ":
            return NumpyKernel(differ, gemm=False)
        if program.entry == "foul":
            return NumpyKernel(lambda: self.inherited.fill(np.nan), gemm=False)
        if program.entry not in self.functions:
            raise CompileFailed(f"{program.name}: there is no kernel {program.entry}")
        return NumpyKernel(self.functions[program.entry])

    def upload(self, host: Float32) -> NumpyBuffer:
        assert host.dtype == np.float32
        return NumpyBuffer(host.ravel().copy(), 0, host.size)

    def overwrite(self, buffer: Any, host: Float32) -> None:
        assert host.size == buffer.size and host.dtype == np.float32
        copy = host.ravel().copy()
        self._queue.append(lambda: np.copyto(buffer.data, copy))

    def fill(self, buffer: Any, value: float) -> None:
        self._queue.append(lambda: buffer.data.fill(value))

    def download(self, buffer: Any) -> Float32:
        self.synchronize()
        out: Float32 = buffer.data.copy()
        return out

    def view(self, buffer: Any, start: int, size: int) -> NumpyBuffer:
        assert start % 4 == 0 and start >= 0 and start + size <= buffer.size
        return NumpyBuffer(buffer.memory, buffer.start + start, size)

    def launch(self, kernel: Any, grid: tuple[int, int], block: int, arguments: Sequence[Any]) -> None:
        if not 1 <= block <= 1024:
            raise LaunchFailed("launching a kernel: invalid configuration argument")
        if not kernel.gemm:
            self._queue.append(lambda: kernel.function(*arguments))
            return
        m, n, k, alpha, a, b, beta, c = arguments
        self.launches += 1
        self._queue.append(lambda: kernel.function(Problem(int(m), int(n), int(k), alpha, a, b, beta, c)))

    def synchronize(self) -> None:
        queue, self._queue = self._queue, []
        for work in queue:
            work()


class NumpySubject:
    """A Python function as worklog.kernels.Subject."""

    def __init__(self, device: NumpyDevice, function: Function, domain: Domain | None = None, block: int = 256) -> None:
        self.name = function.__name__
        self.domain = domain or Domain()
        self.device = device
        self.kernel = NumpyKernel(function)
        self.block = block

    def enqueue(self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer) -> None:
        f32 = np.float32
        arguments = (shape.m, shape.n, shape.k, f32(alpha), a, b, f32(beta), c)
        self.device.launch(self.kernel, (1, 1), self.block, arguments)
