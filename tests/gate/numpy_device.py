"""A device made of NumPy, as worklog.kernel.device.Device.

Kernels are Python functions on flat float32 memory.

It keeps a queue, as a GPU does: enqueued work runs when the host waits. A kernel sees the memory
around its arguments too, so it can read and write out of bounds.
"""

import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from worklog.emulator.limits import Chip
from worklog.errors import CompileFailed, LaunchFailed
from worklog.kernel.device import Buffer, Program, Runnable
from worklog.problem import Domain, Float32, Shape
from worklog.problem.formats import FLOAT32, Format


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
        """Return the elements with neighbours on both sides, as far as there is memory."""
        return self.memory[max(0, self.start - before) : self.start + self.size + after]


@dataclass(frozen=True)
class Problem:
    """One launch's arguments.

    a, b, c: (M, K), (K, N), (M, N) without a copy, at the start of their buffers.
    """

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
        return self.a_buffer.data[: self.m * self.k].reshape(self.m, self.k)

    @property
    def b(self) -> Float32:
        return self.b_buffer.data[: self.k * self.n].reshape(self.k, self.n)

    @property
    def c(self) -> Float32:
        return self.c_buffer.data[: self.m * self.n].reshape(self.m, self.n)


Function = Callable[[Problem], None]


@dataclass(frozen=True)
class NumpyKernel:
    """A function where a GPU has code.

    It gets a Problem, or the bare arguments if it is not `gemm`.
    """

    function: Callable[..., None]
    gemm: bool = True
    compiled = SimpleNamespace(variables=())


# The gate's own kernels (worklog/gate/*.cu), by their names there.


def differ(n: Any, a: NumpyBuffer, b: NumpyBuffer, launch: Any, found: NumpyBuffer) -> None:
    if (a.data.view(np.uint32) != b.data.view(np.uint32)).any():
        found.data[launch] = 1


U64 = np.uint64
GOLDEN = U64(0x9E3779B97F4A7C15)


def hashed(key: Any, index: Any) -> Any:
    with np.errstate(over="ignore"):
        x = U64(key) + index.astype(U64) * GOLDEN
        x = (x ^ (x >> U64(30))) * U64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> U64(27))) * U64(0x94D049BB133111EB)
    return x >> U64(32)


def contents(key: Any, size: int) -> Float32:
    bits = hashed(key, np.arange(size))
    magnitude = ((bits & U64(0xFFFFFF)) + U64(1)).astype(np.float32) * np.float32(2.0**-24)
    return np.where(bits >> U64(31), -magnitude, magnitude).astype(np.float32)


def signs(key: Any, size: int) -> Any:
    return np.where(hashed(key, np.arange(size)) >> U64(31), -1.0, 1.0)


def refill(
    key: Any, in_a: Any, a: Any, in_b: Any, b: Any, in_c: Any, c: Any, sentinel: Any
) -> None:
    a.data[:] = contents(key, int(in_a))
    b.data[:] = contents(~key, int(in_b))
    c.data.fill(sentinel)


def observe(x: Any, m: Any, n: Any, c: Any, cx: Any, found: Any) -> None:
    found.data.fill(0)
    with np.errstate(invalid="ignore", over="ignore"):
        cx.data.view(np.float64)[:] = c.data.astype(np.float64).reshape(m, n) @ signs(x, int(n))


def project(
    key: Any, x: Any, products: Any, n: Any, k: Any, b: Any, bx: Any, gauges: Any, found: Any
) -> None:
    made = contents(~key, int(products) * int(k) * int(n))
    found.data.view(np.uint32)[2] += np.count_nonzero(
        b.data.view(np.uint32) != made.view(np.uint32)
    )
    rows = made.astype(np.float64).reshape(-1, n)
    bx.data.view(np.float64)[:] = rows @ signs(x, int(n))
    gauges.data.view(np.float64)[:] = np.square(rows).sum(axis=1)


