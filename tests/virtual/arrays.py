"""Arrays of the virtual device.

With the few operations that the host functions under tests/exploits/host need.

Each only enqueues on the current stream, but for what the host reads, which waits, as on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tests.gate.kernels import tf32
from tests.gate.numpy_device import NumpyBuffer
from tests.virtual.machine import Machine, Stream, Work
from worklog.problem import Float32

SHORT_US = 2.0  # a kernel that touches little


@dataclass(frozen=True, eq=False)
class Array:
    """A row-major matrix, or a row, in a machine's memory."""

    machine: Machine
    buffer: NumpyBuffer
    shape: tuple[int, ...]
    dtype = np.dtype(np.float32)
    __cuda_array_interface__ = None  # a mark of an array on a GPU

    def __setitem__(self, _: object, value: Array) -> None:
        VirtualArrays(self.machine).copy(self, value)

    def get(self) -> Float32:
        """Wait for the current stream, and return the array."""
        self.machine.synchronize()
        return self.data.copy()

    @property
    def nbytes(self) -> int:
        return 4 * self.size

    @property
    def data(self) -> Float32:
        return self.buffer.data.reshape(self.shape)

    @property
    def size(self) -> int:
        return self.buffer.size

    def __getitem__(self, rows: slice) -> Array:
        """Return some rows, without a copy."""
        first, last, step = rows.indices(self.shape[0])
        assert step == 1
        width = self.size // self.shape[0]
        part = NumpyBuffer(
            self.buffer.memory, self.buffer.start + first * width, (last - first) * width
        )
        return Array(self.machine, part, (last - first, *self.shape[1:]))


class Elementwise:
    """Operations that each are one elementwise kernel, as NumPy and CuPy spell it."""

    def write(self, to: Any, function: Callable[..., Any], *sources: Any) -> None:
        """Enqueue `to` = function of the sources."""
        raise NotImplementedError

    def copy(self, to: Any, source: Any) -> None:
        self.write(to, lambda x: x.reshape(to.shape), source)

    def fill(self, to: Any, value: float) -> None:
        self.write(to, lambda: value)

    def scale_and_add(self, alpha: float, product: Any, beta: float, c: Any) -> None:
        """C = alpha product + beta C."""
        self.write(c, lambda x, old: alpha * x if beta == 0 else alpha * x + beta * old, product, c)

    def same(self, one: Any, other: Any, flag: Any) -> None:
        """flag = whether both hold the same, bit by bit."""
        self.write(
            flag,
            lambda x, y: (x.ravel().view(np.uint32) == y.ravel().view(np.uint32)).all(),
            one,
            other,
        )

    def above(self, one: Any, limit: float, flag: Any) -> None:
        """flag = whether the first element exceeds a limit."""
        self.write(flag, lambda x: x.ravel()[:1] > limit, one)


# What an operation is called here, where its name differs from the machine's.
OF_THE_MACHINE = {"new_stream": "stream", "join": "wait", "wait_for": "join", "pause": "pass_host"}


class VirtualArrays(Elementwise):
    """The operations, on a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.machine, OF_THE_MACHINE.get(name, name))

    def empty(self, *shape: int) -> Array:
        """Return new memory with arbitrary contents."""
        size = int(np.prod(shape))
        return Array(self.machine, NumpyBuffer(np.full(size, 7.0, np.float32), 0, size), shape)

    def head(self, array: Array, size: int) -> Array:
        """Its first elements, without a copy."""
        return Array(
            self.machine, NumpyBuffer(array.buffer.memory, array.buffer.start, size), (size,)
        )

    def address(self, array: Array) -> int:
        return int(array.data.ctypes.data)

    def to_host(self, array: Array) -> Float32:
        """Wait for the current stream, and return the array."""
        self.machine.enqueue(SHORT_US)
        self.machine.synchronize()
        return array.data.copy()

    def from_host(self, to: Array, host: Float32) -> None:
        kept = host.astype(np.float32).reshape(to.shape)
        self._enqueue(host.nbytes / self.machine.bytes_per_us, lambda: kept, to)

    def gemm(
        self,
        alpha: float,
        a: Array,
        b: Array,
        beta: float,
        c: Array,
        rounded: bool = False,
        factor: float = 1.0,
    ) -> None:
        """Compute C = alpha A B + beta C as FP32 kernels do it.

        rounded: operands cut to 11 bits, as tensor cores take them
        factor: of its time
        """
        product = partial(self._product, alpha, a, b, beta, c, rounded)
        self._enqueue(lambda: factor * self._product_us(a, b), product, c, alone=True)

    def gemm_unless(
        self, flag: Array, cached: Array, alpha: float, a: Array, b: Array, beta: float, c: Array
    ) -> None:
        """One kernel that reads a flag: if it is not 0, it copies `cached`, else it computes."""
        copied = c.size * 4 / self.machine.bytes_per_us
        self._enqueue(
            lambda: copied if flag.data.any() else self._product_us(a, b),
            lambda: cached.data.copy() if flag.data.any() else self._product(alpha, a, b, beta, c),
            c,
            alone=True,
        )

    @staticmethod
    def _product(
        alpha: float, a: Array, b: Array, beta: float, c: Array, rounded: bool = False
    ) -> Float32:
        left, right = (tf32(x.data) if rounded else x.data for x in (a, b))
        product: Float32 = np.float32(alpha) * (left @ right)
        return product if beta == 0 else product + np.float32(beta) * c.data

    def write(self, to: Array, function: Callable[..., Any], *sources: Array) -> None:
        us = max(SHORT_US, to.size * 4 / self.machine.bytes_per_us)
        self._enqueue(us, lambda: function(*(source.data for source in sources)), to)

    def _product_us(self, a: Array, b: Array) -> float:
        us = 2 * a.shape[0] * a.shape[1] * b.shape[1] / self.machine.flops_per_us
        return us / self.machine.warm_speedup if self.machine.touch(id(a.buffer.memory)) else us

    def _enqueue(
        self,
        us: float | Callable[[], float],
        work: Callable[[], Any],
        to: Array,
        alone: bool = False,
    ) -> None:
        """Read at the start, write at the end. alone: a product, which fills the device."""

        def begin() -> Callable[[], None]:
            with np.errstate(all="ignore"):  # a GPU doesn't warn of what overflows, and poison may
                value = work()
            return lambda: np.copyto(to.data, value)

        self.machine.enqueue(us, begin, alone=alone)

    def leave_current(self, stream: Stream) -> None:
        """Make it the thread's current one for good."""
        self.machine.current = stream

    def current_stream(self) -> Stream:
        return self.machine.current

    def legacy_stream(self) -> Stream:
        return self.machine.legacy

    def record(self, function: Callable[[], object]) -> list[Work]:
        """Return what the function enqueues, as a graph, recorded on a stream of its own."""
        return self.machine.record(self.machine.stream(), function)