def compare(
    key: Any, products: Any, m: Any, k: Any, a: Any, cx: Any, bx: Any, gauges: Any, alpha: Any,
    limit: Any,
    launch: Any,
    found: Any,
) -> None:  # fmt: skip
    made = contents(key, int(products) * int(m) * int(k))
    found_words = found.data.view(np.uint32)
    found_words[2] += np.count_nonzero(a.data.view(np.uint32) != made.view(np.uint32))
    rows = made.astype(np.float64).reshape(products, m, k)
    gauges_of_products = gauges.data.view(np.float64).reshape(products, k, 1)
    projected = bx.data.view(np.float64).reshape(products, k, 1)
    with np.errstate(invalid="ignore", over="ignore"):
        unit = 2.0**-24 * np.sqrt(np.square(rows) @ gauges_of_products).ravel()
        right = float(alpha) * (rows @ projected).ravel() / unit
        off = cx.data.view(np.float64) / unit - right
        error = np.abs(off)
        found.data[6:12].view(np.float64)[:] += (off @ off, off @ right, right @ right)
    found_words[3] += int(products) * int(m)
    found.data[0] = max(
        found.data[0], np.float32(error.max()) if (error <= 3e38).all() else np.float32(np.inf)
    )
    wrong = np.count_nonzero(~(error <= limit))
    found_words[1] += wrong
    if wrong:
        found_words[4] = max(found_words[4], 2**32 - 1 - int(launch))


def columns_of(key: Any, rows: Any, n: Any) -> Any:
    return (hashed(key, np.arange(int(rows))) % U64(n)).astype(int)


def pick(columns: Any, rows: Any, n: Any, c: Any, picked: Any, found: Any) -> None:
    found.data.fill(0)
    matrix = c.data.reshape(rows, n)
    picked.data.view(np.float64)[:] = matrix[np.arange(rows), columns_of(columns, rows, n)]


def compare_elements(
    key: Any, columns: Any, known: Any, products: Any, m: Any, n: Any, k: Any, a: Any, b: Any,
    picked: Any, alpha: Any, scale: Any, bias: Any, row_bias: Any, residual: Any, activation: Any,
    limit: Any, rounding: Any, smallest: Any, limit_of_gelu: Any, launch: Any, found: Any,
) -> None:  # fmt: skip
    assert products == 1 and activation in (0, 1) and not row_bias, "of one product, relu at most"
    place = columns_of(columns, m, n)
    found_words = found.data.view(np.uint32)
    if known:
        made = contents(key, int(m) * int(k)), contents(~key, int(k) * int(n))
        for buffer, values in zip((a, b), made, strict=True):
            found_words[2] += np.count_nonzero(buffer.data != values)
    left = a.data.reshape(m, k).astype(np.float64)
    right = b.data.reshape(k, n).astype(np.float64)[:, place].T
    factor = float(alpha) * float(scale)
    gauge = abs(factor) * np.sqrt(np.square(left * right).sum(axis=1))
    sums = factor * (left * right).sum(axis=1)
    size = np.abs(sums) + gauge
    added = [bias.data[place]] if bias else []
    if residual:
        added.append(residual.data.reshape(m, n)[np.arange(m), place])
    for values in added:
        sums = sums + values
        size = size + np.abs(values)
    error = np.abs(picked.data.view(np.float64) - (np.maximum(sums, 0) if activation else sums))
    share = error / (limit * 2.0**-24 * gauge + rounding * size + smallest)
    found.data[6:12].view(np.float64)[0] += np.square(error / (2.0**-24 * size)).sum()
    found_words[3] += int(m)
    found.data[0] = max(found.data[0], np.float32(share.max()))
    found_words[1] += np.count_nonzero(~(share <= 1))


def fold(m: Any, found: Any, record: Any) -> None:
    new = found.data.view(np.uint32)
    kept = record.data.view(np.uint32)
    kept[[0, 4]] = np.maximum(kept[[0, 4]], new[[0, 4]])
    kept[1:4] += new[1:4]
    squares, along, of_product = found.data[6:12].view(np.float64)
    left = squares - along**2 / of_product if along < 0 else squares
    worst = record.data[6:10].view(np.float64)
    worst[:] = np.fmax(worst, (squares / m, left / m))


GATES_OWN = {
    kernel.__name__: kernel
    for kernel in (differ, refill, observe, project, compare, fold, pick, compare_elements)
}


POOL_BYTES = 3 * 2**25  # room for a pool with the workspaces of two libraries


@cache
def unwritten() -> int:
    """Return a file with what new memory holds.

    Each allocation maps it, because filling a pool takes 0.2 seconds.
    """
    with tempfile.TemporaryFile() as file:
        np.full(POOL_BYTES // 4, 7.0, np.float32).tofile(file)
        return os.dup(file.fileno())


class NumpyDevice:
    """It compiles the gate's own kernels only. source: as of a Device."""

    def __init__(self, source: str = "emulated") -> None:
        self.source = source
        self.chip = Chip()
        self.inherited = np.zeros(64, np.float32)  # what a launch finds in shared memory
        self._queue: list[Callable[[], object]] = []

    def compile(self, program: Program) -> NumpyKernel:
        if program.entry in GATES_OWN:
            return NumpyKernel(GATES_OWN[program.entry], gemm=False)
        if program.entry == "foul":
            return NumpyKernel(lambda: self.inherited.fill(np.nan), gemm=False)
        raise CompileFailed(f"{program.name}: there is no kernel {program.entry}")

    def upload(self, host: Float32, format_: Format = FLOAT32) -> NumpyBuffer:
        assert host.dtype == np.float32 and format_ == FLOAT32
        return NumpyBuffer(host.ravel().copy(), 0, host.size)

    def allocate(self, elements: int) -> NumpyBuffer:
        memory = mmap.mmap(unwritten(), 4 * elements, access=mmap.ACCESS_COPY)
        return NumpyBuffer(np.frombuffer(memory, np.float32), 0, elements)

    def free_bytes(self) -> int:
        return 2**28 + POOL_BYTES  # beside what stays free

    def enqueue(self, work: Callable[[], object], us: float = 0.0) -> None:
        """Do this when the host waits. us: how long it takes on a device that has a time."""
        self._queue.append(work)

    def product_us(self, problem: Problem) -> float:
        """How long a product takes."""
        return 0.0

    def copy(self, to: Any, source: Any) -> None:
        self.enqueue(lambda: np.copyto(to.data, source.data))

    def overwrite(self, buffer: Any, host: Float32) -> None:
        assert host.size == buffer.size and host.dtype == np.float32
        copy = host.ravel().copy()
        self.enqueue(lambda: np.copyto(buffer.data, copy))

    def fill(self, buffer: Any, value: float) -> None:
        self.enqueue(lambda: buffer.data.fill(value))

    def download(self, buffer: Any) -> Float32:
        self.enqueue(lambda: None)  # a copy takes its time
        self.synchronize()
        return buffer.data.copy()

    def view(self, buffer: Any, start: int, size: int) -> NumpyBuffer:
        assert start >= 0 and start + size <= buffer.size
        return NumpyBuffer(buffer.memory, buffer.start + start, size)

    def launch(
        self, kernel: Any, grid: tuple[int, int], block: int, arguments: Sequence[Any]
    ) -> None:
        if not 1 <= block <= 1024:
            raise LaunchFailed("launching a kernel: invalid configuration argument")
        if not kernel.gemm:
            self.enqueue(lambda: kernel.function(*arguments))
            return
        m, n, k, alpha, a, b, beta, c = arguments
        problem = Problem(int(m), int(n), int(k), alpha, a, b, beta, c)
        self.enqueue(lambda: kernel.function(problem), self.product_us(problem))

    def synchronize(self) -> None:
        queue, self._queue = self._queue, []
        with np.errstate(all="ignore"):  # as a GPU does
            for work in queue:
                work()


class NumpySubject(Runnable):
    """A Python function on the NumPy device."""

    def __init__(
        self,
        device: NumpyDevice,
        function: Function,
        domain: Domain | None = None,
        block: int = 256,
        claimed: str = "fp32",
    ) -> None:
        self.name = function.__name__
        self.claimed = claimed
        self.domain = domain or Domain()
        self.device = device
        self.kernel = NumpyKernel(function)
        self.block = block

    def enqueue(
        self, shape: Shape, alpha: float, a: Buffer, b: Buffer, beta: float, c: Buffer
    ) -> None:
        f32 = np.float32
        arguments = (shape.m, shape.n, shape.k, f32(alpha), a, b, f32(beta), c)
        self.device.launch(self.kernel, (1, 1), self.block, arguments)
